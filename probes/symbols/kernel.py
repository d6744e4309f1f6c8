"""The running kernel's functions, by `/proc/kallsyms`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from probes.symbols.reading import PathOrFd, UnreadableSymbols, open_regular, read_whole, shown
from probes.symbols.table import SymbolColumns, SymbolTable, build_table

KALLSYMS = Path("/proc/kallsyms")

_MAX_BYTES = 1 << 26
_MAX_LINES = 1 << 20
_LAST_SYMBOL_BYTES = 4096
"""The last symbol has no next one to end it; perf gives it a page, too."""

_CODE = b"tTwWuU"
_MARKS = (b"_text", b"_stext", b"_etext", b"_sinittext", b"_einittext")


@dataclass(frozen=True)
class KernelSymbols:
    """table        functions by address; those of a module are called `name [module]`
    text_start   address of `_text`, or None
    text_end     address of `_etext`, the first one after the kernel's own code, or None
    """

    table: SymbolTable
    text_start: int | None
    text_end: int | None


def kernel_symbols(path: PathOrFd = KALLSYMS) -> KernelSymbols | None:
    """The kernel's functions; None where the kernel does not tell this user (all addresses 0).

    `path` may be a copy of the file from another machine. Raises UnreadableSymbols where it is
    not there or no such file.
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
    starts: list[int] = []
    code: list[bool] = []
    ranks: list[int] = []
    names: list[int] = []
    marks: dict[bytes, int] = {}
    at = 0
    for line in data.split(b"\n"):
        address, kind, name, start = _parse(line)
        if name:
            if address and name in _MARKS:
                marks.setdefault(name, address)
            starts.append(address)
            code.append(kind in _CODE and name not in _MARKS)
            ranks.append(_rank(kind, name))
            names.append(at + start)
        at += len(line) + 1
    if not any(starts):
        return None
    table = _table(data, starts, code, ranks, names)
    return KernelSymbols(table, marks.get(b"_text"), marks.get(b"_etext"))


def kallsyms() -> bytes:
    """The kernel's own list, to be kept; empty where it shows this user no addresses."""
    text = KALLSYMS.read_bytes()
    return text if any(line[:16].strip(b"0") for line in text[:4096].splitlines()) else b""


def _parse(line: bytes) -> tuple[int, bytes, bytes, int]:
    """Address, type letter, name with module, and where in the line the name starts."""
    fields = line.split(b" ", 2)
    if len(fields) < 3 or not 0 < len(fields[0]) <= 16 or len(fields[1]) != 1:
        return 0, b"", b"", 0
    if fields[0].strip(b"0123456789abcdefABCDEF"):
        return 0, b"", b"", 0
    return int(fields[0], 16), fields[1], fields[2], len(line) - len(fields[2])


def _rank(kind: bytes, name: bytes) -> int:
    """Of several names of one function: global ones, and of these those for everyday use."""
    return 4 * kind.isupper() + 2 - min(len(name) - len(name.lstrip(b"_")), 2)


def _table(
    data: bytes, starts: list[int], code: list[bool], ranks: list[int], names: list[int]
) -> SymbolTable:
    """Functions end where anything else begins, data included."""
    address = np.array(starts, dtype=np.uint64)
    boundaries = np.unique(address)
    following = np.searchsorted(boundaries, address, side="right")
    last = following >= len(boundaries)
    ends = boundaries[np.minimum(following, len(boundaries) - 1)]
    ends[last] = np.minimum(address[last], np.uint64((1 << 64) - 1 - _LAST_SYMBOL_BYTES))
    ends[last] += np.uint64(_LAST_SYMBOL_BYTES)
    # "name\t[module]" to "name [module]"
    blob = data.replace(b"\t", b" ").replace(b"\n", b"\0")
    keep = np.array(code, dtype=np.bool_) & (address > 0)
    columns = SymbolColumns(
        address,
        ends,
        np.ones(len(address), dtype=np.bool_),
        np.array(ranks, dtype=np.int64),
        np.array(names, dtype=np.int64),
        blob,
    )
    return build_table([columns.where(keep)])
