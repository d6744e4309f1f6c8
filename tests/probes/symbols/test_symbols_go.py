"""Go programs without symbols name their functions by their own table."""

import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.support.binaries import assemble, functions_of, needs_binutils, run
from tests.support.go_tables import CODE, NAMES, table_source
from tracer.probes.symbols.elf import open_elf
from tracer.probes.symbols.go import go_functions
from tracer.probes.symbols.table import build_table

pytestmark = [needs_binutils, pytest.mark.slow]

DOCKER = {
    name: path
    for name in ("dockerd", "docker", "containerd", "containerd-shim-runc-v2", "runc")
    if (path := shutil.which(name, path="/usr/sbin:/usr/bin"))
}


def go_table(path):
    with open_elf(path) as elf:
        return build_table(go_functions(elf)), elf


def names_by_address(path):
    table, _ = go_table(path)
    return dict(zip(table.starts.tolist(), table.names_of(table.starts), strict=True))


@pytest.mark.parametrize("name", ["dockerd", "docker", "containerd", "runc"])
def test_the_programs_of_docker_know_their_functions(name):
    if name not in DOCKER:
        pytest.skip(f"{name} is not installed")
    found = names_by_address(DOCKER[name])
    assert len(found) > 5000
    assert {
        "main.main",
        "runtime.main",
        "runtime.mallocgc",
        "runtime.memclrNoHeapPointers",
        "runtime.(*spanSet).push",
    } <= set(found.values())
    with open_elf(DOCKER[name]) as elf:
        assert elf.problems == []
        text = elf.section(".text")
        offsets = np.array(sorted(found), dtype=np.int64) - text.address + text.offset
        assert elf.at_file_offsets(offsets) == [found[address] for address in sorted(found)]


@pytest.mark.parametrize("name", ["dockerd", "containerd", "containerd-shim-runc-v2"])
def test_they_agree_with_the_symbols_that_the_linker_exported(name):
    """Debian's dynamic symbol tables of these name nearly all functions: an independent truth.

    The linker shortens the names of types in them to hashes, and writes type arguments out.
    """
    if name not in DOCKER:
        pytest.skip(f"{name} is not installed")
    table, _ = go_table(DOCKER[name])
    low, high = int(table.starts[0]), int(table.ends[-1])
    functions = [f for f in functions_of(DOCKER[name], dynamic=True) if low <= f.address < high]
    if len(functions) < 1000:
        pytest.skip(f"this build of {name} exports only {len(functions)} functions")
    starts = table.names_of(np.array([f.address for f in functions], dtype=np.uint64))
    ends = table.names_of(np.array([f.address + f.size - 1 for f in functions], dtype=np.uint64))
    assert starts == ends
    compared = 0
    for function, got in zip(functions, starts, strict=True):
        wanted = function.name.decode()
        if wanted.startswith("type.") or "type.." in wanted:
            assert got is not None
            continue
        compared += 1
        assert plain(got) == plain(wanted)
    assert compared > 0.9 * len(functions)


def plain(name):
    return re.sub(r"\[.*\]", "[...]", name.removesuffix(".abi0")).replace("·", ".")


def test_a_program_that_was_not_stripped_has_the_names_of_its_own_table(tmp_path):
    """Unstripped Go programs are rare: this holds for each that is found on the search path."""
    for name in ("docker", "gh", "kubectl", "go", "gofmt", "hugo", "terraform", "docker-compose"):
        path = shutil.which(name)
        if path is None:
            continue
        table, elf = go_table(path)
        if not len(table) or not any(s.kind == "SHT_SYMTAB" for s in elf.sections):
            continue
        low, high = int(table.starts[0]), int(table.ends[-1])
        functions = [f for f in functions_of(Path(path)) if low <= f.address < high]
        got = table.names_of(np.array([f.address for f in functions], dtype=np.uint64))
        assert [plain(g) for g in got] == [plain(f.name.decode()) for f in functions]
        assert len(functions) > 1000
        return
    pytest.skip("no unstripped Go program on the search path")


def patched(path, folder, changes):
    """A copy of a program with `changes`: {file offset: bytes}."""
    copy = folder / Path(path).name
    shutil.copy(path, copy)
    with copy.open("r+b") as file:
        for offset, data in changes.items():
            file.seek(offset)
            file.write(data)
    return copy


def field_of_text_start(path):
    """File offset of the head's textStart, by searching the file for what it must look like."""
    data = Path(path).read_bytes()
    (found,) = {
        m.start()
        for magic in (b"\xf0", b"\xf1")
        for m in re.finditer(re.escape(magic + b"\xff\xff\xff\0\0\1\x08"), data)
        if m.start() % 32 == 0
    }
    return found + 24


@pytest.mark.parametrize("name", ["runc", "docker", "dockerd"])
def test_moduledata_gives_the_start_of_the_text_if_the_head_does_not(name, tmp_path):
    """Go 1.26 leaves the field 0. Of position-independent programs it may be 0 in the file and
    filled in by a relocation, which then still counts."""
    if name not in DOCKER:
        pytest.skip(f"{name} is not installed")
    field = field_of_text_start(DOCKER[name])
    copy = patched(DOCKER[name], tmp_path, {field: bytes(8)})
    wanted, _ = go_table(DOCKER[name])
    table, elf = go_table(copy)
    assert elf.problems == []
    assert table.starts.tolist() == wanted.starts.tolist()
    assert table.ends.tolist() == wanted.ends.tolist()


