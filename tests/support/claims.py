"""Tables whose footer claims another number of rows than there are."""

from __future__ import annotations

from pathlib import Path


def claims_of(path: Path, rows: int) -> int:
    """Returns how often the footer of a table of so many rows names that number."""
    return _footer(path).count(_count(rows))


def claim(path: Path, rows: int, claimed: int, places: slice = slice(None)) -> None:
    """Writes another number of rows into a footer, at some of the places that name the number.

    The first place is the file's own, the others are those of row groups and of their columns.
    """
    footer = _footer(path)
    data = path.read_bytes()[: -len(footer) - 8]
    first, *parts = footer.split(_count(rows))
    told = [_count(rows)] * len(parts)
    told[places] = [_count(claimed)] * len(told[places])
    footer = first + b"".join(number + part for number, part in zip(told, parts, strict=True))
    path.write_bytes(data + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def varint(number: int) -> bytes:
    """Returns a number as Thrift's compact protocol and Parquet write it."""
    parts = []
    while number >= 128:
        parts.append(number % 128 + 128)
        number //= 128
    return bytes([*parts, number])


def _footer(path: Path) -> bytes:
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def _count(rows: int) -> bytes:
    """Returns the field of a footer with this number: the next one of its structure, an i64."""
    return b"\x16" + varint(2 * rows)
