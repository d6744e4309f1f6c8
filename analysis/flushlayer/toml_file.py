"""Files that users write: TOML, of a size that can be."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from probes.errors import UsageError

_MAX_BYTES = 1 << 20


def read_toml(path: Path, kind: str, see: str) -> dict[str, Any]:
    """What a file says; UsageError, naming it, where it cannot be read, is too long or no TOML.

    `kind`: what it should be, "a sweep"; `see`: where its form is told.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", f"name {kind}") from None
    if len(content) > _MAX_BYTES:
        raise UsageError(f"{path} is longer than {_MAX_BYTES} bytes", f"it is not {kind}")
    try:
        return tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}", f"see {see}") from None
