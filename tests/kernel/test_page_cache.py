"""Reads of files whose pages are counted by their reader, and by the kernel's call cachestat."""

import contextlib
import ctypes
import json
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import loads
from tests.support.backends import every_backend
from tests.support.file_systems import FileSystems
from tracer.analysis.views.reading.reads import reads

PAGE = 4096
LOAD = """
import ctypes, json, mmap, os, random, time

libc = ctypes.CDLL(None, use_errno=True)

class Range(ctypes.Structure):
    _fields_ = [("off", ctypes.c_uint64), ("len", ctypes.c_uint64)]

class Found(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("cache", "dirty", "writeback", "evicted", "recent")]

def cached(fd, first, pages):
    # A call that is preempted skips pages if it begins within a folio: each call asks for one page.
    return sum(cached_page(fd, page) for page in range(first, first + pages))

def cached_page(fd, page):
    found, asked = Found(), Range(page * {page}, {page})
    if libc.syscall(451, fd, ctypes.byref(asked), ctypes.byref(found), 0) != 0:
        raise OSError(ctypes.get_errno(), "cachestat")
    return found.cache

def read(name, reads, advice=None):
    fd = os.open(f"{mount}/" + name, os.O_RDONLY)
    if advice is not None:
        os.posix_fadvise(fd, 0, 0, advice)
    accessed = missed = 0
    before = cached(fd, 0, -(-os.fstat(fd).st_size // {page}))
    for at, size in reads:
        first, last = at // {page}, (at + size - 1) // {page}
        pages = last - first + 1
        accessed += pages
        missed += pages - cached(fd, first, pages)
        assert len(os.pread(fd, size, at)) == size
    size = os.fstat(fd).st_size
    there, when = cached(fd, 0, -(-size // {page})), time.monotonic_ns()
    os.close(fd)
    told.append([name, accessed, missed, before, there, when])

def touch(name, order, advice=None, flags=mmap.MAP_SHARED, write=False):
    fd = os.open(f"{mount}/" + name, os.O_RDWR)
    pages = os.fstat(fd).st_size // {page}
    accessed = missed = 0
    before = cached(fd, 0, pages)
    prot = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
    with mmap.mmap(fd, 0, flags, prot) as mapped:
        if advice is not None:
            mapped.madvise(advice)
        for page in order(pages):
            accessed += 1
            missed += 1 - cached(fd, page, 1)
            if write:
                mapped[page * {page}] = 1
            else:
                mapped[page * {page}]
    there, when = cached(fd, 0, pages), time.monotonic_ns()
    os.close(fd)
    told.append([name, accessed, missed, before, there, when])

def grow(name):
    fd = os.open(f"{mount}/" + name, os.O_RDWR | os.O_APPEND)
    before = cached(fd, 0, os.fstat(fd).st_size // {page})
    accessed = missed = 0
    for offset, size in [(0, 1 << 18), (5000, 300000), (None, 1 << 18), (None, 1 << 18)]:
        at = os.lseek(fd, 0, os.SEEK_CUR) if offset is None else offset
        pages = -(-os.fstat(fd).st_size // {page})
        missing = sum(1 - cached_page(fd, page) for page in range(at // {page}, pages))
        got = os.read(fd, size) if offset is None else os.pread(fd, size, offset)
        accessed += -(-(at + len(got)) // {page}) - at // {page}
        missed += missing
        os.write(fd, bytes(17 * {page}))
    there, when = cached(fd, 0, os.fstat(fd).st_size // {page}), time.monotonic_ns()
    os.close(fd)
    told.append([name, accessed, missed, before, there, when])

def peek(name):
    fd = os.open(f"{mount}/" + name, os.O_RDONLY)
    pages = os.fstat(fd).st_size // {page}
    before = cached(fd, 0, pages)
    accessed = missed = 0
    for ask in (True, False):
        for at in range(0, pages, 3):
            missing = 1 - cached(fd, at, 1)
            try:
                flags = os.RWF_NOWAIT if ask else 0
                got = os.preadv(fd, [bytearray({page})], at * {page}, flags) // {page}
            except BlockingIOError:
                continue
            accessed += got
            missed += missing
    told.append([name, accessed, missed, before, cached(fd, 0, pages), time.monotonic_ns()])
    os.close(fd)

def chunks(pages, chunk, size={page}):
    return [(at * size, min(chunk, pages - at) * size) for at in range(0, pages, chunk)]

told = []
read("cold", chunks(211, 7))
read("cold", chunks(211, 5))
read("whole", [(0, 997 * {page})])
read("single", chunks(101, 1))
read("records", [(0, 127 * {page})])
read("records", [(at, 1000) for at in range(0, 127 * {page} - 1000, 1000)])
read("far", [(page * {page} + 7, 100) for page in range(0, 1009, 89)])
read("random", chunks(149, 3), os.POSIX_FADV_RANDOM)
draw = random.Random(3)
read("mixed", [(draw.randrange(300) * {page}, draw.randrange(1, 40) * {page}) for _ in range(97)])
read("holes", chunks(103, 4))
read("warm", chunks(73, 2))
grow("grown")
peek("not waited for")
touch("mapped", range)
touch("mapped", range)
touch("mapped at random", lambda pages: draw.sample(range(pages), pages), mmap.MADV_RANDOM)
touch("warm and mapped", range)
read("in folios", chunks(1021, 32))
touch("in folios", range)
touch("in folios", range)
read("written", chunks(1021, 32))
touch("written", range, write=True)
read("copied", chunks(1021, 32))
touch("copied", range, flags=mmap.MAP_PRIVATE, write=True)
touch("written when cold", range, write=True)
shared = [os.memfd_create("tracer"), os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)]
for fd in shared:  # in memory only
    os.write(fd, bytes(16 * {page}))
    with mmap.mmap(fd, 0) as mapped:
        for at in range(0, 16 * {page}, {page}):
            mapped[at]
with open(f"{told}", "w") as file:
    json.dump(told, file)
"""
SIZES = {
    "cold": 211, "whole": 997, "single": 101, "records": 127, "far": 1009, "random": 149,
    "mixed": 340, "holes": 103, "warm": 73, "mapped": 107, "mapped at random": 109,
    "warm and mapped": 79, "in folios": 1021, "written": 1021, "copied": 1021,
    "written when cold": 1021, "grown": 7,
    "not waited for": 93,
}  # fmt: skip
"""Pages of each file; mostly primes."""
WARM = ("warm", "warm and mapped")


