"""The stubs through which a file calls other files' functions: its procedure linkage table.

A stub on x86-64 jumps to the address in a word of the global offset table, and a relocation of that
word names the function. Other machines compute the address of the word in other ways; their stubs
get no names here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracer.probes.symbols.budget import MAX_SYMBOLS
from tracer.probes.symbols.elf_file import ElfImage
from tracer.probes.symbols.elf_symbols import symbol_layout, symbol_strings
from tracer.probes.symbols.table import SymbolColumns, SymbolTable

_SECTIONS = (".plt", ".plt.sec", ".plt.got")
_MAX_STUBS = 1 << 18
_MAX_CHOSEN = 1 << 10
"""Most stubs of functions that are chosen when the file is loaded: the C library has fifty."""
_AT_PLT = b"@plt"

_GLOB_DAT, _JUMP_SLOT, _IRELATIVE = 6, 7, 37
"""R_X86_64_... (psABI of x86-64, table 4.9)."""


def stub_columns(elf: ElfImage, table: SymbolTable) -> list[SymbolColumns]:
    """Returns the stubs, named `name@plt`.

    If the function of a stub is chosen when the file is loaded (IRELATIVE), the stub gets the name
    of the function that chooses, from `table`.
    """
    if elf.machine != "EM_X86_64" or elf.bits != 64:
        return []
    starts, sizes, words = _stubs(elf)
    if not len(starts):
        return []
    strings, names, choosers = _names_of_words(elf, table, words)
    found = SymbolColumns(
        starts,
        starts + sizes,
        np.ones(len(starts), dtype=np.bool_),
        np.zeros(len(starts), dtype=np.int64),
        names,
        strings,
        _AT_PLT,
    )
    columns = [found.where(names >= 0)]
    chosen = np.flatnonzero(choosers >= 0)
    if len(chosen):
        raw = [table.raw_name(which) for which in choosers[chosen[:_MAX_CHOSEN]].tolist()]
        lengths = np.array([len(name) + 1 for name in raw], dtype=np.int64)
        columns.append(
            replace(
                found.where(chosen[:_MAX_CHOSEN]),
                names=np.cumsum(lengths) - lengths,
                blob=b"".join(name + b"\0" for name in raw),
            )
        )
    return columns


def _stubs(
    elf: ElfImage,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Returns the address and size of each stub, and the address of the word that it reads."""
    starts, sizes, words = [], [], []
    for name in _SECTIONS:
        section = elf.section(name)
        if section is None or not section.executable:
            continue
        each = section.entry_size if section.entry_size in (8, 16) else 16
        data = elf.read(section, 0, _MAX_STUBS * each)
        code = np.frombuffer(data[: len(data) // each * each], dtype=np.uint8)
        if not len(code):
            continue
        # jmp *displacement(%rip): ff 25 and four bytes, relative to the byte after them
        jumps = np.flatnonzero((code[:-5] == 0xFF) & (code[1:-4] == 0x25))
        first = np.ones(len(jumps), dtype=np.bool_)
        first[1:] = jumps[1:] // each != jumps[:-1] // each
        jumps = jumps[first]
        displacement = code[jumps[:, None] + np.arange(2, 6)].copy().view("<i4")[:, 0]
        base = np.uint64(section.address)
        starts.append(base + (jumps // each * each).astype(np.uint64))
        sizes.append(np.full(len(jumps), each, dtype=np.uint64))
        words.append(base + (jumps + 6 + displacement).astype(np.int64).view(np.uint64))
    if not starts:
        nothing = np.empty(0, dtype=np.uint64)
        return nothing, nothing, nothing
    return np.concatenate(starts), np.concatenate(sizes), np.concatenate(words)


def _names_of_words(
    elf: ElfImage, table: SymbolTable, words: NDArray[np.uint64]
) -> tuple[bytes, NDArray[np.int64], NDArray[np.int64]]:
    """Returns the name of each word in the global offset table: names, and two numbers per word.

    The first number is an offset into the names. The second is for a function that is chosen when
    the file is loaded: the index in `table` of the function that chooses. -1: not known.
    """
    names = np.full(len(words), -1, dtype=np.int64)
    choosers = np.full(len(words), -1, dtype=np.int64)
    order = np.argsort(words, kind="stable")
    in_order = words[order]
    symbols = next((s for s in elf.sections if s.kind == "SHT_DYNSYM"), None)
    layout = symbol_layout(elf)
    offsets: NDArray[np.uint32] = np.empty(0, dtype=np.uint32)
    strings = b""
    if symbols is not None:
        strings = symbol_strings(elf, symbols)
        data = elf.read(symbols, 0, MAX_SYMBOLS * layout.itemsize)
        offsets = np.frombuffer(data[: len(data) // layout.itemsize * layout.itemsize], layout)[
            "name"
        ]
    for section, rows in elf.addend_relocations():
        kind = rows["info"] & 0xFFFFFFFF
        rows = rows[(kind == _GLOB_DAT) | (kind == _JUMP_SLOT) | (kind == _IRELATIVE)]
        at = np.searchsorted(in_order, rows["offset"])
        found = at < len(words)
        found[found] = in_order[at[found]] == rows["offset"][found]
        at, once = np.unique(at[found], return_index=True)
        rows, at = rows[found][once], order[at]
        chosen = rows["info"] & 0xFFFFFFFF == _IRELATIVE
        choosers[at[chosen]] = table.index_of(rows["addend"][chosen])
        names[at[chosen]] = -1
        if symbols is not None and section.link == symbols.index:
            index = (rows["info"] >> 32).astype(np.int64)
            named = ~chosen & (index > 0) & (index < len(offsets))
            names[at[named]] = offsets[index[named]]
            choosers[at[named]] = -1
    letters = np.frombuffer(strings, dtype=np.uint8)
    names[names >= len(letters)] = -1
    there = np.flatnonzero(names >= 0)
    names[there[letters[names[there]] == 0]] = -1
    return strings, names, choosers
