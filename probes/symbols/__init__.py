"""The look-up of the file and the function at an address. It uses no trace and no trace tables.

resolver.py         the function of an instruction, for code of any origin: start here
mappings.py         address spaces as they change: the mapping at an address and time
files.py            the function at a path and offset; each file is opened once, within limits
budget.py           these limits, and the amounts spent
opening.py          a process that opens files
reader.py           a process that reads them, from this side; reader_process.py from its own
elf.py              the functions of an ELF file, from all sources below that it has
elf_file.py         header, sections, segments, build id, words at an address
elf_symbols.py      symbol tables
debug_files.py      the separate debug file of a stripped one
plt.py              stubs of the procedure linkage table, as `name@plt`
go.py               the table of functions in a Go program, stripped or not
perf_map.py         the map that a just-in-time compiler wrote of its code
kernel.py           the running kernel's functions, from /proc/kallsyms
frames.py           kernel functions as frames of a stack
vdso.py             the code that the kernel maps into every process
table.py            sorted symbols of one source, and the name at an address
demangle.py         demangled C++ names, from a process with limits
reading.py          files opened and read as hostile input

Targets provide these files, and the recorder runs as root. It therefore leaves opening and reading
to other processes: a file may be large, damaged, or on a file system that never answers.

A file that cannot be read at all raises UnreadableSymbols. If only a part is damaged, that part is
left out and named in `problems`: names are then missing, but never wrong.
"""
