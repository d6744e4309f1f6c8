"""Files that name functions: ELF, perf's maps, kallsyms."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from random import Random

import numpy as np

from tests.fuzz.mutation import NUMBERS, mutated, mutated_text
from tests.fuzz.parts import joined, mutated_parts, parted
from tests.fuzz.target import target
from tests.support.elf_images import (
    ALLOC,
    DYNSYM,
    EXECUTABLE,
    JUMP_SLOT,
    NOBITS,
    NOTE,
    PROGBITS,
    RELA,
    STRTAB,
    SYMTAB,
    Part,
    elf,
    linked_to,
    note,
    pyramid,
    relocation,
    stubs,
    symbol,
)
from tracer.probes.symbols.debug_files import belongs, wanted
from tracer.probes.symbols.elf import open_elf
from tracer.probes.symbols.elf_file import ElfImage
from tracer.probes.symbols.kernel import kernel_symbols
from tracer.probes.symbols.perf_map import perf_map
from tracer.probes.symbols.table import SymbolTable

_ADDRESSES = np.array(
    [0, 1, 0x1000, 0x1001, 0x1008, 0x2000, 1 << 63, (1 << 64) - 1, 0xFFFFFFFF81000000], np.uint64
)
_TEXT = Part(b".text", PROGBITS, b"\x90" * 64, ALLOC | EXECUTABLE, 0x1000)
_LONG, _WORD = (1 << 64) - 1, (1 << 32) - 1


def _looked_up(table: SymbolTable) -> None:
    assert (table.starts[1:] >= table.ends[:-1]).all(), "functions overlap"
    for name in table.names_of(_ADDRESSES):
        assert name is None or name.isprintable()
    edges = np.concatenate([table.starts[:50], table.ends[:50]])
    table.names_of(edges)


def _go(magic: int) -> bytes:
    """A table of two functions, as `probes/symbols/go.py` tells of each version."""
    names = b"\0main.one\0main.two\0"
    head = struct.pack("<IBBBBQ", magic, 0, 0, 1, 8, 2)
    if magic == 0xFFFFFFFB:
        base = 16 + 5 * 8
        records = b"".join(
            struct.pack("<QI", 0x1000 + 8 * n, base + 24 + 1 + 9 * n) for n in range(2)
        )
        functions = struct.pack("<5Q", 0x1000, base, 0x1008, base + 12, 0x1010)
        return head + functions + records + names + bytes(32)
    relative = magic != 0xFFFFFFFA
    at = 16 + (6 + relative) * 8
    functab = at + len(names) + -(at + len(names)) % 8
    words = [0, *([0x1000] if relative else []), at, *([at + len(names)] * 3), functab]
    head += struct.pack(f"<{len(words)}Q", *words) + names
    head += bytes(functab - len(head))
    if relative:
        head += struct.pack("<5I", 0, 20, 8, 28, 16)
        return head + struct.pack("<4I", 0, 1, 8, 10) + bytes(32)
    head += struct.pack("<5Q", 0x1000, 40, 0x1008, 52, 0x1010)
    return head + struct.pack("<QIQI", 0x1000, 1, 0x1008, 10) + bytes(32)


def _elf_seeds() -> list[bytes]:
    names = Part(b".strtab", STRTAB, b"\0main\0_ZN3foo3barEv\0x\xff\0")
    symbols = bytes(24) + symbol(1, 0x1000, 8) + symbol(6, 0x1008, 0) + symbol(21, 0x1004, 16)
    whole = elf(
        [_TEXT, Part(b".symtab", SYMTAB, symbols, link=3, entry_size=24), names,
         Part(b".note.gnu.build-id", NOTE, note(b"GNU", 3, bytes(20)), ALLOC)]
    )  # fmt: skip
    go = [
        elf([_TEXT, Part(b".gopclntab", PROGBITS, _go(magic), ALLOC, 0x2000)])
        for magic in (0xFFFFFFF1, 0xFFFFFFF0, 0xFFFFFFFA, 0xFFFFFFFB)
    ]
    stripped = linked_to("x.debug", 0)
    return [
        joined({"elf": whole}),
        joined({"elf": stubs(5, b"\0read\0write\0", (1, 6))}),
        joined({"elf": pyramid(7)}),
        joined({"elf": stripped, "debug": whole}),
        joined({"elf": elf([_TEXT, Part(b".note", NOTE, note(b"GNU", 3, bytes(20)), ALLOC)]),
                "debug": whole}),
        *(joined({"elf": data}) for data in go),
    ]  # fmt: skip


def _part(chance: Random) -> Part:
    odd = chance.random() < 0.3
    name = chance.choice((b".symtab", b".dynsym", b".strtab", b".plt", b".rela.plt", b".gopclntab",
                          b".note", b".gnu_debuglink", b".data.rel.ro", b".plt.sec"))  # fmt: skip
    symbols = b"".join(
        symbol(chance.choice((0, 1, 6, _WORD)), chance.choice(NUMBERS) & _LONG,
               chance.choice((0, 8, chance.choice(NUMBERS) & _LONG)), chance.randrange(4),
               chance.randrange(256))
        for _ in range(chance.choice((0, 1, 5, 50)))
    )  # fmt: skip
    relocations = b"".join(
        relocation(0x1000 + 8 * n, JUMP_SLOT if chance.random() < 0.7 else chance.randrange(40), n)
        for n in range(chance.choice((0, 1, 9)))
    )
    data = chance.choice((symbols, relocations, b"\0main\0x\0", _go(0xFFFFFFF1), b"\x90" * 32,
                          note(b"GNU", 3, bytes(20))))  # fmt: skip
    return Part(
        name,
        chance.choice((PROGBITS, SYMTAB, STRTAB, RELA, NOTE, NOBITS, DYNSYM)),
        data,
        chance.choice((0, ALLOC, ALLOC | EXECUTABLE)),
        chance.choice((0x1000, 0x2000, chance.choice(NUMBERS) & _LONG)),
        chance.randrange(6),
        chance.choice((0, 24, 24, 8, chance.choice(NUMBERS) & _LONG)),
        chance.choice(NUMBERS) & _LONG if odd else None,
    )


def _image(chance: Random, name: str, data: bytes) -> bytes:
    match chance.randrange(4):
        case 0 | 1:
            return mutated(chance, data)
        case 2:  # the headers: at the begin and at the end
            return mutated(chance, data[:176]) + data[176:]
        case _:
            return elf([_part(chance) for _ in range(chance.randrange(1, 6))])


def _elf(chance: Random, data: bytes) -> bytes:
    return mutated_parts(chance, data, _image)


@target(_elf_seeds, _elf)
def elf_files(data: bytes, folder: Path) -> None:
    """A program or library, and the debug file that it may name."""
    files = parted(data)
    for name in ("elf", "debug"):
        (folder / name).write_bytes(files.get(name, b""))
    with open_elf(folder / "elf") as program:
        sought = wanted(program)
        if sought is not None and files.get("debug"):
            with ElfImage(folder / "debug") as debug:
                if belongs(debug, program, sought.checksum) or sought.name:
                    program.debug = debug
                _looked_up(program.symbols())
        _looked_up(program.symbols())
        program.at_file_offsets(_ADDRESSES.view(np.int64))


_MAP = b"""7f0000001000 20 py::train:/job/train.py
7f0000001010 100 lambda
1000 8 f
ffffffffffffff00 ff last
7f0000001000 20 again
"""


@target(lambda: [_MAP, b""], mutated_text)
def perf_maps(data: bytes, folder: Path) -> None:
    """/tmp/perf-PID.map of a just-in-time compiler."""
    (folder / "map").write_bytes(data)
    fd = os.open(folder / "map", os.O_RDONLY)
    try:
        _looked_up(perf_map(fd, "map"))
    finally:
        os.close(fd)


_KALLSYMS = b"""ffffffff81000000 T _text
ffffffff81000000 T _stext
ffffffff81000040 t do_one
ffffffff81000040 T __x64_sys_read
ffffffff81001000 D jiffies
ffffffff81002000 T _etext
ffffffffc0000000 t helper\t[ext4]
0000000000000000 A fixed_percpu_data
"""


@target(lambda: [_KALLSYMS, b"0000000000000000 T _text\n"], mutated_text)
def kallsyms(data: bytes, folder: Path) -> None:
    """A copy of /proc/kallsyms."""
    (folder / "kallsyms").write_bytes(data)
    found = kernel_symbols(folder / "kallsyms")
    if found is not None:
        _looked_up(found.table)
