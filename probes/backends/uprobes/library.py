"""The entries, returns and callers of a library's functions.

A return is probed at its instruction: a uretprobe puts the kernel's trampoline in the place of
the return address, where an exception that is thrown through the function finds no way on and
ends the process.
"""

from __future__ import annotations

import platform

import numpy as np
from numpy.typing import NDArray

from tracer.probes.errors import FeatureMissing
from tracer.probes.symbols.elf_file import ElfImage, Section
from tracer.probes.symbols.elf_symbols import symbol_columns
from tracer.probes.symbols.plt import stub_columns
from tracer.probes.symbols.table import SymbolColumns, SymbolTable

_MAX_FUNCTION_BYTES = 1 << 20
MOST_PLACES = 64
_NEAR_BYTES = 1 << 16
_CALL, _JUMP = 0xE8, 0xE9
"""Opcodes of x86-64 that are followed by four bytes of displacement from the next instruction."""


class Library:
    """An ELF file's exported functions, found by how their mangled names begin.

    Places are offsets in the file. FeatureMissing where there is no such function, or its
    instructions are not understood.
    """

    def __init__(self, elf: ElfImage) -> None:
        self.elf = elf
        self._symbols = symbol_columns(elf, "SHT_DYNSYM")

    def entry(self, symbol: str, exact: bool = False) -> tuple[int, ...]:
        """A function's first instruction. `exact`: the symbol is all of its name."""
        return (self._offset(self._function(symbol, exact)[0]),)

    def returns(self, symbol: str, exact: bool = False) -> tuple[int, ...]:
        """A function's return instructions. `exact`: the symbol is all of its name."""
        import capstone

        modes = {
            "EM_X86_64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
            "EM_AARCH64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
        }
        if self.elf.machine not in modes:
            raise FeatureMissing(
                f"returns of functions cannot be found on {platform.machine()}",
                "use x86-64 or AArch64",
            )
        start, end = self._function(symbol, exact)
        engine = capstone.Cs(*modes[self.elf.machine])
        engine.detail = True
        at, found = start, []
        for instruction in engine.disasm(self._code(start, end), start):
            at = instruction.address + instruction.size
            if instruction.group(capstone.CS_GRP_RET):
                found.append(self._offset(instruction.address))
        if at < end or not 0 < len(found) <= MOST_PLACES:
            raise FeatureMissing(f"the returns of {symbol} are not understood", "report it")
        return tuple(found)

    def calls(self, symbol: str, near: str) -> tuple[int, ...]:
        """Calls of a function from the code around another, as its own source file is compiled.

        Where calls cannot be told from other bytes, the function's entry: whoever calls it.
        """
        start, _ = self._function(symbol)
        around, _ = self._function(near)
        section = self.elf.section_at(around)
        if self.elf.machine != "EM_X86_64" or section is None:
            return self.entry(symbol)
        targets = [start, *self._stubs(symbol)]
        places = _branches(self.elf, section, around, np.array(targets, np.uint64))
        if not 0 < len(places) <= MOST_PLACES:
            return self.entry(symbol)
        return tuple(self._offset(place) for place in places)

    def _function(self, symbol: str, exact: bool = False) -> tuple[int, int]:
        """Address of the first function whose name begins so, and the first after it."""
        named = _named_exactly if exact else _named
        for columns in self._symbols:
            for row in named(columns, symbol):
                return int(columns.starts[row]), int(columns.ends[row])
        raise FeatureMissing(f"{symbol} is not among what the library exports", "report it")

    def _stubs(self, symbol: str) -> list[int]:
        nothing = np.empty(0, np.uint64)
        table = SymbolTable(nothing, nothing, np.empty(0, np.int64), [])
        return [
            int(columns.starts[row])
            for columns in stub_columns(self.elf, table)
            for row in _named(columns, symbol)
        ]

    def _code(self, start: int, end: int) -> bytes:
        section = self.elf.section_at(start)
        if section is None or end - start > _MAX_FUNCTION_BYTES:
            raise FeatureMissing("a function lies where no code is", "report it")
        return self.elf.read(section, start - section.address, end - start)

    def _offset(self, address: int) -> int:
        for segment in self.elf.segments:
            if segment.address <= address < segment.address + segment.file_size:
                return address - segment.address + segment.offset
        raise FeatureMissing("a function lies outside of its file", "report it")


def _named(columns: SymbolColumns, prefix: str) -> list[int]:
    """Rows of the symbols whose names begin so."""
    blob = b"\0" + columns.blob
    wanted = b"\0" + prefix.encode()
    found: list[int] = []
    at = blob.find(wanted)
    while at >= 0:
        found += np.flatnonzero(columns.names == at).tolist()
        at = blob.find(wanted, at + 1)
    return found


def _named_exactly(columns: SymbolColumns, name: str) -> list[int]:
    """Rows of the symbols of this name, which may be the end of another one in the file."""
    wanted = name.encode() + b"\0"
    found: list[int] = []
    at = columns.blob.find(wanted)
    while at >= 0:
        found += np.flatnonzero(columns.names == at).tolist()
        at = columns.blob.find(wanted, at + 1)
    return found


def _branches(
    elf: ElfImage, section: Section, around: int, targets: NDArray[np.uint64]
) -> list[int]:
    """Addresses of calls and jumps to these targets in the code around an address."""
    first = max(section.address, around - _NEAR_BYTES)
    last = min(section.address + section.size, around + _NEAR_BYTES)
    code = np.frombuffer(elf.read(section, first - section.address, last - first), np.uint8)
    at = np.flatnonzero((code[:-4] == _CALL) | (code[:-4] == _JUMP))
    displacement = code[at[:, None] + np.arange(1, 5)].copy().view("<i4")[:, 0]
    goes_to = (first + at + 5 + displacement).astype(np.uint64)
    found: list[int] = (first + at[np.isin(goes_to, targets)]).tolist()
    return found