READ = ("cold", "whole", "single", "records", "far", "random", "mixed", "holes", "warm")
MAPPED = ("mapped", "mapped at random", "warm and mapped", "in folios", "written", "copied")
ACCESSED, MISSED, BEFORE, THERE, WHEN = range(5)


@dataclass
class Reading:
    """A recording of the load, with the load's account by file, and the device read from."""

    recorded: loads.Recorded
    dev: str
    told: dict[str, list[list[int]]]

    def of(self, name: str, column: str) -> int:
        query = f"SELECT sum({column}) FROM reads WHERE dev = ? AND path LIKE ?"
        return self.recorded.one(query, self.dev, f"%/{name}") or 0

    def gone(self, name: str, where: str, *parameters: object) -> int:
        """Returns the pages that left the cache."""
        query = (
            "WITH uses AS (FROM page_uses WHERE dev = ? AND path LIKE ?)"
            f" SELECT coalesce(sum(evicted + removed), 0) FROM uses WHERE {where}"
        )
        return self.recorded.one(query, self.dev, f"%/{name}", *parameters)

    def sum(self, name: str, place: int) -> int:
        return sum(one[place] for one in self.told[name])


@contextlib.contextmanager
def locked(path):
    """Keeps a file's pages in the cache. A kernel that takes cold pages (DAMON) takes none."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped))) != 0:
            raise OSError(ctypes.get_errno(), "mlock", str(path))
        yield


@pytest.fixture(scope="module")
def reading(backend, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page_cache")
    with FileSystems(folder) as make, contextlib.ExitStack() as kept:
        mount, dev = make(kind="ext4")
        for name, pages in SIZES.items():
            with Path(mount, name).open("wb") as file:
                if name == "holes":
                    file.truncate(pages * PAGE)
                else:
                    file.write(os.urandom(pages * PAGE))
        make.anew(mount)
        for name in WARM:
            kept.enter_context(locked(Path(mount, name)))
        told = folder / "told.json"
        source = LOAD.format(mount=mount, page=PAGE, told=told)
        options = ("-e", "default,page_cache")
        recorded = loads.record(folder, {"reads": source}, *options, backend=backend)
        found = {}
        for name, *counts in json.loads(told.read_text()):
            found.setdefault(name, []).append(counts)
        kept.close()
        reads(recorded.trace)
        yield Reading(recorded, dev, found)
    recorded.trace.close()


@every_backend
@pytest.mark.parametrize("name", [*READ, *MAPPED, "grown", "not waited for"])
def test_pages_and_misses_are_those_of_the_reader(reading, name):
    assert reading.of(name, "accessed") == reading.sum(name, ACCESSED)
    assert reading.of(name, "missed") == reading.sum(name, MISSED)
    assert reading.of(name, "hit") == reading.sum(name, ACCESSED) - reading.sum(name, MISSED)


@every_backend
@pytest.mark.parametrize("name", [*READ, *MAPPED])
def test_pages_in_the_cache_are_those_that_were_brought_in(reading, name):
    told = reading.told[name]
    assert (told[0][BEFORE] > 0) == (name in WARM)
    # A kernel that looks for cold pages (DAMON) may take some at any time; the job takes none.
    assert reading.gone(name, "by_pid = ?", reading.recorded.pid("reads")) == 0
    since = "ts > (SELECT min(ts) FROM uses WHERE accessed > 0)"
    gone = reading.gone(name, f"{since} AND ts < ?", told[-1][WHEN])
    assert reading.of(name, "read") == told[-1][THERE] - told[0][BEFORE] + gone


@every_backend
@pytest.mark.parametrize("name", [*READ, *MAPPED])
def test_the_device_reads_all_pages_but_those_of_holes(reading, name):
    blocks = 0 if name == "holes" else reading.of(name, "read")
    assert reading.of(name, "disk_bytes") == blocks * PAGE


@every_backend
def test_pages_read_ahead_and_never_used_are_those_that_no_read_reached(reading):
    used = len(range(0, 1009, 89))
    assert reading.of("far", "unused") == reading.of("far", "read") - used > 0
    assert reading.of("cold", "unused") == reading.of("whole", "unused") == 0


@every_backend
def test_pages_written_through_a_shared_mapping_are_not_unused(reading):
    """A fault that the kernel tries again may count twice, so only this count is exact."""
    assert reading.of("written when cold", "read") == SIZES["written when cold"]
    assert reading.of("written when cold", "unused") == 0


@every_backend
def test_files_that_are_in_memory_only_are_not_read(reading):
    memory = "SELECT count(DISTINCT dev) FROM page_cache WHERE event = 'map' AND dev LIKE '0:%'"
    assert reading.recorded.one(memory) >= 2
    used = "SELECT count(*) FROM reads WHERE accessed > 0 AND dev LIKE '0:%' AND target = 'reads'"
    assert reading.recorded.one(used) == 0
