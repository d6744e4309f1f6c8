"""Protocol-buffer messages byte by byte: the few kinds of fields that we write.

Source: protobuf's "Encoding" page. Events go by compiled loops (`perfetto_events.py`); this is for
what is written once.
"""

from __future__ import annotations

_VARINT, _LENGTH = 0, 2


def varint(value: int) -> bytes:
    """A number as a varint; a negative one as its 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """An integer, enum or bool field."""
    return varint(field << 3 | _VARINT) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    """A message field of these fields."""
    body = b"".join(parts)
    return varint(field << 3 | _LENGTH) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A string field; what is no Unicode (a lone surrogate) becomes a question mark."""
    return message(field, value.encode("utf-8", "replace"))
