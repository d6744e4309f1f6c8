"""bcc: a system package that virtual environments do not see. PyPI's `bcc` is another thing."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

from probes.errors import FeatureMissing

_SYSTEM = "/usr/lib/python3/dist-packages"
_MEND = "apt-get install python3-bpfcc"


def folder() -> Path | None:
    """Where bcc's Python package lies, or None. libbcc.py tells it from PyPI's."""
    for parent in (*sys.path, _SYSTEM):
        with contextlib.suppress(OSError):  # this user may not look there
            if Path(parent, "bcc", "libbcc.py").exists():
                return Path(parent, "bcc")
    return None


@cache
def bcc() -> Any:
    """The module. FeatureMissing where there is none, or where its library does not load."""
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
        raise FeatureMissing(f"bcc in {path} does not load: {error}", _MEND) from None
    return module
