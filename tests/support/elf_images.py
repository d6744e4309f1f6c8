"""Small ELF files put together by hand, as no linker would make them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NULL, PROGBITS, SYMTAB, STRTAB, RELA, NOTE, NOBITS, DYNSYM = 0, 1, 2, 3, 4, 7, 8, 11
ALLOC, EXECUTABLE, COMPRESSED = 2, 4, 0x800
FUNCTION = 2
"""The kind of a symbol."""
GLOBAL = 16
JUMP_SLOT, IRELATIVE = 7, 37

_HEADER = 64
_SEGMENT = 56


@dataclass(frozen=True)
class Part:
    """A section of a file; `size` may say something else than the truth."""

    name: bytes
    kind: int
    data: bytes = b""
    flags: int = 0
    address: int = 0
    link: int = 0
    entry_size: int = 0
    size: int | None = None


def elf(parts: Sequence[Part], *, machine: int = 62) -> bytes:
    """A 64-bit little-endian file: these sections from number 1 on, the names of sections last.

    Executable sections are loaded where they say.
    """
    names = Part(b".shstrtab", STRTAB, b"\0" + b"".join(p.name + b"\0" for p in parts))
    names = Part(names.name, STRTAB, names.data + b".shstrtab\0")
    every = [Part(b"", NULL), *parts, names]
    loaded = [part for part in parts if part.flags & EXECUTABLE]
    body = bytearray()
    offset = _HEADER + _SEGMENT * len(loaded)
    headers, segments, name = b"", b"", 1
    for part in every:
        at = offset + len(body)
        size = len(part.data) if part.size is None else part.size
        headers += struct.pack(
            "<IIQQQQIIQQ",
            0 if part.kind == NULL else name,
            part.kind,
            part.flags,
            part.address,
            at,
            size,
            part.link,
            0,
            1,
            part.entry_size,
        )
        if part in loaded:
            segments += struct.pack("<IIQQQQQQ", 1, 5, at, part.address, 0, size, size, 1)
        if part.kind != NULL:
            name += len(part.name) + 1
        body += part.data + bytes(-len(part.data) % 8)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    table = offset + len(body)
    head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, _HEADER, table, 0, _HEADER, _SEGMENT,
                        len(loaded), 64, len(every), len(every) - 1)  # fmt: skip
    return head + segments + bytes(body) + headers


def symbol(name: int, value: int, size: int, section: int = 1, info: int = GLOBAL | FUNCTION):
    """An Elf64_Sym."""
    return struct.pack("<IBBHQQ", name, info, 0, section, value, size)


def relocation(offset: int, kind: int, index: int = 0, addend: int = 0) -> bytes:
    """An Elf64_Rela."""
    return struct.pack("<QQQ", offset, index << 32 | kind, addend)


def note(owner: bytes, kind: int, data: bytes) -> bytes:
    """A note; the linker's build id is one of `GNU` and kind 3."""
    padded = owner + b"\0"
    padded += bytes(-len(padded) % 4)
    return (
        struct.pack("<III", len(owner) + 1, len(data), kind) + padded + data + bytes(-len(data) % 4)
    )


def stubs(count: int, names: bytes, which: Sequence[int]) -> bytes:
    """A file with so many stubs; the n-th leads to the name at offset `which[n % len]`."""
    code, words = 0x1000, 0x1000 + (count * 8 + 4095 & ~4095)
    table = bytearray()
    relocations = bytearray()
    for number in range(count):
        word = words + 8 * number
        table += b"\xff\x25" + struct.pack("<i", word - (code + 8 * number + 6)) + b"\x90\x90"
        relocations += relocation(word, JUMP_SLOT, 1 + number % len(which))
    symbols = bytes(24) + b"".join(symbol(name, 0, 0, 0) for name in which)
    return elf(
        [
            Part(b".plt", PROGBITS, bytes(table), ALLOC | EXECUTABLE, code, entry_size=8),
            Part(b".dynsym", DYNSYM, symbols, ALLOC, link=3, entry_size=24),
            Part(b".dynstr", STRTAB, names, ALLOC),
            Part(b".rela.plt", RELA, bytes(relocations), ALLOC, link=2, entry_size=24),
        ]
    )


def pyramid(count: int) -> bytes:
    """A file whose n-th function starts n bytes later and ends n bytes earlier."""
    kind = [("info", "u1"), ("other", "u1"), ("shndx", "<u2")]
    rows = np.zeros(count + 1, dtype=[("name", "<u4"), *kind, ("value", "<u8"), ("size", "<u8")])
    order = np.arange(count)
    rows["name"][1:], rows["info"][1:], rows["shndx"][1:] = 1, GLOBAL | FUNCTION, 1
    rows["value"][1:] = 0x1000 + order
    rows["size"][1:] = 2 * (count - order) - 1
    return elf(
        [
            Part(b".text", NOBITS, b"", ALLOC | EXECUTABLE, 0x1000, size=2 * count),
            Part(b".symtab", SYMTAB, rows.tobytes(), link=3, entry_size=24),
            Part(b".strtab", STRTAB, b"\0f\0"),
        ]
    )


def linked_to(name: str, checksum: int = 0) -> bytes:
    """A stripped file whose debug file is called so."""
    link = name.encode() + b"\0"
    link += bytes(-len(link) % 4) + struct.pack("<I", checksum)
    return elf(
        [
            Part(b".text", PROGBITS, b"\x90", ALLOC | EXECUTABLE, 0x1000),
            Part(b".gnu_debuglink", PROGBITS, link),
        ]
    )
