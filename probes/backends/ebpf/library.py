"""The import of bcc, a system package that virtual environments do not see.

PyPI's package `bcc` is a different project.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tracer.probes.errors import FeatureMissing

_SYSTEM = "/usr/lib/python3/dist-packages"
_MEND = "run `apt-get install python3-bpfcc`"


def folder() -> Path | None:
    """Returns the folder of bcc's Python package, or None. PyPI's `bcc` has no libbcc.py."""
    for parent in (*sys.path, _SYSTEM):
        with contextlib.suppress(OSError):  # this user cannot read the folder
            if Path(parent, "bcc", "libbcc.py").exists():
                return Path(parent, "bcc")
    return None


@cache
def bcc() -> Any:
    """Returns the module bcc. Raises FeatureMissing if it is missing or cannot be loaded."""
    path = folder()
    if path is None:
        raise FeatureMissing("bcc is not installed", _MEND)
    spec = importlib.util.spec_from_file_location(
        "bcc", path / "__init__.py", submodule_search_locations=[str(path)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bcc"] = module
    try:
        spec.loader.exec_module(module)
    except (OSError, ImportError, SyntaxError, AttributeError) as error:
        sys.modules.pop("bcc", None)
        raise FeatureMissing(f"bcc in {path} cannot be loaded: {error}", _MEND) from None
    return module
