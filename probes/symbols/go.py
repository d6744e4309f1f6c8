"""The functions in the pclntab of a Go program, stripped or not.

The Go runtime needs the names and addresses of all functions for its stack traces, so `strip` does
not remove them. Go: src/runtime/symtab.go (pcHeader, moduledata, functab),
src/debug/gosym/pclntab.go.

| Go | magic | a function's entry is |
| --- | --- | --- |
| 1.2 | fffffffb | an address; names by offset into the whole table |
| 1.16 | fffffffa | an address; from this version on names have their own table |
| 1.18 | fffffff0 | an offset from the start of the text, which is in the header |
| 1.20 | fffffff1 | an offset as in 1.18; from 1.26 on only moduledata has the start of the text |

In a program with linked C code the start of the text is not the start of the section `.text`, so
that address is never used in its place. If the start of the text is not found, there are no names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracer.probes.symbols.elf_file import ElfImage, Section
from tracer.probes.symbols.table import SymbolColumns

_GO_1_2, _GO_1_16, _GO_1_18, _GO_1_20 = 0xFFFFFFFB, 0xFFFFFFFA, 0xFFFFFFF0, 0xFFFFFFF1
_MAGICS = (_GO_1_20, _GO_1_18, _GO_1_16, _GO_1_2)

_SIGNS = (".go.buildinfo", ".note.go.buildid", ".go.module")
_TABLE_SECTION = "gopclntab"
_SEARCHED = (".data.rel.ro", ".rodata")
"""Sections in which the linker puts the table of a position-independent or an externally linked
program."""
_MODULE_SECTIONS = (".go.module", ".noptrdata", ".data", ".data.rel.ro")

_MAX_SEARCHED_BYTES = 1 << 29
_MAX_CANDIDATES = 64
_MAX_FUNCTIONS = 1 << 21
_MAX_NAMES_BYTES = 1 << 28
_CHUNK = 1 << 24

_RANK = 1 << 20
"""Rank above the symbol tables, where the linker shortens and decorates some functions' names."""

# Words of moduledata, unchanged since Go 1.16: pcHeader, six slices of three words, and these.
_MODULE_WORDS = 24
_MODULE_MINPC, _MODULE_MAXPC, _MODULE_TEXT, _MODULE_ETEXT = 20, 21, 22, 23


@dataclass(frozen=True)
class _Header:
    """The places of the table's parts; offsets in bytes from its start."""

    magic: int
    section: Section
    start: int
    address: int
    functions: int
    text: int
    names: int
    names_size: int
    functab: int

    @property
    def relative(self) -> bool:
        return self.magic in (_GO_1_18, _GO_1_20)


def go_functions(elf: ElfImage) -> list[SymbolColumns]:
    """Returns the functions of a Go program; an empty list for other files."""
    if not any(s.name in _SIGNS or s.name.endswith(_TABLE_SECTION) for s in elf.sections):
        return []
    for header in _headers(elf):
        columns = _functions(elf, header)
        if columns is not None:
            return [columns]
    elf.problem("the functions of this Go program were not found")
    return []


def _headers(elf: ElfImage) -> Iterator[_Header]:
    """Yields possible heads of a table, the likeliest first."""
    sections = [s for s in elf.sections if s.name.endswith(_TABLE_SECTION)]
    sections += [s for s in elf.sections if s.name in _SEARCHED]
    candidates = 0
    for section in sections:
        for start in _magics_in(elf, section):
            header = _header_at(elf, section, start)
            if header is not None:
                yield header
            candidates += 1
            if candidates >= _MAX_CANDIDATES:
                return


