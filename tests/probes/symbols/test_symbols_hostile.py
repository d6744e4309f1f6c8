"""No file, however made, does more than have no names: one error, bounded memory, an end."""

import os
import resource
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.binaries import PROGRAM, assemble, compile_c, needs_binutils, run
from tests.support.budget import MEMORY_BYTES, run_within
from tests.support.elf_images import pyramid
from tests.support.go_tables import CODE, table_source
from tracer.probes.symbols.elf import open_elf
from tracer.probes.symbols.reading import UnreadableSymbols
from tracer.probes.symbols.table import build_table

pytestmark = [needs_binutils, pytest.mark.slow]

INTERESTING = [0, 1, 2, 3, 7, 8, 16, 24, 64, 255, 4096, 0x7FFF, 0xFF00, 0xFFFE, 0xFFFF, 1 << 31]
INTERESTING += [(1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 4096]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Small real files of each kind: whole, dynamic, of 32 bits, of Go in both ways."""
    folder = tmp_path_factory.mktemp("images")

    def assembled(name, source, **options):
        (folder / name).mkdir()
        return assemble(folder / name, source, **options).read_bytes()

    program = compile_c(folder, PROGRAM, "-fPIE", "-pie")
    shared = compile_c(folder, PROGRAM, "-fPIC", "-shared", name="library")
    run("strip", shared)
    small = ".globl _start\n.type _start,@function\n_start: nop\n.size _start,1\nlabel: nop\n"
    go = CODE + '.section .data.rel.ro, "aw"\n.balign 32\n' + table_source("1.20", ".quad", 8)
    old_go = CODE + '.section .gopclntab, "a"\n.balign 32\n' + table_source("1.2", ".quad", 8)
    mid_go = CODE + '.section .gopclntab, "aw"\n.balign 32\n' + table_source("1.16", ".quad", 8)
    return [
        program.read_bytes(),
        shared.read_bytes(),
        assembled("small", small, bits=32),
        assembled("go", go, link=("-pie", "--no-dynamic-linker")),
        assembled("old_go", old_go),
        assembled("mid_go", mid_go, link=("-pie", "--no-dynamic-linker")),
    ]


def places_that_matter(image):
    """Offsets of the fields of the header, of sections, of segments, and of a Go table."""
    wide = image[4] == 2
    places = list(range(4, 64, 2))
    if wide:
        phoff, shoff = struct.unpack_from("<QQ", image, 32)
        phnum, shnum = (
            struct.unpack_from("<H", image, 56)[0],
            struct.unpack_from("<H", image, 60)[0],
        )
        entry, segment = 64, 56
    else:
        phoff, shoff = struct.unpack_from("<II", image, 28)
        phnum, shnum = (
            struct.unpack_from("<H", image, 44)[0],
            struct.unpack_from("<H", image, 48)[0],
        )
        entry, segment = 40, 32
    places += range(phoff, phoff + phnum * segment, 4)
    places += range(shoff, shoff + shnum * entry, 4)
    for magic in (b"\xf1", b"\xfa", b"\xfb"):
        table = image.find(magic + b"\xff\xff\xff\0\0\1")
        if table >= 0:
            places += list(range(table, table + 200, 4)) * 2
    return places


@st.composite
def changes(draw):
    """Up to six fields of any width set to something that may hurt, and a cut."""
    return (
        draw(st.integers(0, 5)),
        draw(
            st.lists(
                st.tuples(
                    st.integers(0, 1 << 16),
                    st.sampled_from([1, 2, 4, 8]),
                    st.sampled_from(INTERESTING) | st.integers(0, (1 << 64) - 1),
                ),
                max_size=6,
            )
        ),
        draw(st.none() | st.floats(0, 1)),
    )


def look_at(image):
    """All that one may ask of a file; returns how many functions it has, None where refused."""
    fd = os.memfd_create("hostile", os.MFD_CLOEXEC)
    try:
        os.write(fd, image)
        try:
            elf = open_elf(fd)
        except UnreadableSymbols:
            return None
        with elf:
            table = elf.symbols()
            names = elf.at_file_offsets(np.array([-1, 0, 64, 4096, 4097, 1 << 40, (1 << 63) - 1]))
            elf.build_id  # noqa: B018 (it must not raise)
        assert len(names) == 7
        assert (table.starts < table.ends).all()
        assert (table.starts[1:] >= table.ends[:-1]).all()
        for name in [*names, *table.names_of(table.starts[:50])]:
            assert name is None or (len(name) <= 512 and name.isprintable())
        assert all(problem.isprintable() and len(problem) < 1000 for problem in elf.problems)
        return len(table)
    finally:
        os.close(fd)


@settings(
    deadline=None,
    max_examples=1500,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(change=changes())
def test_changed_files_have_fewer_names_and_nothing_else(images, change):
    which, fields, cut = change
    image = bytearray(images[which])
    places = places_that_matter(image)
    for place, width, value in fields:
        where = places[place % len(places)]
        raw = (value % (1 << 8 * width)).to_bytes(width, "little")
        if where + width <= len(image):
            image[where : where + width] = raw
    if cut is not None:
        image = image[: int(cut * len(image))]
    look_at(bytes(image))


def test_unchanged_each_of_the_files_has_its_functions(images):
    assert all((look_at(image) or 0) >= 2 for image in images)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=400))
def test_bytes_that_only_begin_like_an_elf_file(tail):
    look_at(b"\x7fELF" + tail)
    look_at(b"\x7fELF\x02\x01\x01" + bytes(9) + tail)


def stretch(path, kinds):
    """Has the sections of these kinds begin where they are and end near 64 GiB."""
    size = 1 << 36
    os.truncate(path, size)
    with path.open("r+b") as file:
        head = file.read(64)
        (shoff,) = struct.unpack_from("<Q", head, 40)
        (count,) = struct.unpack_from("<H", head, 60)
        for index in range(count):
            file.seek(shoff + index * 64)
            section = bytearray(file.read(64))
            if struct.unpack_from("<I", section, 4)[0] in kinds:
                struct.pack_into("<Q", section, 32, size - (1 << 30))
                file.seek(shoff + index * 64)
                file.write(section)


def memory_of(path):
    """Returns the MiB that it takes to ask a file for everything."""
    build_table([])  # compiled before
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open_elf(path) as elf:
        elf.symbols()
        elf.build_id  # noqa: B018 (it must not take memory)
        elf.at_file_offsets(np.arange(1000))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10


@pytest.mark.parametrize(
    ("image", "kinds"),
    [
        (0, (2, 3, 11)),  # symbols and names of 63 GiB
        (0, (3,)),
        (1, (4, 7)),  # relocations, notes
        (3, (1,)),  # everything else, so what is searched for a table of Go
        (4, (1,)),
        (0, (1, 2, 3, 4, 7, 11)),
    ],
)
def test_sections_of_many_gigabytes_take_neither_memory_nor_for_ever(
    tmp_path, images, image, kinds
):
    path = tmp_path / "huge"
    path.write_bytes(images[image])
    stretch(path, kinds)
    assert run_within(MEMORY_BYTES, memory_of, path) < 300


def test_symbols_that_all_lie_over_each_other_are_cut_in_no_more_than_twice_as_many(tmp_path):
    """A pyramid of 100,003 functions: the worst that overlapping can do."""
    count = 100_003
    image = bytearray(pyramid(count))
    fd = os.memfd_create("pyramid", os.MFD_CLOEXEC)
    try:
        os.write(fd, image)
        with open_elf(fd) as elf:
            table = elf.symbols()
            assert elf.problems == []
    finally:
        os.close(fd)
    assert len(table) == 2 * count - 1
    assert table.name(count - 1) == "f"
