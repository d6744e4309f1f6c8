"""The functions of an ELF file by address, from whatever the file has that names them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from probes.symbols.elf_file import ElfImage
from probes.symbols.elf_symbols import symbol_columns
from probes.symbols.go import go_functions
from probes.symbols.plt import stub_columns
from probes.symbols.reading import PathOrFd, UnreadableSymbols
from probes.symbols.table import SymbolColumns, SymbolTable, build_table


class ElfFile(ElfImage):
    """An open ELF file whose functions can be looked up; made by `open_elf`.

    A stripped one is given its debug file, if there is one, before it is asked for symbols.
    """

    debug: ElfImage | None = None

    def symbols(self) -> SymbolTable:
        """The file's functions by virtual address.

        From `.symtab` (its own or, where it is stripped, that of a separate debug file),
        `.dynsym`, the stubs of its procedure linkage table (`name@plt`), and the table that a Go
        program carries. Never raises for what the file holds: what cannot be used is left out
        and named in `problems`; a table without symbols is what remains of the worst.
        """
        return self._table

    @property
    def stripped(self) -> bool:
        """True where it has no `.symtab` that can be read."""
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
        _ = self.segments  # file offsets are asked for when the file is closed, too
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
        self.__dict__.pop("_symtab", None)  # the table has what is needed of it
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
        """The function at each offset into the file; None where none is known.

        A file that was closed still answers if it was asked for its symbols before.
        """
        addresses, loaded = self.addresses_of(offsets)
        names = self.symbols().names_of(addresses)
        return [name if known else None for name, known in zip(names, loaded, strict=True)]


def open_elf(source: PathOrFd, name: str | None = None) -> ElfFile:
    """Open an ELF file by path or descriptor (which stays the caller's).

    `name` is what messages call it. Raises UnreadableSymbols for what is not there, no regular
    file or no ELF file.
    """
    return ElfFile(source, name)
