"""The stubs through which a file calls other files' functions: its procedure linkage table.

A stub on x86-64 jumps to where a word of the global offset table points, and a relocation of that
word says whose address it gets. Other machines build the address of the word in other ways: their
stubs have no names here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from probes.symbols.elf_file import ElfImage
from probes.symbols.elf_symbols import MAX_SYMBOLS, symbol_layout, symbol_strings
from probes.symbols.table import SymbolColumns, SymbolTable

_SECTIONS = (".plt", ".plt.sec", ".plt.got")
_MAX_STUBS = 1 << 18
_MAX_NAME_BYTES = 1 << 14

_GLOB_DAT, _JUMP_SLOT, _IRELATIVE = 6, 7, 37
"""R_X86_64_... (psABI of x86-64, table 4.9)."""


def stub_columns(elf: ElfImage, table: SymbolTable) -> list[SymbolColumns]:
    """Stubs as `name@plt`.

    One for a function that is chosen when the file is loaded (IRELATIVE) has the name of the
    function that chooses, by `table`.
    """
    if elf.machine != "EM_X86_64" or elf.bits != 64:
        return []
    starts, sizes, words = _stubs(elf)
    if not len(starts):
        return []
    names = _names_of_words(elf, table, words)
    blob = b"".join(name + b"@plt\0" for name in names if name)
    lengths = np.array([len(name) + 5 if name else 0 for name in names], dtype=np.int64)
    columns = SymbolColumns(
        starts,
        starts + sizes,
        np.ones(len(starts), dtype=np.bool_),
        np.zeros(len(starts), dtype=np.int64),
        np.cumsum(lengths) - lengths,
        blob,
    )
    return [columns.where(lengths > 0)]


def _stubs(
    elf: ElfImage,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Address and size of each stub, and the address of the word that it jumps by."""
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
        # jmp *displacement(%rip): ff 25 and four bytes, counted from the byte after them
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


def _names_of_words(elf: ElfImage, table: SymbolTable, words: NDArray[np.uint64]) -> list[bytes]:
    """Whose address each word of the global offset table gets; b"" where that is not known."""
    names = [b""] * len(words)
    order = np.argsort(words, kind="stable")
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
        at = np.searchsorted(words[order], rows["offset"])
        found = at < len(words)
        found[found] = words[order[at[found]]] == rows["offset"][found]
        at, once = np.unique(at[found], return_index=True)
        rows = rows[found][once]
        chooser = table.index_of(rows["addend"])
        by_symbol = symbols is not None and section.link == symbols.index
        for row, where, which in zip(rows, order[at], chooser, strict=True):
            index = int(row["info"]) >> 32
            if int(row["info"]) & 0xFFFFFFFF == _IRELATIVE:
                names[where] = table.raw_name(int(which)) if which >= 0 else b""
            elif by_symbol and 0 < index < len(offsets):
                start = int(offsets[index])
                end = strings.find(b"\0", start, start + _MAX_NAME_BYTES)
                names[where] = strings[start : end if end >= 0 else start + _MAX_NAME_BYTES]
    return names
