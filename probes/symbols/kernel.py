"""The running kernel's functions, from `/proc/kallsyms`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracer.probes.errors import FeatureMissing, PermissionMissing, TracerError
from tracer.probes.symbols.reading import (
    PathOrFd,
    UnreadableSymbols,
    open_regular,
    read_whole,
    shown,
)
from tracer.probes.symbols.table import SymbolColumns, SymbolTable, build_table

KALLSYMS = Path("/proc/kallsyms")
_KPTR_RESTRICT = Path("/proc/sys/kernel/kptr_restrict")
_HIDES_FROM_ALL = "2"
_HEAD_BYTES = 4096

_MAX_BYTES = 1 << 26
_MAX_LINES = 1 << 20
_LAST_SYMBOL_BYTES = 4096
"""Size given to the last symbol, which no other symbol follows. perf also gives it a page."""

_CODE = np.frombuffer(b"tTwWuU", np.uint8)
# A tab precedes a module's name; here it becomes a blank, and a line feed becomes a NUL.
_READABLE = bytes.maketrans(b"\t\n", b" \0")
_MARKS = (b"_text", b"_stext", b"_etext", b"_sinittext", b"_einittext")

_SPACE, _LINE_FEED, _UNDERSCORE = b" \n_"
_MAX_DIGITS = 16
_NO_DIGIT = 255
_DIGITS = np.full(256, _NO_DIGIT, np.uint64)
for _letters in (b"0123456789abcdef", b"0123456789ABCDEF"):
    _DIGITS[np.frombuffer(_letters, np.uint8)] = np.arange(16)


@dataclass(frozen=True)
class KernelSymbols:
    """The kernel's functions, and the bounds of its own code.

    table        functions by address; functions of a module are named `name [module]`
    text_start   address of `_text`, or None
    text_end     address of `_etext`, the first address after the kernel's own code, or None
    """

    table: SymbolTable
    text_start: int | None
    text_end: int | None


def kernel_symbols(path: PathOrFd = KALLSYMS) -> KernelSymbols | None:
    """Returns the kernel's functions; None if it hides them from this user (all addresses 0).

    `path` may be a copy of the file from another machine. Raises UnreadableSymbols if the file
    does not exist, is not a regular file, or is too large.
    """
    fd, _ = open_regular(path)
    try:
        data = read_whole(fd, _MAX_BYTES)
    finally:
        os.close(fd)
    if data is None or data.count(b"\n") > _MAX_LINES:
        raise UnreadableSymbols(
            f"{shown(path)} has more than {_MAX_BYTES} bytes or {_MAX_LINES} lines"
        )
    lines = _lines(data)
    if not lines.address.any():
        return None
    marks = {mark: lines.called(mark) for mark in _MARKS}
    return KernelSymbols(
        _table(data, lines, marks.values()),
        _first_address(lines, marks[b"_text"]),
        _first_address(lines, marks[b"_etext"]),
    )


def kallsyms() -> bytes:
    """Returns the text of /proc/kallsyms; empty if this user cannot read addresses in it."""
    try:
        text = KALLSYMS.read_bytes()
    except OSError:
        return b""
    return text if _shows_addresses(text) else b""


def why_unnamed() -> TracerError | None:
    """Returns the error that keeps this user from the addresses of functions; None: they are told.

    Kernel: kallsyms_show_value (kernel/ksyms_common.c).
    """
    try:
        with KALLSYMS.open("rb") as file:
            told = _shows_addresses(file.read(_HEAD_BYTES))
    except FileNotFoundError:
        return FeatureMissing(f"there is no {KALLSYMS}", "use a kernel with CONFIG_KALLSYMS")
    except OSError as error:
        return FeatureMissing(
            f"{KALLSYMS} cannot be read: {error.strerror}",
            "leave the sandbox or container that forbids it",
        )
    if told:
        return None
    try:
        hidden_from_all = _KPTR_RESTRICT.read_text().strip() == _HIDES_FROM_ALL
    except OSError:
        hidden_from_all = False
    if hidden_from_all:
        return FeatureMissing(
            "the kernel hides the addresses of its functions from all users",
            "sysctl -w kernel.kptr_restrict=1",
        )
    return PermissionMissing(
        "the kernel hides the addresses of its functions from this user",
        "give it CAP_SYSLOG, which root has outside of containers, or "
        "`sysctl -w kernel.kptr_restrict=0 kernel.perf_event_paranoid=1`",
    )


def _shows_addresses(text: bytes) -> bool:
    return any(line[:16].strip(b"0") for line in text[:_HEAD_BYTES].splitlines())


@dataclass(frozen=True)
class _Lines:
    """The lines of the form `ADDRESS LETTER NAME`: one array per column, and the whole text.

    name, end  begin and end of a line's name in the text, module included
    """

    address: NDArray[np.uint64]
    kind: NDArray[np.uint8]
    name: NDArray[np.int64]
    end: NDArray[np.int64]
    text: NDArray[np.uint8]

    def called(self, name: bytes) -> NDArray[np.int64]:
        """Returns the indices of the lines with exactly this name."""
        alike = np.flatnonzero(self.end - self.name == len(name))
        letters = self.text[self.name[alike][:, None] + np.arange(len(name))]
        found: NDArray[np.int64] = alike[(letters == np.frombuffer(name, np.uint8)).all(axis=1)]
        return found


def _lines(data: bytes) -> _Lines:
    text = np.frombuffer(data or b"\n", np.uint8)
    end = np.append(np.flatnonzero(text == _LINE_FEED), len(text))
    start = np.append(0, end[:-1] + 1)
    digits = np.zeros(len(start), np.int64)
    for place in range(_MAX_DIGITS, 0, -1):
        there = start + place < end
        digits[there & (text[np.where(there, start + place, 0)] == _SPACE)] = place
    # A letter, a space and a name that is not empty must follow.
    space = start + digits
    good = (digits > 0) & (space + 3 < end)
    digits, space, end = digits[good], space[good], end[good]
    good = (text[space + 1] != _SPACE) & (text[space + 2] == _SPACE)
    address = np.zeros(len(space), np.uint64)
    for place in range(min(_MAX_DIGITS, digits.max(initial=0)), 0, -1):
        there = place <= digits
        digit = np.where(there, _DIGITS[text[np.maximum(space - place, 0)]], 0)
        good &= digit != _NO_DIGIT
        address = address << np.uint64(4) | digit
    space, end = space[good], end[good]
    return _Lines(address[good], text[space + 1], space + 3, end, text)


def _first_address(lines: _Lines, which: NDArray[np.int64]) -> int | None:
    """Returns the first address of these lines that is not 0, or None."""
    known = lines.address[which]
    known = known[known > 0]
    return int(known[0]) if len(known) else None


def _table(data: bytes, lines: _Lines, marks: Iterable[NDArray[np.int64]]) -> SymbolTable:
    """Makes the table. A function ends at the next symbol of any kind, data included."""
    address = lines.address
    boundaries = np.sort(address, kind="stable")
    following = np.searchsorted(boundaries, address, side="right")
    last = following >= len(boundaries)
    ends = boundaries[np.minimum(following, len(boundaries) - 1)]
    ends[last] = np.minimum(address[last], np.uint64((1 << 64) - 1 - _LAST_SYMBOL_BYTES))
    ends[last] += np.uint64(_LAST_SYMBOL_BYTES)
    # If a function has several names, global ones come first, then those with fewer underscores.
    upper = (ord("A") <= lines.kind) & (lines.kind <= ord("Z"))
    first = lines.text[lines.name] == _UNDERSCORE
    second = lines.text[np.minimum(lines.name + 1, lines.end - 1)] == _UNDERSCORE
    underscores = first.astype(np.int64) + (first & second & (lines.name + 1 < lines.end))
    keep = np.isin(lines.kind, _CODE) & (address > 0)
    for mark in marks:
        keep[mark] = False
    columns = SymbolColumns(
        address,
        ends,
        np.ones(len(address), dtype=np.bool_),
        4 * upper + 2 - underscores,
        lines.name,
        data.translate(_READABLE),
    )
    return build_table([columns.where(keep)])
