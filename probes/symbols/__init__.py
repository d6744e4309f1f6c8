"""Addresses into the files behind them and function names: pure look-up, no trace, no tables.

resolver.py         instructions into names, wherever their code came from: start here
mappings.py         address spaces as they change: what lay behind an address at a time
files.py            paths and file offsets into names, each file opened once, within limits
budget.py           these limits, and what has been spent
opening.py          a process that opens files
reader.py           a process that reads them, from this side; reader_process.py from its own
elf.py              the functions of an ELF file, from all that it has of the following
elf_file.py         header, sections, segments, build id, words at an address
elf_symbols.py      symbol tables
debug_files.py      the separate debug file of a stripped one
plt.py              stubs of the procedure linkage table, as `name@plt`
go.py               the functions that a Go program knows of itself, stripped or not
perf_map.py         what a just-in-time compiler wrote about its code
kernel.py           the running kernel's functions, by /proc/kallsyms
vdso.py             the code that the kernel maps into every process
table.py            sorted symbols of one source, and the name at an address
demangle.py         C++ names as they were written, by a process within limits
reading.py          files opened and read as if an enemy had made them

Targets make these files, and the recorder runs as root. So it neither opens nor reads them itself:
what it asks for may be large, damaged, or on a file system that never answers.

A file that cannot be read at all raises UnreadableSymbols. Where only a part of it is damaged,
that part is left out and named in `problems`: fewer names, never wrong ones.
"""
