"""Go's tables of functions written by hand, as assembler, in the format of each Go version.

From the declarations in src/runtime/symtab.go of each version: pcHeader, functab, _func.
"""

NAMES = ["main.one", "runtime.(*spanSet).push", "main.three"]

CODE = """
.text
nop
.globl _start
_start:
f0: nop; nop; nop
f1: nop; nop
f2: nop; nop; nop; nop
end: nop
.section .go.buildinfo, "a"
.quad 0
"""

RECORDS_WITH_ADDRESSES = """
record0: {word} f0; .long name0 - {base}
record1: {word} f1; .long name1 - {base}
record2: {word} f2; .long name2 - {base}
"""
RECORDS_WITH_OFFSETS = """
record0: .long f0 - _start; .long name0 - {base}
record1: .long f1 - _start; .long name1 - {base}
record2: .long f2 - _start; .long name2 - {base}
"""
FUNCTIONS_BY_ADDRESS = """
{word} f0, record0 - {base}, f1, record1 - {base}, f2, record2 - {base}, end
"""
FUNCTIONS_BY_OFFSET = """
.long f0 - _start, record0 - {base}, f1 - _start, record1 - {base}
.long f2 - _start, record2 - {base}, end - _start
"""
NAME_TABLE = '\n.byte 0\nname0: .asciz "{}"\nname1: .asciz "{}"\nname2: .asciz "{}"\n'.format(
    *NAMES
)


def table_source(version, word, pointer):
    """A table of three functions in the format of a Go version."""
    magic = {"1.2": 0xFFFFFFFB, "1.16": 0xFFFFFFFA, "1.18": 0xFFFFFFF0, "1.20": 0xFFFFFFF1}[version]
    head = f"table: .long {magic}; .byte 0, 0, 1, {pointer}\n{word} 3\n"
    padding = f"{word} 0, 0, 0, 0, 0, 0, 0, 0\n"
    if version == "1.2":
        body = FUNCTIONS_BY_ADDRESS.format(word=word, base="table")
        body += RECORDS_WITH_ADDRESSES.format(word=word, base="table") + NAME_TABLE
        return head + body + padding
    parts = "names - table, files - table, files - table, files - table, functions - table"
    sections = "\nnames:" + NAME_TABLE + "\nfiles: .byte 0, 0, 0, 0\n.balign 8\nfunctions:\n"
    if version == "1.16":
        head += f"{word} 0, {parts}\n"
        functions = FUNCTIONS_BY_ADDRESS.format(word=word, base="functions")
        records = RECORDS_WITH_ADDRESSES.format(word=word, base="names")
    else:
        head += f"{word} 0, _start, {parts}\n"
        functions = FUNCTIONS_BY_OFFSET.format(base="functions")
        records = RECORDS_WITH_OFFSETS.format(base="names")
    return head + sections + functions + records + padding
