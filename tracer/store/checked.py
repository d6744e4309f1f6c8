"""JSON that is checked, key by key, against classes that say what it may hold."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Inode = Annotated[int, Field(ge=0, lt=1 << 64)]
Pid = Annotated[int, Field(ge=0, lt=1 << 31)]

STRICT = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
"""No number for a text, no text for a number; keys that nobody knows are left out."""


def encoded(value: Any, indent: int | None = None) -> bytes:
    """A value as JSON. Bytes of names that are no UTF-8 become question marks."""
    return json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "replace")


@cache
def checker(kind: Any) -> TypeAdapter[Any]:
    """What checks JSON against one of these classes; ValueError where it does not fit."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def what_is_wrong(error: Exception) -> str:
    """The first thing that is wrong: where, and what."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    first = errors()[0]
    place = ".".join(str(part)[:80] for part in first["loc"][:6])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
