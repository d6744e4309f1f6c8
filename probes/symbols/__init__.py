"""Addresses into the files behind them and function names: pure look-up, no trace, no tables.

resolver.py         instructions into names, wherever their code came from: start here
mappings.py         address spaces as they change: what lay behind an address at a time
files.py            paths and file offsets into names, each file opened once
table.py            sorted symbols of one file, and the name at an address
elf.py              an ELF file: header, sections, segments, bytes at an address
elf_symbols.py      its symbol tables and the stubs of its procedure linkage table
debug_files.py      where the symbols of a stripped file lie
go.py               the functions that a Go program knows of itself, stripped or not
perf_map.py         what a just-in-time compiler wrote about its code
kernel.py           the running kernel's functions, by /proc/kallsyms
vdso.py             the code that the kernel maps into every process
demangle.py, demangle_worker.py   C++ names as they were written, in a process with limits
reading.py          files opened and read as if an enemy had made them

A file that cannot be read at all raises UnreadableSymbols. Where only a part of it is damaged,
that part is left out and named in `problems`: fewer names, never wrong ones.
"""
