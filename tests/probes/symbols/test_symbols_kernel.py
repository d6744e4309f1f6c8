"""The kernel's own functions and those of the vdso, by what the running kernel says."""

import ctypes
import os
import time
from pathlib import Path

import numpy as np
import pytest

from tracer.probes.symbols.kernel import kernel_symbols
from tracer.probes.symbols.reading import UnreadableSymbols
from tracer.probes.symbols.vdso import open_vdso, vdso_image

LISTING = """\
0000000000000000 A fixed_percpu_data
0000000000001000 A cpu_debug_store
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 t __first
ffffffff81000000 T first
ffffffff81000040 t second
ffffffff81000040 W __weak
ffffffff81000080 T _etext
ffffffff82000000 D some_data
ffffffff82000010 t after_data
ffffffffc0203000 t hook\t[some_module]
ffffffffc0203100 d data\t[some_module]
ffffffffc0204000 t bpf_prog_6deef7357e7b4530\t[bpf]
nonsense
"""


@pytest.fixture
def listing(tmp_path):
    def read(text):
        path = tmp_path / "kallsyms"
        path.write_text(text)
        return kernel_symbols(path)

    return read


def at(symbols, *addresses):
    return symbols.table.names_of(np.array(addresses, dtype=np.uint64))


def test_functions_modules_and_bounds(listing):
    symbols = listing(LISTING)
    assert (symbols.text_start, symbols.text_end) == (0xFFFFFFFF81000000, 0xFFFFFFFF81000080)
    names = at(symbols, 0xFFFFFFFF81000000, 0xFFFFFFFF8100003F, 0xFFFFFFFF81000040)
    assert names == ["first", "first", "__weak"]
    assert at(symbols, 0xFFFFFFFF8100007F, 0xFFFFFFFF81000080) == ["__weak", None]
    assert at(symbols, 0xFFFFFFFF82000000, 0xFFFFFFFF82000010) == [None, "after_data"]
    assert at(symbols, 0xFFFFFFFFC02030FF, 0xFFFFFFFFC0203100) == ["hook [some_module]", None]
    assert at(symbols, 0xFFFFFFFFC0204FFF, 0xFFFFFFFFC0205000) == [
        "bpf_prog_6deef7357e7b4530 [bpf]",
        None,
    ]
    assert at(symbols, 0, 0x1000) == [None, None]


def test_lines_that_say_something_else_are_left_out(listing):
    symbols = listing(
        "100 T short\n"
        "FFFFFFFFFFFFFFFF T highest\n"
        "11111111111111111 T seventeen\n"
        "200 T \n"
        "200 T\n"
        "200 TT two_letters\n"
        "200  T two_spaces\n"
        "2_00 T underscore\n"
        " 200 T space\n"
        "300 t _\n"
        "300 T __global\n"
        "300 t local\n"
        "400 T with a space\n"
        "500 T \xff\n"
        "600 T last"
    )
    assert at(symbols, 0x100, 0x1FF, 0x200, 0x2FF) == ["short"] * 4
    assert at(symbols, 0x300, 0x400, 0x600) == ["__global", "with a space", "last"]
    assert at(symbols, (1 << 64) - 1) == [None]
    assert len(symbols.table) == 5


def test_a_kernel_that_tells_nothing_is_none(listing):
    hidden = "\n".join("0" * 16 + line[16:] for line in LISTING.splitlines())
    assert listing(hidden) is None
    assert listing("") is None


def test_a_listing_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UnreadableSymbols, match="cannot be opened"):
        kernel_symbols(tmp_path / "nothing")


def test_a_listing_without_end_is_an_error(listing):
    with pytest.raises(UnreadableSymbols, match="lines"):
        listing("\n" * ((1 << 20) + 1))


def test_every_function_of_the_running_kernel():
    every = [line.split(None, 2) for line in Path("/proc/kallsyms").read_text().splitlines()]
    # Programs of BPF come and go between the two readings.
    lines = [line for line in every if not line[2].endswith("[bpf]")]
    code = [(int(a, 16), n.replace("\t", " ")) for a, kind, n in lines if kind in "tT"]
    symbols = kernel_symbols()
    if not any(address for address, _ in code):
        assert symbols is None
        pytest.skip("this kernel does not tell this user its addresses")
    names = {}
    for address, kind, name in lines:
        if kind in "tTwWuU":
            names.setdefault(int(address, 16), set()).add(name.replace("\t", " "))
    # Markers (`_etext`) start no function.
    marks = {"_text", "_stext", "_etext", "_sinittext", "_einittext"}
    wanted = sorted(a for a, n in names.items() if a and n - marks)
    got = symbols.table.names_of(np.array(wanted, dtype=np.uint64))
    for address, name in zip(wanted, got, strict=True):
        assert name in names[address]
    assert symbols.text_start < symbols.text_end
    assert len(wanted) > 10_000
    assert {"do_syscall_64", "schedule"} <= set(got) or os.uname().machine != "x86_64"


def test_the_vdso_s_functions_lie_where_the_process_has_them():
    image = vdso_image()
    if image is None:
        pytest.skip("this machine has no vdso")
    assert image[:4] == b"\x7fELF"
    with open_vdso() as elf:
        table = elf.symbols()
        found = table.names_of(table.starts)
        assert elf.problems == []
        assert elf.build_id is not None
    assert any(
        name in ("clock_gettime", "__kernel_clock_gettime") or "clock_gettime" in name
        for name in found
    )
    # The C library calls the vdso: the word that it calls through points into the function.
    libc = ctypes.CDLL("libc.so.6", use_errno=True)
    libc.dlvsym.restype = ctypes.c_void_p
    libc.dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    libc.dlopen.restype = ctypes.c_void_p
    handle = libc.dlopen(b"linux-vdso.so.1", 1 | 4)
    if not handle:
        pytest.skip("this C library does not give the vdso away")
    address = libc.dlvsym(handle, b"__vdso_clock_gettime", b"LINUX_2.6")
    start = next(
        int(line.split("-")[0], 16)
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith("[vdso]")
    )
    with open_vdso() as elf:
        (name,) = elf.at_file_offsets(np.array([address - start]))
    assert name in ("clock_gettime", "__vdso_clock_gettime")
    assert time.clock_gettime(time.CLOCK_MONOTONIC) > 0
