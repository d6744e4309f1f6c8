"""Stubs of the procedure linkage table have the name of the function that they lead to."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.binaries import compile_c, needs_binutils, run
from tracer.probes.symbols.elf import open_elf

pytestmark = needs_binutils

CALLS = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char *copy = strdup(argv[0]);
    long n = write(1, copy, strlen(copy)) + strtol(argv[argc - 1], 0, 10);
    free(copy);
    return (int)n;
}
"""


def stubs_by_objdump(path):
    """{address: name@plt} by the disassembler, IRELATIVE ones left out."""
    listing = run("objdump", "-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got", path)
    found = re.findall(r"^([0-9a-f]+) <([^*>]+@plt)>:$", listing, re.MULTILINE)
    return {int(address, 16): re.sub(r"@+[^@]*(?=@plt)", "", name) for address, name in found}


@pytest.mark.parametrize(
    "flags",
    [
        ("-fPIE", "-pie", "-Wl,-z,lazy"),
        ("-fPIE", "-pie", "-Wl,-z,now"),
        ("-fno-pie", "-no-pie"),
        ("-fPIE", "-pie", "-fcf-protection=full", "-Wl,-z,ibtplt"),
    ],
)
def test_stubs_of_a_small_program(tmp_path, flags):
    program = compile_c(tmp_path, CALLS, *flags)
    wanted = stubs_by_objdump(program)
    assert {"strdup@plt", "write@plt", "strtol@plt", "free@plt"} <= set(wanted.values())
    with open_elf(program) as elf:
        for address, name in wanted.items():
            got = elf.symbols().names_of(np.array([address, address + 7], dtype=np.uint64))
            assert got == [name, name]


@pytest.mark.parametrize("path", ["libc.so.6", "/usr/sbin/dockerd", sys.executable])
def test_stubs_of_real_files(path):
    path = Path(path) if path.startswith("/") else next(Path("/").glob(f"lib/x86_64*/{path}"), None)
    if path is None or not path.exists():
        pytest.skip("not on this machine")
    path = path.resolve()
    wanted = stubs_by_objdump(path)
    with open_elf(path) as elf:
        table = elf.symbols()
    got = table.names_of(np.array(list(wanted), dtype=np.uint64))
    assert got == list(wanted.values())
    if path.name == "dockerd":
        assert len(wanted) > 100


def test_stubs_for_functions_chosen_at_load_time():
    """libc calls its own string functions by stubs whose relocation names only the chooser."""
    path = next(Path("/").glob("lib/x86_64*/libc.so.6"), None)
    if path is None:
        pytest.skip("no GNU C library for x86-64 on this machine")
    rows = re.findall(r"R_X86_64_IRELATIV\w*\s+([0-9a-f]+)", run("readelf", "-rW", path))
    assert rows
    with open_elf(path) as elf:
        table = elf.symbols()
        section = elf.section(".plt")
        assert section is not None
        choosers = set(table.names_of(np.array([int(r, 16) for r in rows], dtype=np.uint64)))
        code = np.arange(section.address, section.address + section.size, 16, dtype=np.uint64)
        stubs = {name for name in table.names_of(code) if name}
    assert {f"{name}@plt" for name in choosers if name} <= stubs
    assert len(choosers - {None}) > 10
