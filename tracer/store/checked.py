"""JSON that is checked, key by key, against classes that say what it may hold.

Who wrote it may mean harm: what is too much is refused before it costs much. Bounded are bytes,
depth, and parts: once a part is an object, it costs more than its bytes.
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
"""A list of which the first wrong item is told: a report of each would take a kilobyte."""

STRICT = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
"""No number for a text, no text for a number; keys that nobody knows are left out."""

MOST_PARTS = 500_000
"""The most parts of a JSON text: items of lists and objects. Our manifests have some thousands."""
_LONGEST_LINE = 16 << 20
_NO_TEXT = re.compile(r"[\ud800-\udfff]")


def encoded(value: Any, indent: int | None = None) -> bytes:
    """A value as JSON. A byte that is no UTF-8, in a text of `os.fsdecode`, becomes \\xNN."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # A backslash of its own is two in JSON.
    return _NO_TEXT.sub(lambda odd: f"\\\\x{ord(odd[0]) & 0xFF:02x}", text).encode()


@cache
def checker(kind: Any) -> TypeAdapter[Any]:
    """What checks JSON against one of these classes; ValueError where it does not fit."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def parsed(kind: Any, data: bytes, most: int = MOST_PARTS) -> Any:
    """JSON as a value of this kind. ValueError where it is of another, or of more parts."""
    if sum(map(data.count, (b",", b"[", b"{"))) > most:
        raise ValueError(f"it has more than {most} parts")
    return checker(kind).validate_json(data)


def read_json(path: Path, kind: Any, limit: int, most: int = MOST_PARTS) -> Any:
    """The JSON in a regular file of so many bytes, as `parsed`. OSError, ValueError."""
    return parsed(kind, read_bounded(path, limit), most)


def json_lines(path: Path, kind: Any) -> Iterator[Any]:
    """The values in a regular file, one a line; nothing where there is no file.

    A last line without its end is passed over: who wrote it was killed. OSError, ValueError.
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
    """The first thing that is wrong: where, and what."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return getattr(error, "strerror", None) or str(error)
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part)[:80] for part in first["loc"][:6])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
