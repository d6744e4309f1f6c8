"""An ELF file's symbol tables, `.symtab` and `.dynsym`, as columns.

pyelftools reads one symbol at a time. A large library has half a million, so numpy reads them here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.symbols.budget import MAX_STRING_BYTES, MAX_SYMBOLS, Reason
from tracer.probes.symbols.elf_file import ElfImage, Section
from tracer.probes.symbols.table import SymbolColumns, join_columns

_CHUNK_SYMBOLS = 1 << 17

_STT_NOTYPE, _STT_FUNC, _STT_GNU_IFUNC = 0, 2, 10
_STB_GLOBAL, _STB_WEAK, _STB_GNU_UNIQUE = 1, 2, 10
_SHN_UNDEF, _SHN_LORESERVE = 0, 0xFF00

_BINDING_RANKS = np.zeros(16, dtype=np.int64)
_BINDING_RANKS[[_STB_GLOBAL, _STB_WEAK, _STB_GNU_UNIQUE]] = 2, 1, 2

_LETTERS_SEEN = 16
_NAME_RANKS = 64
"""Exclusive limit of the results of `_name_ranks`."""


def symbol_columns(elf: ElfImage, kind: str) -> list[SymbolColumns]:
    """Returns the functions in the first section of `kind`, SHT_SYMTAB or SHT_DYNSYM."""
    section = next((s for s in elf.sections if s.kind == kind and s.size), None)
    if section is None:
        return []
    layout = symbol_layout(elf)
    count = section.size // layout.itemsize
    if section.entry_size != layout.itemsize or count > MAX_SYMBOLS:
        what = f"{count} symbols of {section.entry_size} bytes in {section.name!r}: left out"
        elf.problem(what, Reason.TABLE if count > MAX_SYMBOLS else None)
        return []
    blob = symbol_strings(elf, section)
    if not blob:
        return []
    bounds = _SectionBounds(elf)
    parts = []
    step = _CHUNK_SYMBOLS * layout.itemsize
    for start in range(0, min(section.size, elf.status.st_size), step):
        data = elf.read(section, start, step)
        rows = np.frombuffer(data[: len(data) // layout.itemsize * layout.itemsize], layout)
        parts.append(_functions(elf, rows, bounds, blob))
        if len(data) < step:
            break
    return [join_columns(parts, blob)] if parts else []


def symbol_layout(elf: ElfImage) -> np.dtype[Any]:
    """Returns the layout of Elf32_Sym or Elf64_Sym (gABI, chapter 4)."""
    order = elf.order
    half, word, large = f"{order}u2", f"{order}u4", f"{order}u8"
    kind = [("info", "u1"), ("other", "u1"), ("shndx", half)]
    if elf.bits == 64:
        return np.dtype([("name", word), *kind, ("value", large), ("size", large)])
    return np.dtype([("name", word), ("value", word), ("size", word), *kind])


def symbol_strings(elf: ElfImage, symbols: Section) -> bytes:
    """Returns the names of a symbol table without versions (`memcpy@@GLIBC_2.14`); reads once."""
    if symbols.link in elf.strings:
        return elf.strings[symbols.link]
    if symbols.link >= len(elf.sections) or elf.sections[symbols.link].kind != "SHT_STRTAB":
        elf.problem(f"{symbols.name!r} has no names")
        return b""
    data = elf.contents(elf.sections[symbols.link], MAX_STRING_BYTES) or b""
    names = data.replace(b"@", b"\0") if b"@" in data else data
    elf.strings[symbols.link] = names
    return names


class _SectionBounds:
    """Start and end of each executable section by index; other sections are empty."""

    def __init__(self, elf: ElfImage) -> None:
        self.starts = np.zeros(len(elf.sections), dtype=np.uint64)
        self.ends = np.zeros(len(elf.sections), dtype=np.uint64)
        for section in elf.sections:
            if section.executable and section.allocated:
                self.starts[section.index] = section.address
                self.ends[section.index] = min(section.address + section.size, (1 << 64) - 1)


def _functions(
    elf: ElfImage, rows: NDArray[Any], bounds: _SectionBounds, blob: bytes
) -> SymbolColumns:
    """Returns the symbols that name code, within the bounds of their sections."""
    kind = rows["info"] & 15
    is_function = (kind == _STT_FUNC) | (kind == _STT_GNU_IFUNC)
    section = rows["shndx"].astype(np.int64)
    keep = is_function | (kind == _STT_NOTYPE)
    keep &= (section != _SHN_UNDEF) & (section < min(_SHN_LORESERVE, len(bounds.starts)))
    keep &= rows["name"] < len(blob)
    rows, section, is_function = rows[keep], section[keep], is_function[keep]

    starts = rows["value"].astype(np.uint64)
    if elf.machine == "EM_ARM":
        starts &= ~is_function.astype(np.uint64)  # the lowest bit marks Thumb code
    limits = bounds.ends[section]
    sizes = rows["size"].astype(np.uint64)
    room = limits - np.minimum(starts, limits)
    ends = starts + np.where(sizes > 0, np.minimum(sizes, room), room)
    # A symbol that is not marked as a function gets only the space that functions leave.
    sized = (sizes > 0) & is_function

    names = rows["name"].astype(np.int64)
    letters = np.frombuffer(blob, dtype=np.uint8)
    first, second = letters[names], letters[np.minimum(names + 1, len(blob) - 1)]
    # Arm, AArch64 and RISC-V mark code and data by `$x`, `$d`; assemblers leave `.L` labels.
    mark = (first == ord("$")) | ((first == ord(".")) & (second == ord("L")))
    here = (starts >= bounds.starts[section]) & (ends > starts)
    here &= (first != 0) & (is_function | ~mark)
    columns = SymbolColumns(starts, ends, sized, is_function * 4, names, blob).where(here)
    binding = _BINDING_RANKS[rows["info"][here] >> 4]
    ranks = (columns.ranks + binding) * _NAME_RANKS + _name_ranks(letters, columns.names)
    return replace(columns, ranks=ranks)


def _name_ranks(letters: NDArray[np.uint8], names: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns ranks of names; common names rank higher: `read` before `__read`, `fopen` before
    `fopen64`.

    Names with fewer leading underscores rank higher, then names with fewer letters. Only the first
    `_LETTERS_SEEN` letters are counted.
    """
    where = np.minimum(names[:, None] + np.arange(_LETTERS_SEEN), len(letters) - 1)
    seen = letters[where]
    ended = seen == 0
    length = np.where(ended.any(axis=1), ended.argmax(axis=1), _LETTERS_SEEN)
    underscores = (seen[:, 0] == ord("_")).astype(np.int64)
    underscores += underscores & (seen[:, 1] == ord("_"))
    ranks: NDArray[np.int64] = (2 - underscores) * (_LETTERS_SEEN + 1) + _LETTERS_SEEN - length
    return ranks
