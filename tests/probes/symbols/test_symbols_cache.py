"""Files by path: each opened once, only while it is the file that was mapped."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.binaries import PROGRAM, compile_c, functions_of, needs_binutils
from tracer.probes.symbols.budget import Budget
from tracer.probes.symbols.elf import open_elf
from tracer.probes.symbols.files import FileIdentity, SymbolCache

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


@pytest.fixture
def cache():
    with SymbolCache() as opened:
        yield opened


def test_a_path_in_any_form(cache, program, offset):
    for path in (program, str(program), os.fsencode(program)):
        assert cache.resolve(path, offset) == ["hidden", None, None]
    assert cache.problems == []


def test_a_file_is_opened_once(cache, program, offset):
    cache.resolve(program, offset)
    program.unlink()
    assert cache.resolve(program, offset) == ["hidden", None, None]


def test_no_descriptor_and_no_process_outlives_the_cache(program, offset):
    before = len(os.listdir("/proc/self/fd"))
    with SymbolCache() as cache:
        assert cache.resolve(program, offset)[0] == "hidden"
        workers = [each._worker.pid for each in (cache._opener, cache._reader)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert not any(Path("/proc", str(pid)).exists() for pid in workers)


def test_the_process_that_reads_has_no_rights(cache, program, offset):
    cache.resolve(program, offset)
    pid = cache._reader._worker.pid
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    if os.geteuid() == 0:
        assert status["Uid"].split() == status["Gid"].split() == ["65534"] * 4
        assert status["Groups"].strip() == ""
    limits = Path(f"/proc/{pid}/limits").read_text()
    for name in ("cpu time", "address space", "core file size", "processes"):
        assert "unlimited" not in next(x for x in limits.splitlines() if f"Max {name}" in x)


def test_the_longest_unused_is_forgotten(program, offset, tmp_path):
    copies = [tmp_path / f"copy{i}" for i in range(3)]
    for copy in copies:
        shutil.copy(program, copy)
    with SymbolCache(Budget(tables=2)) as cache:
        cache.resolve(copies[0], offset)
        cache.resolve(copies[1], offset)
        cache.resolve(copies[0], offset)
        cache.resolve(copies[2], offset)
        for copy in copies:
            copy.unlink()
        assert [cache.resolve(copy, offset)[0] for copy in (copies[0], copies[2])] == ["hidden"] * 2
        assert cache.resolve(copies[1], offset) is None


def test_tables_are_kept_by_their_bytes_too(program, offset, tmp_path):
    copy = tmp_path / "copy"
    shutil.copy(program, copy)
    with SymbolCache(Budget(table_bytes=1)) as cache:
        assert cache.resolve(copy, offset)[0] == "hidden"
        cache.resolve(program, offset)
        copy.unlink()
        assert cache.resolve(copy, offset) is None


def test_a_file_that_cannot_be_read_is_named_once(cache, tmp_path, offset):
    os.mkfifo(tmp_path / "pipe")
    for _ in range(3):
        assert cache.resolve(tmp_path / "pipe", offset) is None
        assert cache.resolve(tmp_path / "missing", offset) is None
    assert len(cache.problems) == 2
    assert "not a regular file" in cache.problems[0]
    assert "missing" in cache.problems[1]
    assert not cache.left_out


def test_a_path_with_a_nul_is_no_path(cache, offset):
    assert cache.resolve("/tmp/a\0b", offset) is None
    assert cache.problems[0].isprintable()


def test_names_come_from_the_file_as_it_was_when_mapped(cache, program, offset):
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
        (FileIdentity(inode=status.st_ino + 1), "inode"),
        (FileIdentity(latest_ctime=status.st_ctime_ns - 1), "changed"),
        (FileIdentity(build_id, inode=status.st_ino + 1), "inode"),
    ]
    another = FileIdentity(device=status.st_dev + 1)
    if os.major(status.st_dev):
        other.append((another, "device"))
    else:  # tmpfs, btrfs, overlay: the device of a mapping need not be that of its file
        same.append(another)
    for mapped in same:
        assert cache.resolve(program, offset, mapped) == ["hidden", None, None]
    for mapped, word in other:
        with SymbolCache() as fresh:
            assert fresh.resolve(program, offset, mapped) is None
            assert word in fresh.problems[0]
            # One mapping of an older file does not spoil those of the newer one.
            assert fresh.resolve(program, offset) == ["hidden", None, None]


def test_a_damaged_part_is_a_problem_and_no_end(cache, program, offset):
    data = bytearray(program.read_bytes())
    with open_elf(program) as elf:
        symtab = next(s for s in elf.sections if s.kind == "SHT_SYMTAB")
    shoff = int.from_bytes(data[40:48], "little")
    entry_size = shoff + 64 * symtab.index + 56
    data[entry_size] = 25
    program.write_bytes(data)
    assert cache.resolve(program, offset)[0] != "hidden"
    assert ".symtab" in cache.problems[0]