def _magics_in(elf: ElfImage, section: Section) -> Iterator[int]:
    """Yields the offsets in a section whose eight bytes look like the start of a table."""
    pointer = elf.bits // 8
    end = min(section.size, _MAX_SEARCHED_BYTES, elf.status.st_size)
    for chunk in range(0, end, _CHUNK):
        words = np.frombuffer(elf.read(section, chunk, min(_CHUNK, end - chunk)), np.uint8)
        words = words[: len(words) // 8 * 8].reshape(-1, 8)
        first = words[:, :4].copy().view(f"{elf.order}u4")[:, 0]
        good = np.isin(first, np.array(_MAGICS, dtype=np.uint32))
        good &= (words[:, 4] == 0) & (words[:, 5] == 0) & (words[:, 7] == pointer)
        good &= np.isin(words[:, 6], (1, 2, 4))
        for index in np.flatnonzero(good).tolist():
            yield chunk + 8 * index


def _header_at(elf: ElfImage, section: Section, start: int) -> _Header | None:
    address = section.address + start
    pointer = elf.bits // 8
    raw = elf.read(section, start, 4)
    magic = int.from_bytes(raw, "little" if elf.little_endian else "big")
    words = [int(word) for word in elf.words_at(address + 8, 8)]
    if len(words) < 8:
        return None
    functions, text, names, names_size, functab = words[0], 0, 0, section.size - start, 0
    if magic == _GO_1_2:
        functab = 8 + pointer
    elif magic == _GO_1_16:
        names, functab = words[2], words[6]
        names_size = words[3] - names
    else:
        text, names, functab = words[2], words[3], words[7]
        names_size = words[4] - names
    entry = 4 if magic in (_GO_1_18, _GO_1_20) else pointer
    room = section.size - start
    fits = 0 < functions <= _MAX_FUNCTIONS and functab + (2 * functions + 1) * entry <= room
    if not fits or not 0 < names_size <= _MAX_NAMES_BYTES or names + names_size > room:
        return None
    return _Header(magic, section, start, address, functions, text, names, names_size, functab)


def _functions(elf: ElfImage, header: _Header) -> SymbolColumns | None:
    """Returns the table's functions; None if it is not a table after all."""
    pointer = elf.bits // 8
    if header.relative:
        size = (2 * header.functions + 1) * 4
        data = elf.read(header.section, header.start + header.functab, size)
        if len(data) < size:
            return None
        functab = np.frombuffer(data, f"{elf.order}u4").astype(np.uint64)
    else:
        functab = elf.words_at(header.address + header.functab, 2 * header.functions + 1)
        if len(functab) < 2 * header.functions + 1:
            return None
    entries = functab[0::2]
    if (entries[1:] < entries[:-1]).any():
        return None
    if header.relative:
        text = _text_start(elf, header, int(entries[0]))
        if text is None:
            return None
        entries = entries + np.uint64(text)
    if elf.section_at(int(entries[0])) is None:
        return None
    # A function's record begins with its entry; the next 32 bits are the offset of its name. Since
    # 1.16, offsets of records count from the functions' table, before that from the header.
    records = functab[1::2] + np.uint64(4 if header.relative else pointer)
    if header.magic != _GO_1_2:
        records += np.uint64(header.functab)
    names, known = _gather(elf, header, records)
    blob = elf.read(header.section, header.start + header.names, header.names_size)
    known &= (names >= 0) & (names < len(blob))
    letters = np.frombuffer(blob, dtype=np.uint8)
    known[known] = letters[names[known]] != 0
    return SymbolColumns(
        entries[:-1],
        entries[1:],
        np.ones(header.functions, dtype=np.bool_),
        np.full(header.functions, _RANK, dtype=np.int64),
        names,
        blob,
    ).where(known)


def _gather(
    elf: ElfImage, header: _Header, offsets: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the 32-bit numbers at offsets from the start of the table, and whether each exists.

    The records of all functions of a large program are far apart, so they are read in pieces.
    """
    values = np.zeros(len(offsets), dtype=np.int64)
    known = np.zeros(len(offsets), dtype=np.bool_)
    room = header.section.size - header.start
    which = np.flatnonzero(offsets <= np.uint64(max(room - 4, 0)))
    which = which[np.argsort(offsets[which], kind="stable")]
    where = offsets[which].astype(np.int64)
    at = 0
    while at < len(where):
        base = int(where[at])
        data = np.frombuffer(elf.read(header.section, header.start + base, _CHUNK), np.uint8)
        stop = int(np.searchsorted(where, base + len(data) - 4, side="right"))
        if stop <= at:
            break  # the file ends before its section
        spots = where[at:stop] - base
        raw = data[spots[:, None] + np.arange(4)].copy().view(f"{elf.order}i4")[:, 0]
        values[which[at:stop]] = raw
        known[which[at:stop]] = True
        at = stop
    return values, known


def _text_start(elf: ElfImage, header: _Header, first_entry: int) -> int | None:
    """Returns the address that entries count from: from the header, else from moduledata."""
    if header.text:
        return header.text
    for address in _pointers_to(elf, header.address):
        words = [int(word) for word in elf.words_at(address, _MODULE_WORDS)]
        if len(words) < _MODULE_WORDS or words[1] != header.address + header.names:
            continue
        low, high = words[_MODULE_MINPC], words[_MODULE_MAXPC]
        text, end = words[_MODULE_TEXT], words[_MODULE_ETEXT]
        if 0 < text <= low < high <= end and low == text + first_entry:
            return text
    return None


def _pointers_to(elf: ElfImage, address: int) -> Iterator[int]:
    """Yields the addresses of words that point to `address`, in the file or by relocation."""
    found = 0
    for section in (s for s in elf.sections if s.name in _MODULE_SECTIONS):
        size = min(section.size, _MAX_SEARCHED_BYTES, elf.status.st_size)
        for chunk in range(0, size, _CHUNK):
            data = elf.read(section, chunk, min(_CHUNK, size - chunk))
            words = np.frombuffer(
                data[: len(data) // elf.word.itemsize * elf.word.itemsize], elf.word
            )
            for index in np.flatnonzero(words == address).tolist():
                yield section.address + chunk + index * elf.word.itemsize
                found += 1
                if found >= _MAX_CANDIDATES:
                    return
    places, values = elf.relative_words
    yield from places[values == np.uint64(address)][:_MAX_CANDIDATES].tolist()
