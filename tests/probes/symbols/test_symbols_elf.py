"""Functions of real files are those that readelf finds in them."""

import ctypes
import os
import re
import subprocess
import sys
import sysconfig
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.support.binaries import (
    PROGRAM,
    assemble,
    compile_c,
    functions_of,
    needs_binutils,
    run,
)
from tracer.probes.symbols.elf import open_elf
from tracer.probes.symbols.elf_symbols import symbol_columns
from tracer.probes.symbols.reading import UnreadableSymbols
from tracer.probes.symbols.table import build_table, readable_names

pytestmark = needs_binutils


def loaded_file(part):
    """The path of a library that this interpreter has mapped, or None."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and part in Path(fields[5]).name:
            return Path(fields[5])
    return None


def torch_library():
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "lib" / "libtorch_cpu.so"
    return path if path.exists() else None


def libpython():
    folder = sysconfig.get_config_var("LIBDIR")
    name = sysconfig.get_config_var("INSTSONAME")
    path = Path(folder or "/nonexistent") / (name or "")
    return path if path.is_file() else None


REAL = {
    "libc": loaded_file("libc.so.6"),
    "python": Path(sys.executable).resolve(),
    "libpython": libpython(),
    "libtorch_cpu": torch_library(),
    "libstdc++": Path("/usr/lib/x86_64-linux-gnu/libstdc++.so.6"),
}


def raw_names(table, addresses):
    """Names as the file has them: half a million need not be demangled to be compared."""
    index = table.index_of(np.array(addresses, dtype=np.uint64))
    return [table.raw_name(i) if i >= 0 else None for i in index.tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("which", REAL)
def test_every_function_of_a_real_file_has_one_of_its_names(which):
    path = REAL[which]
    if path is None or not path.exists():
        pytest.skip(f"{which} is not on this machine")
    functions = functions_of(path)
    assert functions
    strength = {"GLOBAL": 2, "UNIQUE": 2, "WEAK": 1, "LOCAL": 0}
    at = defaultdict(dict)
    for f in functions:
        at[f.address][f.name] = max(strength[f.binding], at[f.address].get(f.name, 0))
    with open_elf(path) as elf:
        assert elf.problems == []
        table = elf.symbols()
    addresses = sorted(at)
    # Half a million comparisons: pytest would take each apart.
    found = zip(addresses, raw_names(table, addresses), strict=True)
    weaker = [hex(one) for one, name in found if at[one].get(name) != max(at[one].values())]
    assert weaker == []

    # The last byte is the function's own, but for one that starts inside it.
    largest = {f.address: f for f in sorted(functions, key=lambda f: f.size)}
    ordered = [largest[address] for address in addresses]
    following = [*addresses[1:], 1 << 64]
    alone = [f for f, after in zip(ordered, following, strict=True) if f.address + f.size <= after]
    assert len(alone) > 0.9 * len(ordered)
    ends = raw_names(table, [f.address + f.size - 1 for f in alone])
    last = zip(alone, ends, strict=True)
    others = [hex(f.address) for f, name in last if name not in at[f.address]]
    assert others == []


def test_a_library_of_this_process_by_the_dynamic_linker():
    libc = ctypes.CDLL("libc.so.6")
    mapped = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].endswith("/libc.so.6"):
            start, end = (int(part, 16) for part in fields[0].split("-"))
            mapped.append((start, end, int(fields[2], 16), fields[5]))
    for name in ("malloc", "qsort", "abort", "fopen"):
        address = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
        start, _, offset, path = next(m for m in mapped if m[0] <= address < m[1])
        with open_elf(path) as elf:
            assert elf.at_file_offsets(np.array([address - start + offset])) == [name]


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("ET_DYN", ("-fPIE", "-pie")),
        ("ET_EXEC", ("-fno-pie", "-no-pie")),
        ("ET_DYN", ("-fPIE", "-static-pie")),
        ("ET_EXEC", ("-static",)),
        ("ET_DYN", ("-fPIC", "-shared")),
    ],
)
def test_known_functions_at_file_offsets(tmp_path, kind, flags):
    program = compile_c(tmp_path, PROGRAM, *flags)
    functions = {f.name: f for f in functions_of(program)}
    with open_elf(program) as elf:
        assert elf.header["e_type"] == kind
        text = elf.section(".text")
        for name in ("main", "visible", "hidden"):
            f = functions[name.encode()]
            first = f.address - text.address + text.offset
            offsets = np.array([first, first + f.size - 1])
            assert elf.at_file_offsets(offsets) == [name, name]
        build_id = elf.build_id
        assert f"Build ID: {build_id}\n" in run("readelf", "-n", program)
        end = program.stat().st_size
        assert elf.at_file_offsets(np.array([-1, end + 4096, 0], dtype=np.int64)) == [None] * 3
        assert elf.at_file_offsets(np.array([], dtype=np.int64)) == []


def test_addresses_and_offsets_that_are_far_apart(tmp_path):
    source = ".globl _start\n.type _start,@function\n_start: nop\nnop\n.size _start, 2\n"
    program = assemble(tmp_path, source, link=("-Ttext=0x7f0000001000",))
    with open_elf(program) as elf:
        (load,) = [s for s in elf.segments if s.executable]
        assert load.address - load.offset > 1 << 40
        at = load.offset + 0x7F0000001000 - load.address
        assert elf.at_file_offsets(np.array([at, at + 1, at + 2])) == ["_start", "_start", None]


def test_an_address_that_is_not_loaded_has_no_name_even_with_code_at_address_0(tmp_path):
    source = ".globl _start\n.type _start,@function\n_start: nop\nnop\n.size _start, 2\n"
    program = assemble(tmp_path, source, link=("-Ttext=0",))
    with open_elf(program) as elf:
        (load,) = [s for s in elf.segments if s.executable]
        assert load.address == 0
        offsets = np.array([load.offset, load.offset + 1, load.offset + 2, -1, 1 << 40])
        assert elf.at_file_offsets(offsets) == ["_start", "_start", None, None, None]


def test_a_32_bit_file(tmp_path):
    source = """
    .text
    .globl first
    .type first, @function
    first: nop; nop; nop
    .size first, .-first
    label: nop; nop
    .globl _start
    .type _start, @function
    _start: nop
    .size _start, .-_start
    """
    program = assemble(tmp_path, source, bits=32)
    with open_elf(program) as elf:
        assert elf.bits == 32
        start = elf.section(".text").address
        names = elf.symbols().names_of(np.arange(start - 1, start + 7, dtype=np.uint64))
    assert names == [None, *["first"] * 3, "label", "label", "_start", None]


def test_the_global_function_wins_over_other_names(tmp_path):
    source = """
    .text
    .type local, @function
    .type __global, @function
    .type global, @function
    .type weak, @function
    .type wider, @function
    .globl global, __global, _start
    .weak weak
    nothing:
    local:
    weak:
    __global:
    global: nop; nop
    .size local, 2
    .size weak, 2
    .size __global, 2
    .size global, 2
    .size wider, 5
    .set wider, local
    _start: nop; nop; nop; nop
    """
    program = assemble(tmp_path, source)
    with open_elf(program) as elf:
        start = elf.section(".text").address
        names = elf.symbols().names_of(np.arange(start, start + 7, dtype=np.uint64))
    # `wider` has what the others leave; `_start`, which has no size, what lies after it
    assert names[:5] == ["global", "global", "wider", "wider", "wider"]
    assert names[5:] == [None, None]


def test_a_symbol_without_a_size_ends_at_the_next_and_with_its_section(tmp_path):
    source = """
    .section .first, "ax"
    one: nop; nop; nop
    two: nop; nop
    .section .second, "ax"
    nop
    .globl _start
    _start: nop
    .data
    datum: .long 5
    """
    program = assemble(tmp_path, source)
    with open_elf(program) as elf:
        first, second = elf.section(".first"), elf.section(".second")
        table = elf.symbols()
        got = table.names_of(np.arange(first.address, first.address + 5, dtype=np.uint64))
        assert got == ["one"] * 3 + ["two"] * 2
        got = table.names_of(np.arange(second.address, second.address + 3, dtype=np.uint64))
        assert got == [None, "_start", None]
        data = elf.section(".data")
        assert table.names_of(np.array([data.address], dtype=np.uint64)) == [None]


def test_a_function_ends_with_its_section_whatever_its_size_is_said_to_be(tmp_path):
    source = """
    .section .first, "ax"
    .globl _start
    .type _start, @function
    _start: nop
    .size _start, 0x7fffffffffffffff
    .section .second, "ax"
    nop
    """
    program = assemble(tmp_path, source)
    with open_elf(program) as elf:
        assert [f.size for f in functions_of(program)] == [0x7FFFFFFFFFFFFFFF]
        start = elf.section(".first").address
        assert elf.symbols().names_of(np.array([start, start + 1], dtype=np.uint64)) == [
            "_start",
            None,
        ]


def test_versions_are_left_out_of_names(tmp_path):
    source = """
    .text
    .globl work_v1, work_v2
    .type work_v1, @function
    .type work_v2, @function
    .symver work_v1, work@ONE
    .symver work_v2, work@@TWO
    work_v1: nop
    .size work_v1, 1
    work_v2: nop
    .size work_v2, 1
    """
    versions = tmp_path / "versions"
    versions.write_text("ONE { global: work; local: *; }; TWO { global: work; } ONE;")
    library = assemble(
        tmp_path, source, link=("-shared", "-soname=x", f"--version-script={versions}")
    )
    run("objcopy", "--strip-symbol=work_v1", "--strip-symbol=work_v2", library)
    assert "work@@TWO" in run("readelf", "-sW", library)
    with open_elf(library) as elf:
        start = elf.section(".text").address
        # Names in `.symtab` end with their versions; `.dynsym` keeps versions apart.
        table = build_table(symbol_columns(elf, "SHT_SYMTAB"))
        assert table.names_of(np.array([start, start + 1], dtype=np.uint64)) == ["work"] * 2


def test_names_are_what_cxxfilt_makes_of_them():
    path = REAL["libtorch_cpu"] or REAL["libstdc++"]
    if not path.exists():
        pytest.skip("no C++ library on this machine")
    # c++filt writes the full types of streams and strings, the library their short names.
    mangled = sorted(
        f.name
        for f in functions_of(path, dynamic=True)
        if f.name[:2] == b"_Z" and not re.search(rb"S[abdios]", f.name)
    )
    sample = mangled[:: max(len(mangled) // 997, 1)]
    assert len(sample) >= 997
    told = subprocess.run(
        ["c++filt"], input=b"\n".join(sample), capture_output=True, check=True
    ).stdout.decode()
    for ours, theirs in zip(readable_names(sample), told.splitlines(), strict=True):
        if len(theirs) > 512:
            assert ours == theirs[:511] + "…"
        else:
            assert ours == theirs


def test_a_descriptor_stays_open_and_where_it_was(tmp_path):
    program = compile_c(tmp_path, PROGRAM)
    with program.open("rb", buffering=0) as file:
        file.seek(11)
        with open_elf(file.fileno()) as elf:
            by_descriptor = elf.symbols()
        assert file.tell() == 11
    with open_elf(program) as elf:
        by_path = elf.symbols()
    assert by_descriptor.starts.tolist() == by_path.starts.tolist()


def test_an_elf_file_gives_its_descriptor_back(tmp_path):
    program = compile_c(tmp_path, PROGRAM)

    def descriptors():
        """Counts those of the program: the garbage of other tests may be collected meanwhile."""
        return sum(one.path == str(program) for one in psutil.Process().open_files())

    files = [open_elf(program) for _ in range(7)]
    assert descriptors() == 7
    files[0].close()
    del files
    assert descriptors() == 0


@pytest.mark.parametrize("what", ["missing", "folder", "pipe", "device", "text", "empty"])
def test_a_file_that_is_not_elf_gives_one_clear_error(tmp_path, what):
    path = tmp_path / what
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path = Path("/dev/zero")
    elif what == "text":
        path.write_text("#!/bin/sh\necho hello\n" * 100)
    elif what == "empty":
        path.touch()
    with pytest.raises(UnreadableSymbols) as caught:
        open_elf(path)
    assert str(path) in str(caught.value)


def test_a_device_or_pipe_is_not_even_opened(tmp_path):
    """Opening a tape rewinds it, opening a watchdog starts it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    libc = ctypes.CDLL("libc.so.6")
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        in_open = 0x20
        assert libc.inotify_add_watch(watch, os.fsencode(pipe), in_open) >= 0
        with pytest.raises(UnreadableSymbols):
            open_elf(pipe)
        with pytest.raises(BlockingIOError):
            os.read(watch, 4096)
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        assert os.read(watch, 4096)
    finally:
        os.close(watch)


def test_more_sections_than_anyone_has_are_a_problem(tmp_path):
    program = compile_c(tmp_path, PROGRAM)
    data = bytearray(program.read_bytes())
    data[40:48] = len(data).to_bytes(8, "little")
    data[60:62] = (60_000).to_bytes(2, "little")
    program.write_bytes(data + bytes(60_000 * 64))
    with open_elf(program) as elf:
        assert elf.sections == []
        assert len(elf.symbols()) == 0
        assert "60000 section headers" in elf.problems[0]


def test_a_pipe_by_descriptor_is_refused():
    reader, writer = os.pipe()
    try:
        with pytest.raises(UnreadableSymbols, match="not a regular file"):
            open_elf(reader)
    finally:
        os.close(reader)
        os.close(writer)
