"""Random changes of bytes, of numbers in text, and of lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

NUMBERS = (
    *range(-2, 10), 16, 24, 48, 63, 64, 127, 128, 255, 256, 511, 512, 4095, 4096,
    *(edge + off for bits in (15, 16, 20, 22, 24, 26, 30, 31, 32, 40, 48, 52, 59, 62, 63, 64)
      for edge in (1 << bits, -(1 << bits)) for off in (-1, 0, 1)),
)  # fmt: skip
"""Boundary values: sizes of types, and limits of this program and of the kernel."""

_AS_BYTES = {
    size: [(value & (1 << 8 * size) - 1).to_bytes(size, "little") for value in NUMBERS]
    for size in (1, 2, 4, 8)
}
_MOST_BYTES = 1 << 18
_DIGITS = re.compile(rb"-?\d+")
_ODD = (
    b"", b"-", b"0x", b"nan", b"1e9", b"9" * 30, b"9" * 5000, b"\0", b"\xff", b"\xc3\x28",
    b"\x1b[2J", b'"', b"'", b"%s", b"../", b"\r", b"\xe2\x80\xae", b"[", b"{", b"(" * 100,
    b"[" * 5000, b'{"a":' * 5000,
    b" " * 1000,
)  # fmt: skip


def mutated(chance: Random, data: bytes) -> bytes:
    """Returns the bytes of a binary file with a few changes."""
    return _changed(chance, data, _BINARY)


def mutated_text(chance: Random, data: bytes) -> bytes:
    """Returns text with a few changes of numbers, words or whole lines."""
    return _changed(chance, data, _TEXT)


def number(chance: Random, size: int) -> bytes:
    """Returns a number of `size` bytes, little-endian, often a boundary value."""
    if chance.random() < 0.2:
        return chance.randbytes(size)
    return chance.choice(_AS_BYTES[size])


_Change = Callable[[Random, bytearray, int], None]


def _changed(chance: Random, data: bytes, changes: tuple[_Change, ...]) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3, 5, 8))):
        if not out:
            break
        chance.choice(changes)(chance, out, chance.randrange(len(out)))
        del out[_MOST_BYTES:]
    return bytes(out)


def _flip(chance: Random, data: bytearray, at: int) -> None:
    data[at] ^= 1 << chance.randrange(8)


def _set(chance: Random, data: bytearray, at: int) -> None:
    data[at] = chance.randrange(256)


def _overwrite(chance: Random, data: bytearray, at: int) -> None:
    size = chance.choice((1, 2, 4, 8))
    aligned = at // size * size if chance.random() < 0.7 else at
    data[aligned : aligned + size] = number(chance, size)


def _add(chance: Random, data: bytearray, at: int) -> None:
    size = chance.choice((1, 2, 4, 8))
    value = int.from_bytes(data[at : at + size], "little") + chance.randrange(-9, 10)
    data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _cut_off(chance: Random, data: bytearray, at: int) -> None:
    del data[at:]


def _remove(chance: Random, data: bytearray, at: int) -> None:
    del data[at : at + chance.choice((1, 2, 4, 8, 64, 4096))]


def _repeat(chance: Random, data: bytearray, at: int) -> None:
    part = bytes(data[at : at + chance.choice((1, 4, 8, 24, 64, 512, 4096))])
    times = min(chance.choice((1, 1, 2, 10, 1000)), _MOST_BYTES // max(1, len(part)))
    data[at:at] = part * times


def _move(chance: Random, data: bytearray, at: int) -> None:
    size = chance.choice((1, 4, 8, 64, 512, 4096))
    part = bytes(data[at : at + size])
    to = chance.randrange(len(data))
    if chance.random() < 0.5:
        data[to : to + len(part)] = part
    else:
        data[to:to] = part


def _of_another_number(chance: Random, data: bytearray, at: int) -> None:
    match = _DIGITS.search(data, at) or _DIGITS.search(data)
    if match:
        text = (
            str(chance.choice(NUMBERS)) if chance.random() < 0.8 else chance.choice(("1.5", "07"))
        )
        data[match.start() : match.end()] = text.encode()


def _odd(chance: Random, data: bytearray, at: int) -> None:
    data[at : at + chance.choice((0, 1, 5))] = chance.choice(_ODD)


def _line(data: bytearray, at: int) -> tuple[int, int]:
    begin = data.rfind(b"\n", 0, at) + 1
    end = data.find(b"\n", at)
    return begin, len(data) if end < 0 else end + 1


def _line_elsewhere(chance: Random, data: bytearray, at: int) -> None:
    begin, end = _line(data, at)
    line = bytes(data[begin:end])
    if chance.random() < 0.5:
        del data[begin:end]
    if data:
        to, _ = _line(data, chance.randrange(len(data)))
        data[to:to] = line * chance.choice((1, 1, 3, 500))


def _of_another_line(chance: Random, data: bytearray, at: int) -> None:
    """Joins the beginning of one line with the end of another."""
    begin, end = _line(data, at)
    other, stop = _line(data, chance.randrange(len(data)))
    cut = chance.randrange(begin, end) if end > begin else begin
    from_there = chance.randrange(other, stop) if stop > other else other
    data[cut:end] = data[from_there:stop]


_BINARY: tuple[_Change, ...] = (
    _flip, _set, _overwrite, _overwrite, _add, _cut_off, _remove, _repeat, _move,
)  # fmt: skip
_TEXT: tuple[_Change, ...] = (
    _flip, _cut_off, _remove, _repeat, _move, _of_another_number, _of_another_number, _odd,
    _line_elsewhere, _of_another_line,
)  # fmt: skip
