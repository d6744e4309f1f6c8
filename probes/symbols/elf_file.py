"""An ELF file: header, sections, segments, build id, and the bytes at an address.

pyelftools knows the layout of the headers; large tables are read with numpy. Sizes in the file are
not trusted: each is compared with the file first.
"""

from __future__ import annotations

import io
import os
import struct
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from tracer.probes.symbols.budget import MAX_FILE_BYTES, Reason
from tracer.probes.symbols.reading import PathOrFd, UnreadableSymbols, open_regular, read_at, shown

MAX_SECTIONS = 4096
MAX_SEGMENTS = 256
_MAX_NAMES_BYTES = 1 << 20
_MAX_NOTE_BYTES = 1 << 16
_MAX_PROBLEMS = 100
_MAX_BUILD_ID_BYTES = 64
_NT_GNU_BUILD_ID = 3
_MAX_RELOCATION_BYTES = 1 << 27
_CHUNK = 1 << 24

_SHF_ALLOC = 2
_SHF_EXECINSTR = 4
_PF_X = 1

_RELATIVE = {
    "EM_X86_64": 8,
    "EM_386": 8,
    "EM_AARCH64": 1027,
    "EM_RISCV": 3,
    "EM_S390": 12,
    "EM_PPC64": 22,
}
"""R_*_RELATIVE by machine: the word is the addend plus the load address (psABI of each)."""

_NO_ELF = (ELFError, ConstructError, ValueError, KeyError, IndexError, OverflowError, struct.error)


@dataclass(frozen=True)
class Section:
    """A section's header. `kind` is SHT_...; `stored` is True if the file has its bytes."""

    index: int
    name: str
    kind: str
    address: int
    offset: int
    size: int
    entry_size: int
    link: int
    info: int
    allocated: bool
    executable: bool

    @property
    def stored(self) -> bool:
        return self.kind != "SHT_NOBITS"


@dataclass(frozen=True)
class Segment:
    """A part of the file that is loaded (PT_LOAD)."""

    offset: int
    address: int
    file_size: int
    executable: bool


