"""Files by path: each opened once, only while it is the file that was mapped."""

import os
import shutil

import numpy as np
import pytest

from probes.symbols.elf import open_elf
from probes.symbols.files import FileIdentity, SymbolCache
from tests.support.binaries import PROGRAM, compile_c, functions_of, needs_binutils

pytestmark = needs_binutils


@pytest.fixture
def program(tmp_path):
    return compile_c(tmp_path, PROGRAM)


@pytest.fixture
def offset(program):
    """The file offset of `hidden`."""
    function = next(f for f in functions_of(program) if f.name == b"hidden")
    with open_elf(program) as elf:
        text = elf.section(".text")
        return np.array([function.address - text.address + text.offset, 0, -5])


def test_a_path_in_any_form(program, offset):
    cache = SymbolCache()
    for path in (program, str(program), os.fsencode(program)):
        assert cache.resolve(path, offset) == ["hidden", None, None]
    assert cache.problems == []


def test_a_file_is_opened_once(program, offset):
    cache = SymbolCache()
    cache.resolve(program, offset)
    program.unlink()
    assert cache.resolve(program, offset) == ["hidden", None, None]


def test_no_descriptor_stays_open(program, offset):
    before = len(os.listdir("/proc/self/fd"))
    cache = SymbolCache()
    cache.resolve(program, np.array([], dtype=np.int64))
    assert len(os.listdir("/proc/self/fd")) == before
    assert cache.resolve(program, offset)[0] == "hidden"


def test_the_longest_unused_is_forgotten(program, offset, tmp_path):
    cache = SymbolCache(max_tables=2)
    copies = [tmp_path / f"copy{i}" for i in range(3)]
    for copy in copies:
        shutil.copy(program, copy)
    cache.resolve(copies[0], offset)
    cache.resolve(copies[1], offset)
    cache.resolve(copies[0], offset)
    cache.resolve(copies[2], offset)
    for copy in copies:
        copy.unlink()
    assert [cache.resolve(copy, offset)[0] for copy in (copies[0], copies[2])] == ["hidden"] * 2
    assert cache.resolve(copies[1], offset) == [None] * 3


def test_tables_are_kept_by_their_bytes_too(program, offset, tmp_path):
    cache = SymbolCache(max_bytes=1)
    copy = tmp_path / "copy"
    shutil.copy(program, copy)
    assert cache.resolve(copy, offset)[0] == "hidden"
    cache.resolve(program, offset)
    copy.unlink()
    assert cache.resolve(copy, offset)[0] is None


def test_a_file_that_cannot_be_read_is_named_once(tmp_path, offset):
    cache = SymbolCache()
    os.mkfifo(tmp_path / "pipe")
    for _ in range(3):
        assert cache.resolve(tmp_path / "pipe", offset) == [None] * 3
        assert cache.resolve(tmp_path / "missing", offset) == [None] * 3
    assert len(cache.problems) == 2
    assert "no regular file" in cache.problems[0]
    assert "missing" in cache.problems[1]


def test_a_path_with_a_nul_is_no_path(offset):
    cache = SymbolCache()
    assert cache.resolve("/tmp/a\0b", offset) == [None] * 3
    assert cache.problems[0].isprintable()


def test_what_the_file_was_when_it_was_mapped(program, offset):
    status = program.stat()
    with open_elf(program) as elf:
        build_id = elf.build_id
    same = [
        FileIdentity(),
        FileIdentity(build_id=build_id),
        FileIdentity(device=status.st_dev, inode=status.st_ino),
        FileIdentity(latest_ctime=status.st_ctime_ns),
        FileIdentity(build_id, status.st_dev, status.st_ino, status.st_ctime_ns + 1),
    ]
    other = [
        (FileIdentity(build_id="00" + build_id[2:]), "build id"),
        (FileIdentity(device=status.st_dev + 1), "device"),
        (FileIdentity(inode=status.st_ino + 1), "inode"),
        (FileIdentity(latest_ctime=status.st_ctime_ns - 1), "changed"),
        (FileIdentity(build_id, inode=status.st_ino + 1), "inode"),
    ]
    for mapped in same:
        assert SymbolCache().resolve(program, offset, mapped) == ["hidden", None, None]
    for mapped, word in other:
        cache = SymbolCache()
        assert cache.resolve(program, offset, mapped) == [None] * 3
        assert word in cache.problems[0]
    # One mapping of an older file does not spoil those of the newer one.
    cache = SymbolCache()
    assert cache.resolve(program, offset, other[0][0])[0] is None
    assert cache.resolve(program, offset)[0] == "hidden"


def test_a_damaged_part_is_a_problem_and_no_end(program, offset):
    data = bytearray(program.read_bytes())
    with open_elf(program) as elf:
        symtab = next(s for s in elf.sections if s.kind == "SHT_SYMTAB")
    shoff = int.from_bytes(data[40:48], "little")
    entry_size = shoff + 64 * symtab.index + 56
    data[entry_size] = 25
    program.write_bytes(data)
    cache = SymbolCache(debug_root=None)
    assert cache.resolve(program, offset)[0] != "hidden"
    assert ".symtab" in cache.problems[0]
