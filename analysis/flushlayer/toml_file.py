"""Files that users write: TOML, of a size that can be."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from probes.errors import UsageError
from tracer.store.files import read_bounded

_MAX_BYTES = 1 << 20


def read_toml(path: Path, kind: str, see: str) -> dict[str, Any]:
    """What a file says; UsageError, naming it, where it cannot be read, is too long or no TOML.

    `kind`: what it should be, "a sweep"; `see`: where its form is told.
    """
    try:
        content = read_bounded(path, _MAX_BYTES, follow=True)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", f"name {kind}") from None
    except ValueError as error:
        raise UsageError(f"{path} cannot be {kind}: {error}", f"name {kind}") from None
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, a number of 5,000 digits
        raise UsageError(f"{path} is not TOML: {error}", f"see {see}") from None