class ElfImage:
    """An open ELF file. Addresses are the file's own virtual ones.

    status      result of `fstat`
    problems    unusable parts of the file, one line each
    left_out    limits for which parts of the file were not read
    bytes_read  bytes read so far

    The constructor raises UnreadableSymbols if the file does not exist or is not a regular ELF
    file.
    """

    def __init__(self, source: PathOrFd, name: str | None = None) -> None:
        """Opens the file. `name` is its name in messages."""
        self.shown = name or shown(source)
        self.fd, self.status = open_regular(source)
        self._close = weakref.finalize(self, os.close, self.fd)
        self.problems: list[str] = []
        self.left_out: set[Reason] = set()
        self.bytes_read = 0
        self.strings: dict[int, bytes] = {}
        """Tables of names by section, kept while the file is open."""
        head = read_at(self.fd, 0, 64)
        try:
            elf = ELFFile(io.BytesIO(head))
            self._structs = elf.structs
            self.little_endian = bool(elf.little_endian)
            self.bits = int(elf.elfclass)
            self.header: dict[str, Any] = dict(elf.header)
        except _NO_ELF as error:
            self.close()
            raise UnreadableSymbols(f"{self.shown} is not an ELF file: {error}") from error
        self.order = "<" if self.little_endian else ">"
        self.machine = str(self.header["e_machine"])
        self.word = np.dtype(f"{self.order}u{self.bits // 8}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the descriptor; the parts that were read stay available."""
        self._close()
        self.__dict__.pop("relative_words", None)  # large, and only needed for reading
        self.strings = {}
        self.fd = -1  # from now on the number may belong to another file

    def problem(self, what: str, reason: Reason | None = None) -> None:
        """Notes an unusable part of the file; `reason`: the limit that it exceeds."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(f"{self.shown}: {what}")
        if reason is not None:
            self.left_out.add(reason)

    @cached_property
    def sections(self) -> list[Section]:
        """All sections in their order; empty if the table of sections is damaged."""
        count = self.header["e_shnum"]
        headers = self._headers("e_shoff", 1 if count == 0 else count, MAX_SECTIONS, "section")
        if count == 0 and headers:
            # The count does not fit into 16 bits; the first section's size holds it.
            headers = self._headers("e_shoff", headers[0]["sh_size"], MAX_SECTIONS, "section")
        names = self._section_names(headers)
        return [
            Section(
                index=index,
                name=names[h["sh_name"] : h["sh_name"] + 64]
                .split(b"\0")[0]
                .decode("utf-8", "backslashreplace"),
                kind=str(h["sh_type"]),
                address=h["sh_addr"],
                offset=h["sh_offset"],
                size=h["sh_size"],
                entry_size=h["sh_entsize"],
                link=h["sh_link"],
                info=h["sh_info"],
                allocated=bool(h["sh_flags"] & _SHF_ALLOC),
                executable=bool(h["sh_flags"] & _SHF_EXECINSTR),
            )
            for index, h in enumerate(headers)
        ]

    def _section_names(self, headers: list[Any]) -> bytes:
        index = self.header["e_shstrndx"]
        if index == 0xFFFF and headers:
            index = headers[0]["sh_link"]
        if index >= len(headers) or headers[index]["sh_type"] == "SHT_NOBITS":
            return b""
        size = min(headers[index]["sh_size"], _MAX_NAMES_BYTES)
        return self._read(headers[index]["sh_offset"], size)

    @cached_property
    def segments(self) -> list[Segment]:
        """The loaded segments, executable ones first."""
        count = self.header["e_phnum"]
        headers = self._headers("e_phoff", count, MAX_SEGMENTS, "segment")
        loads = [
            Segment(h["p_offset"], h["p_vaddr"], h["p_filesz"], bool(h["p_flags"] & _PF_X))
            for h in headers
            if h["p_type"] == "PT_LOAD" and h["p_offset"] + h["p_filesz"] < 1 << 63
        ]
        return sorted(loads, key=lambda load: not load.executable)

    def _headers(self, where: str, count: int, limit: int, what: str) -> list[Any]:
        """Returns the section or program headers at the offset in header field `where`."""
        offset = self.header[where]
        if offset == 0 or count == 0:
            return []
        if count > limit:
            self.problem(f"{count} {what} headers, more than {limit}: not read", Reason.TABLE)
            return []
        struct_of = self._structs.Elf_Shdr if what == "section" else self._structs.Elf_Phdr
        size = struct_of.sizeof()
        if self.header["e_shentsize" if what == "section" else "e_phentsize"] != size:
            self.problem(f"{what} headers of an unknown size")
            return []
        data = self._read(offset, size * count)
        if len(data) < size * count:
            self.problem(f"the {what} headers lie beyond the end of the file")
            return []
        try:
            return [struct_of.parse(data[i * size : (i + 1) * size]) for i in range(count)]
        except _NO_ELF as error:
            self.problem(f"{what} headers cannot be read: {error}")
            return []

    def section(self, name: str) -> Section | None:
        """Returns the first section of that name, or None."""
        return next((section for section in self.sections if section.name == name), None)

    def _read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.status.st_size - offset))
        self.bytes_read += size
        if self.bytes_read > MAX_FILE_BYTES:
            what = f"{self.shown}: more than {MAX_FILE_BYTES} bytes would have to be read"
            raise UnreadableSymbols(what, reason=Reason.BYTES)
        return read_at(self.fd, offset, size) if size else b""

    def whole(self) -> Iterator[bytes]:
        """Yields the whole file in pieces."""
        for offset in range(0, self.status.st_size, _CHUNK):
            yield self._read(offset, _CHUNK)

    def read(self, section: Section, start: int, size: int) -> bytes:
        """Returns `size` bytes of a section from `start`; fewer if the section or file ends."""
        size = min(size, section.size - start)
        if not section.stored or size <= 0:
            return b""
        return self._read(section.offset + start, size)

    def contents(self, section: Section, limit: int) -> bytes | None:
        """Returns a whole section, as far as the file has it.

        If the section is larger than `limit` bytes, notes a problem and returns None.
        """
        if section.size > limit:
            what = f"section {section.name!r} has {section.size} bytes, more than {limit}"
            self.problem(what, Reason.TABLE)
            return None
        data = self.read(section, 0, section.size)
        if len(data) < section.size and section.stored:
            self.problem(f"section {section.name!r} lies beyond the end of the file")
        return data

    @cached_property
    def build_id(self) -> str | None:
        """The linker's build id in hex digits, or None."""
        places = [(s.offset, s.size) for s in self.sections if s.kind == "SHT_NOTE"]
        if not places:
            headers = self._headers("e_phoff", self.header["e_phnum"], MAX_SEGMENTS, "segment")
            places = [(h["p_offset"], h["p_filesz"]) for h in headers if h["p_type"] == "PT_NOTE"]
        for offset, size in places:
            found = self._build_id_in(self._read(offset, min(size, _MAX_NOTE_BYTES)))
            if found:
                return found.hex()
        return None

    def _build_id_in(self, notes: bytes) -> bytes | None:
        at = 0
        while at + 12 <= len(notes):
            name_size, size, kind = struct.unpack_from(f"{self.order}III", notes, at)
            data = at + 12 + (name_size + 3 & ~3)
            if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 12 + name_size] == b"GNU\0":
                found = notes[data : data + size]
                return found if 0 < len(found) == size <= _MAX_BUILD_ID_BYTES else None
            at = data + (size + 3 & ~3)
        return None

    def section_at(self, address: int) -> Section | None:
        """Returns the loaded, stored section that holds `address`, or None."""
        return next(
            (
                s
                for s in self.sections
                if s.allocated and s.stored and s.address <= address < s.address + s.size <= 1 << 64
            ),
            None,
        )

    def words_at(self, address: int, count: int) -> NDArray[np.uint64]:
        """Returns `count` words as they are once the file is loaded at its own addresses.

        Returns fewer if the section ends. Relocations are applied, because a position-independent
        file may hold a word only as a relocation.
        """
        section = self.section_at(address)
        if section is None:
            return np.empty(0, dtype=np.uint64)
        data = self.read(section, address - section.address, count * self.word.itemsize)
        words = np.frombuffer(
            data[: len(data) // self.word.itemsize * self.word.itemsize], self.word
        )
        words = words.astype(np.uint64)
        places, values = self.relative_words
        end = min(address + len(words) * self.word.itemsize, (1 << 64) - 1)
        first, last = np.searchsorted(places, np.array([address, end], dtype=np.uint64))
        index = (places[first:last] - np.uint64(address)) // np.uint64(self.word.itemsize)
        words[index.astype(np.int64)] = values[first:last]
        return words

    @cached_property
    def relative_words(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Sorted addresses, and values, of the words that are given only by a relocation.

        These are the relocations relative to the load address that contain the value (RELA). For
        other relocations the value is in the word's own place.
        """
        relative = _RELATIVE.get(self.machine)
        places, values = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for _, rows in self.addend_relocations():
            rows = rows[rows["info"] & (0xFF if self.bits == 32 else 0xFFFFFFFF) == relative]
            places.append(rows["offset"].astype(np.uint64))
            values.append(rows["addend"].astype(np.uint64))
        all_places, all_values = np.concatenate(places), np.concatenate(values)
        order = np.argsort(all_places, kind="stable")
        return all_places[order], all_values[order]

    def addend_relocations(self) -> Iterator[tuple[Section, NDArray[Any]]]:
        """Yields the loader's relocations with an addend (offset, info, addend), in chunks."""
        layout = np.dtype([("offset", self.word), ("info", self.word), ("addend", self.word)])
        step = _CHUNK // layout.itemsize * layout.itemsize
        left = _MAX_RELOCATION_BYTES
        for section in self.sections:
            if section.kind != "SHT_RELA" or not section.allocated:
                continue
            for start in range(0, min(section.size, self.status.st_size, left), step):
                left -= step
                data = self.read(section, start, step)
                rows = len(data) // layout.itemsize
                yield section, np.frombuffer(data[: rows * layout.itemsize], layout)

    def addresses_of(
        self, offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Returns the virtual addresses of file offsets, and whether each offset is loaded."""
        offsets = np.asarray(offsets, dtype=np.int64)
        addresses = np.zeros(offsets.shape, dtype=np.uint64)
        known = np.zeros(offsets.shape, dtype=np.bool_)
        for load in self.segments:
            end = load.offset + load.file_size
            inside = ~known & (offsets >= load.offset) & (offsets < end)
            shift = np.uint64((load.address - load.offset) % (1 << 64))
            addresses[inside] = offsets[inside].astype(np.uint64) + shift
            known |= inside
        return addresses, known
