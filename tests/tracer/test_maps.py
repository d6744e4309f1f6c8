"""The mappings of real processes that have very many: what is kept of them is bounded."""

import json
import mmap
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from tracer.probes.errors import BadTrace
from tracer.session import address_spaces
from tracer.session.libraries import open_libraries
from tracer.store import maps
from tracer.store.checked import encoded
from tracer.store.names import original

PAGES = 5_003
MANY = 60_013
"""Less than vm.max_map_count is by default, with room for what Python itself maps."""

ALTERNATING = """
for page in range(0, {pages}, 2):
    libc.mprotect(ctypes.c_void_p(start + page * 4096), 4096, 0)
"""
OF_ONE_FILE = """
for page in range({pages}):
    # The same page of the file again and again: no mapping continues the one before.
    assert mmap64(start + page * 4096, 4096, 1, 0x12, fd, 0) == start + page * 4096
"""
SOURCE = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
mmap64 = libc.mmap64
mmap64.restype = ctypes.c_uint64
mmap64.argtypes = (ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                   ctypes.c_int64)
fd = os.open({path!r}, os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 4096)
start = mmap64(0, {pages} * 4096, 3, 0x22, -1, 0)
{load}
print(hex(start), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def mapped(tmp_path):
    """Start a process that maps so many pages by a load; returns it and where that begins."""
    running = []

    def start(load, pages=PAGES, path=tmp_path / "mapped"):
        source = SOURCE.format(path=str(path), pages=pages, load=load.format(pages=pages))
        command = [sys._base_executable, "-S", "-E", "-c", source]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        running.append(subprocess.Popen(command, **pipes))
        return running[-1], int(running[-1].stdout.readline(), 16)

    yield start
    for process in running:
        process.kill()
        process.communicate()


def written(path, *processes):
    address_spaces.write_mappings(path, [process.pid for process in processes])
    return list(maps.Maps(path))


def test_a_page_that_may_be_used_otherwise_is_no_mapping_of_its_own(mapped, tmp_path):
    process, start = mapped(ALTERNATING, MANY)
    ((pid, _, found),) = written(tmp_path / "maps", process)
    assert pid == process.pid
    (mapping,) = [m for m in found if m[0] <= start < m[1]]
    assert mapping[1] >= start + MANY * mmap.PAGESIZE
    assert len(found) < 200


@pytest.mark.parametrize("name", ["a\\101", "\n", "\udcff", "\\xff", " \u2028 "], ids=ascii)
def test_a_path_is_written_as_the_file_is_called(tmp_path, name):
    path = tmp_path / f"-{name}-"
    path.write_bytes(b"x")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        address_spaces.write_mappings(tmp_path / "maps", [os.getpid()])
    ((_, _, found),) = list(maps.Maps(tmp_path / "maps"))
    inode = path.stat().st_ino
    (written,) = [path for *_, (path, _, number) in found if number == inode]
    assert original(written) == os.fsencode(path)


def test_a_path_is_written_once_however_often_it_is_mapped(mapped, tmp_path):
    """A process may map a file 65,530 times by a path of 4,096 bytes."""
    deep = tmp_path.joinpath(*["d" * 250] * 14)
    deep.mkdir(parents=True)
    path = deep / "f"
    processes = [mapped(OF_ONE_FILE, path=path)[0] for _ in range(2)]
    snapshots = written(tmp_path / "maps", *processes)
    assert (tmp_path / "maps").read_bytes().count(os.fsencode(path)) == 1
    for _, _, found in snapshots:
        assert sum(file[0] == str(path) for *_, file in found) == PAGES


def test_mappings_of_more_values_than_are_read_are_counted(tmp_path):
    """Some distributions allow a process a million mappings (vm.max_map_count)."""
    file = "", (0, 0), 0
    every = [(n << 13, (n << 13) + 4096, 0, file) for n in range(16, 600_000)]
    most = maps.MOST_BYTES_OF_A_PROCESS - 128
    files, kept, left_out = address_spaces._within(most, every, {})
    (tmp_path / "maps").write_bytes(encoded((7, 1, files, kept)) + b"\n")
    ((_, _, found),) = list(maps.Maps(tmp_path / "maps"))
    assert len(found) == len(every) - left_out
    assert len(found) > 400_000


def test_a_library_is_looked_for_in_mappings_of_any_number(mapped, tmp_path):
    deep = tmp_path.joinpath(*["d" * 250] * 14)
    deep.mkdir(parents=True)
    process, _ = mapped(OF_ONE_FILE, path=deep / "f")
    text = Path(f"/proc/{process.pid}/maps").read_bytes()
    tracemalloc.start()
    try:
        assert open_libraries([process.pid], rb"/no such library$") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(text) // 8


@pytest.fixture
def limits(monkeypatch):
    """Set the limits of the file, in all and of a process."""

    def to(most, of_a_process):
        for module in (address_spaces, maps):
            monkeypatch.setattr(module, "MOST_BYTES", most)
            monkeypatch.setattr(module, "MOST_BYTES_OF_A_PROCESS", of_a_process)

    return to


def test_mappings_beyond_a_process_limit_are_counted(mapped, tmp_path, limits):
    process, _ = mapped(OF_ONE_FILE)
    every = len(written(tmp_path / "all", process)[0][2])
    limits(1 << 20, 1 << 16)
    left_out = address_spaces.write_mappings(tmp_path / "some", [process.pid])
    assert (tmp_path / "some").stat().st_size < 1 << 16
    ((_, _, kept),) = list(maps.Maps(tmp_path / "some"))
    assert len(kept) > 500
    assert [*left_out.values()] == [every - len(kept)]


def test_processes_beyond_the_limit_in_all_are_counted(tmp_path, limits):
    limits(1 << 14, 1 << 13)
    left_out = address_spaces.write_mappings(tmp_path / "maps", [os.getpid()] * 10)
    assert (tmp_path / "maps").stat().st_size < 1 << 14
    kept = len(list(maps.Maps(tmp_path / "maps")))
    assert 1 < kept < 10
    (not_looked_at,) = [n for text, n in left_out.items() if text.startswith("processes' ")]
    assert not_looked_at == 10 - kept


@pytest.mark.parametrize(
    "line",
    [
        [7, 1, [], [[0, 4096, 0, 0]]],
        [7, 1, [["/x", [8, 1], 5]], [[0, 4096, 0, 1]]],
        [7, 1, [["/x", [8, 1], 5]], [[0, 4096, 0, -1]]],
        [7, 1, [["/x", [8, 1]]], []],
    ],
)
def test_a_line_that_cannot_be_is_refused(tmp_path, line):
    path = tmp_path / "maps"
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(BadTrace):
        list(maps.Maps(path))


def test_a_line_without_an_end_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "maps"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadTrace, match="too long"):
        list(maps.Maps(path))


def test_only_whole_lines_of_a_killed_recorder_are_read(tmp_path):
    path = tmp_path / "maps"
    path.write_text('[7, 1, [["/x", [8, 1], 5]], [[4096, 8192, 0, 0]]]\n[8, 2, [], [[0')
    assert list(maps.Maps(path)) == [(7, 1, [(4096, 8192, 0, ("/x", (8, 1), 5))])]