def test_without_any_start_of_the_text_there_are_no_names_rather_than_wrong_ones(tmp_path):
    if "runc" not in DOCKER:
        pytest.skip("runc is not installed")
    with open_elf(DOCKER["runc"]) as elf:
        pclntab = elf.section(".gopclntab")
        data = Path(DOCKER["runc"]).read_bytes()
        pointer = struct.pack("<Q", pclntab.address)
    changes = {m.start(): bytes(8) for m in re.finditer(re.escape(pointer), data)}
    assert changes
    changes[field_of_text_start(DOCKER["runc"])] = bytes(8)
    table, elf = go_table(patched(DOCKER["runc"], tmp_path, changes))
    assert len(table) == 0
    assert "were not found" in elf.problems[0]


def without_relocated_words(program):
    """Clear each word that a relocation fills in, as some linkers leave them."""
    places = re.findall(r"^([0-9a-f]+) .*R_X86_64_RELATIVE", run("readelf", "-rW", program), re.M)
    assert places
    with open_elf(program) as elf:
        found = [(int(place, 16), elf.section_at(int(place, 16))) for place in places]
    data = bytearray(program.read_bytes())
    for address, section in found:
        offset = address - section.address + section.offset
        data[offset : offset + 8] = bytes(8)
    program.write_bytes(data)


@pytest.mark.parametrize("version", ["1.2", "1.16", "1.18", "1.20"])
@pytest.mark.parametrize(
    ("section", "kind", "bits"),
    [
        (".gopclntab", "exec", 64),
        (".data.rel.ro.gopclntab", "pie", 64),
        (".data.rel.ro", "pie", 64),
        (".gopclntab", "exec", 32),
    ],
)
def test_each_format_by_hand(tmp_path, version, section, kind, bits):
    flags = '"aw"' if kind == "pie" else '"a"'
    word, pointer = (".quad", 8) if bits == 64 else (".long", 4)
    source = CODE + f".section {section}, {flags}\n.balign 32\n"
    # In a searched section the table is not the first thing.
    source += ".fill 96, 1, 0xff\n" if section == ".data.rel.ro" else ""
    source += table_source(version, word, pointer)
    program = assemble(
        tmp_path, source, bits=bits, link=("-pie", "--no-dynamic-linker") if kind == "pie" else ()
    )
    run("strip", program)
    if kind == "pie":
        without_relocated_words(program)
    table, elf = go_table(program)
    assert elf.problems == []
    start = elf.section(".text").address + 1
    got = table.names_of(np.arange(start - 1, start + 10, dtype=np.uint64))
    assert got == [None, *[NAMES[0]] * 3, *[NAMES[1]] * 2, *[NAMES[2]] * 4, None]


def test_a_magic_number_that_heads_no_table_is_passed_over(tmp_path):
    source = CODE + '.section .data.rel.ro, "aw"\n.balign 32\n'
    decoy = ".long 0xfffffff1; .byte 0, 0, 1, 8\n.quad {}\n.fill 64, 1, 0x77\n.balign 8\n"
    source += decoy.format(3) + decoy.format(1 << 60) + decoy.format(0)
    real = table_source("1.20", ".quad", 8)
    for broken in (
        real.replace(".quad 3", ".quad 0"),
        real.replace("f1 - _start", "f2 - _start + 1"),
        real.replace("_start, names", "_start + 0x7f000000, names"),
    ):
        assert broken != real
        source += re.sub(r"\b(table|names|files|functions|record\d|name\d)\b", "\\1_x", broken)
        source = source.replace("_x", f"_{len(source)}") + ".balign 32\n"
    source += table_source("1.20", ".quad", 8)
    program = assemble(tmp_path, source)
    run("strip", program)
    table, elf = go_table(program)
    assert table.names_of(table.starts) == NAMES
    assert int(table.starts[0]) == elf.section(".text").address + 1
    assert elf.problems == []


@pytest.mark.parametrize("kind", ["exec", "pie"])
@pytest.mark.parametrize("section", [".go.module", ".noptrdata"])
def test_moduledata_by_hand(tmp_path, kind, section):
    """Since Go 1.26 the head says 0, and a position-independent file may say nothing at all."""
    table = table_source("1.20", ".quad", 8).replace(".quad 0, _start, ", ".quad 0, 0, ")
    slices = ".quad {}, 1, 1\n"
    module = "module: .quad {}\n" + slices.format("names") + 5 * slices.format("files")
    module += ".quad files, {low}, end, {text}, end, 0, 0, 0\n"
    source = CODE + '.section .gopclntab, "aw"\n.balign 32\n' + table
    # Words that point to the table but are not its moduledata come first.
    source += f'.section {section}, "aw"\n.balign 32\n.quad table, table, 0\n'
    source += module.format("table", low="f1", text="_start - 1").replace("module", "other")
    source += module.format("table", low="f0", text="_start")
    program = assemble(
        tmp_path, source, link=("-pie", "--no-dynamic-linker") if kind == "pie" else ()
    )
    run("strip", program)
    if kind == "pie":
        without_relocated_words(program)
    table, elf = go_table(program)
    assert elf.problems == []
    assert table.names_of(table.starts) == NAMES
    assert int(table.starts[0]) == elf.section(".text").address + 1


def test_a_program_not_made_by_go_is_not_searched(tmp_path):
    source = CODE.replace(".go.buildinfo", ".other") + '.section .data.rel.ro, "aw"\n.balign 32\n'
    program = assemble(tmp_path, source + table_source("1.20", ".quad", 8))
    table, elf = go_table(program)
    assert len(table) == 0
    assert elf.problems == []
