"""JSON that is checked, key by key, against classes that define its contents.

The author may be hostile, so expensive input is refused early. Bytes, depth and parts are limited.
Parts are limited because a parsed part takes more memory than its bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import ConfigDict, Field

from tracer.store.files import open_regular, read_bounded

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Item = TypeVar("Item")
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Whole = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
Inode = Annotated[int, Field(ge=0, lt=1 << 64)]
Pid = Annotated[int, Field(ge=0, lt=1 << 31)]
Listed = Annotated[list[Item], Field(fail_fast=True)]
"""A list of which only the first wrong item is reported: each report would take a kilobyte."""

STRICT = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
"""Numbers and texts are not converted into each other; unknown keys are ignored."""

MOST_PARTS = 500_000
"""Most parts of a JSON text: items of lists and objects. Our manifests have some thousands."""
_LONGEST_LINE = 16 << 20
_SEPARATORS = (b",", b"[", b"{")
_AT_ONCE = 1 << 20
"""Bytes of JSON whose texts are set apart at once."""
_NO_TEXT = re.compile(r"[\ud800-\udfff]")


def encoded(value: Any, indent: int | None = None) -> bytes:
    """Returns a value as JSON. A non-UTF-8 byte in a text of `os.fsdecode` becomes \\xNN."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # A single backslash is written as two in JSON.
    return _NO_TEXT.sub(lambda odd: f"\\\\x{ord(odd[0]) & 0xFF:02x}", text).encode()


@cache
def checker(kind: Any) -> TypeAdapter[Any]:
    """Returns the checker of JSON against a class; it raises ValueError on a mismatch."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def parts(data: bytes) -> int:
    """Returns the number of parts of a JSON text. Commas and brackets in names are no parts."""
    bare = data.replace(rb"\\", b"").replace(rb"\"", b"")
    found = inside = 0
    for at in range(0, len(bare), _AT_ONCE):
        pieces = bare[at : at + _AT_ONCE].split(b'"')
        found += _separators(b"".join(pieces[inside::2]))
        inside = (inside + len(pieces) - 1) % 2
    return found


def has_more_parts(data: bytes, most: int = MOST_PARTS) -> bool:
    """Returns whether a JSON text has more than `most` parts."""
    return _separators(data) > most and parts(data) > most


def _separators(data: bytes) -> int:
    return sum(map(data.count, _SEPARATORS))


def parsed(kind: Any, data: bytes, most: int = MOST_PARTS) -> Any:
    """Returns JSON as a value of `kind`. ValueError if it does not fit or has too many parts."""
    if has_more_parts(data, most):
        raise ValueError(f"it has more than {most} parts")
    return checker(kind).validate_json(data)


def read_json(path: Path, kind: Any, limit: int, most: int = MOST_PARTS) -> Any:
    """Reads and parses a regular file of at most `limit` bytes. Raises OSError and ValueError."""
    return parsed(kind, read_bounded(path, limit), most)


def json_lines(path: Path, kind: Any) -> Iterator[Any]:
    """Yields the values in a regular file, one per line; nothing if the file does not exist.

    Skips an incomplete last line: its writer was killed. Raises OSError and ValueError.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        while line := file.readline(_LONGEST_LINE):
            if line.endswith(b"\n"):
                yield parsed(kind, line)
            elif len(line) == _LONGEST_LINE:
                raise ValueError("it has a line without an end")


def what_is_wrong(error: Exception) -> str:
    """Returns the first error of a check: its place and its message."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return getattr(error, "strerror", None) or str(error)
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part)[:80] for part in first["loc"][:6])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
