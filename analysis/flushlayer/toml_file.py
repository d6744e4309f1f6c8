"""The reader of files that users write: TOML of limited size."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tracer.probes.errors import UsageError
from tracer.store.files import read_bounded

_MAX_BYTES = 1 << 20


def read_toml(path: Path, kind: str, see: str) -> dict[str, Any]:
    """Returns the content of a TOML file.

    `kind`: the kind of file for error messages, e.g. "a file of a sweep"; `see`: the place that
    describes its form. Raises UsageError, with the path, if the file cannot be read, is too long
    or is not TOML.
    """
    try:
        content = read_bounded(path, _MAX_BYTES, follow=True)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", f"name {kind}") from None
    except ValueError as error:
        raise UsageError(f"{path} cannot be {kind}: {error}", f"name {kind}") from None
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a number of 5,000 digits
        raise UsageError(f"{path} is not TOML: {error}", f"see {see}") from None
