"""Encoders of protocol-buffer fields, of the few kinds that we write.

Source: protobuf's "Encoding" page. Compiled loops encode events (`perfetto_events.py`); these
functions encode parts that are written once.
"""

from __future__ import annotations

_VARINT, _LENGTH = 0, 2


def varint(value: int) -> bytes:
    """Returns a number as a varint; a negative one as its 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """Returns an integer, enum or bool field."""
    return varint(field << 3 | _VARINT) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    """Returns a message field with these fields."""
    body = b"".join(parts)
    return varint(field << 3 | _LENGTH) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """Returns a string field; a lone surrogate becomes a question mark."""
    return message(field, value.encode("utf-8", "replace"))
