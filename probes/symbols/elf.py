"""The functions of an ELF file by address, from all tables of the file that name functions."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tracer.probes.symbols.elf_file import ElfImage
from tracer.probes.symbols.elf_symbols import symbol_columns
from tracer.probes.symbols.go import go_functions
from tracer.probes.symbols.plt import stub_columns
from tracer.probes.symbols.reading import PathOrFd, UnreadableSymbols
from tracer.probes.symbols.table import SymbolColumns, SymbolTable, build_table


class ElfFile(ElfImage):
    """An open ELF file whose functions can be looked up; made by `open_elf`.

    If the file is stripped and has a debug file, set `debug` before the call of `symbols`.
    """

    debug: ElfImage | None = None

    def symbols(self) -> SymbolTable:
        """Returns the file's functions by virtual address.

        They come from `.symtab` (its own or, if it is stripped, that of a separate debug file),
        `.dynsym`, the stubs of the procedure linkage table (`name@plt`), and the table in a Go
        program. The content of the file never raises an error: unusable parts are left out and
        named in `problems`, and the table may be empty.
        """
        return self._table

    @property
    def stripped(self) -> bool:
        """True if the file has no readable `.symtab`."""
        return not self._symtab

    @cached_property
    def _symtab(self) -> list[SymbolColumns]:
        try:
            return symbol_columns(self, "SHT_SYMTAB")
        except UnreadableSymbols as error:
            self.problem(error.what, error.reason)
            return []

    @cached_property
    def _table(self) -> SymbolTable:
        _ = self.segments  # read now: file offsets are also looked up after the file is closed
        sources: list[SymbolColumns] = []
        for read in (self._own_symbols, self._dynamic_symbols, self._go_symbols):
            try:
                sources += read()
            except UnreadableSymbols as error:
                self.problem(error.what, error.reason)
        table = build_table(sources)
        try:
            stubs = stub_columns(self, table)
        except UnreadableSymbols as error:
            self.problem(error.what, error.reason)
            stubs = []
        self.__dict__.pop("_symtab", None)  # the table now holds its symbols
        return build_table([*sources, *stubs]) if stubs else table

    def _own_symbols(self) -> list[SymbolColumns]:
        if self.stripped and self.debug is not None:
            found = symbol_columns(self.debug, "SHT_SYMTAB")
            self.problems += self.debug.problems
            self.left_out |= self.debug.left_out
            return found
        return self._symtab

    def _dynamic_symbols(self) -> list[SymbolColumns]:
        return symbol_columns(self, "SHT_DYNSYM")

    def _go_symbols(self) -> list[SymbolColumns]:
        return go_functions(self)

    def at_file_offsets(self, offsets: NDArray[np.int64]) -> list[str | None]:
        """Returns the function at each offset into the file; None if it is not known.

        This also works after the file is closed, if `symbols` was called before.
        """
        addresses, loaded = self.addresses_of(offsets)
        names = self.symbols().names_of(addresses)
        return [name if known else None for name, known in zip(names, loaded, strict=True)]


def open_elf(source: PathOrFd, name: str | None = None) -> ElfFile:
    """Opens an ELF file by path or descriptor (which stays the caller's).

    `name` is the file's name in messages. Raises UnreadableSymbols if the file does not exist or is
    not a regular ELF file.
    """
    return ElfFile(source, name)
