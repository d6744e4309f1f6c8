"""Accesses inferred from calls are those that this kernel logs, file by file.

The recording is read twice: as it is, and without the events that older kernels lack.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import loads
from tests.support.file_systems import FileSystems
from tests.support.older_kernels import without_accesses
from tracer.analysis.memory.knowledge import knowledge
from tracer.analysis.views.reading.reads import reads
from tracer.store.trace import Trace

PAGE = 4096
LOAD = """
import ctypes, json, mmap, os, random

told = {{}}

def path(name):
    return f"{mount}/" + name

def opened(name, flags=os.O_RDONLY):
    return os.open(path(name), flags)

def took(name, at, size):
    if size:
        told[name] = told.get(name, 0) + (at + size - 1) // {page} - at // {page} + 1
    return size

def read(name, fd, size):
    at = os.lseek(fd, 0, os.SEEK_CUR)
    return took(name, at, len(os.read(fd, size)))

def whole(name, fd, size):
    at = 0
    while got := took(name, at, len(os.read(fd, size))):
        at += got

for _ in range(3):  # cold, then warm
    fd = opened("in pieces")
    whole("in pieces", fd, 7 * {page})
    os.close(fd)
    with open(path("at once"), "rb") as file:
        took("at once", 0, len(file.read()))

fd = opened("records")  # several in a page, some in two
whole("records", fd, 1000)
for at in range(11):
    os.lseek(fd, 29 * {page} * at // 3, os.SEEK_SET)
    read("records", fd, 5000)
os.lseek(fd, -3 * {page}, os.SEEK_END)
read("records", fd, 1 << 20)
os.close(fd)

fd = opened("random")
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
draw = random.Random(5)
for _ in range(61):
    at = draw.randrange(163) * {page}
    took("random", at, len(os.pread(fd, 3 * {page}, at)))
buffers = [bytearray(2 * {page}), bytearray(100)]
took("random", 17 * {page}, os.preadv(fd, buffers, 17 * {page}))
took("random", 0, os.readv(fd, buffers))
os.close(fd)

fd = opened("sparse")
for at in range(0, 1009 * {page}, 89 * {page}):
    took("sparse", at + 7, len(os.pread(fd, 100, at + 7)))
os.close(fd)

fd = opened("holes")
whole("holes", fd, 5 * {page})
os.close(fd)

fd = opened("shared")  # one position for all of them
other = os.dup(fd)
for turn in range(12):
    child = os.fork()
    if child == 0:
        os.read(fd if turn % 2 else other, 9 * {page})
        os._exit(0)
    os.waitpid(child, 0)
    took("shared", turn * 9 * {page}, 9 * {page})
os.dup2(other, 100)
read("shared", 100, 3 * {page})
os.close(fd)
read("shared", other, {page})

fd = opened("appended", os.O_RDWR | os.O_APPEND)
read("appended", fd, 3 * {page})
os.write(fd, bytes(5 * {page}))
os.lseek(fd, 2 * {page}, os.SEEK_SET)
read("appended", fd, 4 * {page})
os.close(fd)

fd = opened("written", os.O_RDWR | os.O_CREAT)
os.write(fd, bytes(13 * {page}))
os.lseek(fd, 0, os.SEEK_SET)
whole("written", fd, 4 * {page})
os.close(fd)

source, out = opened("sent"), opened("sink", os.O_WRONLY | os.O_CREAT)
at = 0
while got := took("sent", at, os.sendfile(out, source, None, 6 * {page})):
    at += got

fd = opened("mapped")
with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
    for at in range(0, len(mapped), {page}):
        mapped[at]
        took("mapped", at, 1)
os.close(fd)

# The kernel maps the pages around a fault up to the end of a page table: after 13 pages here.
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
fd, length = opened("two tables"), {page} * 107
table = {page} // 8 * {page}
room = libc.mmap(None, 3 * table, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
place = -(-room // table) * table + table - 13 * {page}
assert libc.mmap(place, length, mmap.PROT_READ, mmap.MAP_SHARED | {fixed}, fd, 0) == place
for at in range(0, length, {page}):
    ctypes.string_at(place + at, 1)
    took("two tables", at, 1)
os.close(fd)

fd = opened("direct", os.O_RDONLY | os.O_DIRECT)
with mmap.mmap(-1, 16 * {page}) as memory:
    os.readv(fd, [memory])
os.close(fd)
with open(f"{told}", "w") as file:
    json.dump(told, file)
"""
SIZES = {
    "in pieces": 211, "at once": 997, "records": 127, "random": 167, "sparse": 1013, "holes": 103,
    "shared": 131, "appended": 7, "sent": 83, "mapped": 107, "two tables": 107, "direct": 16,
}  # fmt: skip
"""Pages of each file."""
MAPPED = ("mapped", "two tables")
READ = [*(name for name in SIZES if name not in (*MAPPED, "direct", "sent")), "written"]
MAP_FIXED = 0x10
"""include/uapi/asm-generic/mman-common.h"""


@dataclass
class Twice:
    """One recording, as this kernel and as an older one would have made it."""

    exact: Trace
    inferred: Trace
    dev: str
    told: dict[str, int]
    """Pages that the job used, by file; a page counts each time."""

    def of(self, trace: Trace, name: str, column: str) -> Any:
        query = f"SELECT sum({column})::BIGINT FROM reads WHERE dev = ? AND path LIKE ?"
        found = trace.connection.execute(query, [self.dev, f"%/{name}"]).fetchone()
        return found[0] or 0 if found else 0


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inferred")
    with FileSystems(folder) as make:
        mount, dev = make(kind="ext4")
        for name, pages in SIZES.items():
            with Path(mount, name).open("wb") as file:
                if name == "holes":
                    file.truncate(pages * PAGE)
                else:
                    file.write(os.urandom(pages * PAGE))
        os.sync()
        for name in SIZES:
            fd = os.open(Path(mount, name), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        told = folder / "told.json"
        source = LOAD.format(mount=mount, page=PAGE, told=told, fixed=MAP_FIXED)
        options = ("-e", "default,page_cache,opens")
        recorded = loads.record(folder, {"reads": source}, *options)
    older = without_accesses(recorded.trace.folder, folder / "older.trace")
    with Trace(older) as inferred:
        for trace in (recorded.trace, inferred):
            reads(trace)
        yield Twice(recorded.trace, inferred, dev, json.loads(told.read_text()))
    recorded.trace.close()


@pytest.mark.parametrize("name", [*READ, "sent", *MAPPED])
def test_pages_are_those_that_the_job_used(twice, name):
    # The kernel logs no access of a few pages (docs/reads.md); the calls have them all.
    assert twice.of(twice.inferred, name, "accessed") == twice.told[name] > 0


@pytest.mark.parametrize("name", [*READ, *MAPPED])
@pytest.mark.parametrize("column", ["missed", "read", "written", "unused"])
def test_misses_are_those_that_the_kernel_logs(twice, name, column):
    assert twice.of(twice.inferred, name, column) == twice.of(twice.exact, name, column)


def test_pages_of_a_file_that_is_sent_to_another_are_told_apart_from_those_written(twice):
    assert twice.of(twice.inferred, "sent", "read") == twice.of(twice.exact, "sent", "read") > 0


def test_reads_past_the_cache_use_no_pages(twice):
    assert twice.of(twice.inferred, "direct", "accessed") == 0


def test_only_the_trace_without_accesses_is_inferred(twice):
    for trace, inferred in ((twice.exact, False), (twice.inferred, True)):
        assert trace.rows("SELECT DISTINCT inferred FROM reads") == [(inferred,)]
        assert knowledge(trace).inferred == inferred
    assert knowledge(twice.exact).sentences == []


def test_reads_of_files_that_were_cached_before_are_counted_as_not_known(twice):
    unknown = "SELECT sum(unplaced)::BIGINT, count(*) FROM reads WHERE dev IS NULL"
    assert twice.exact.rows(unknown) == [(None, 0)]
    ((bytes_read, _),) = twice.inferred.rows(unknown)
    read = "SELECT sum(accessed)::BIGINT FROM reads WHERE target IS NOT NULL"
    ((known,),) = twice.inferred.rows(read)
    (share,) = knowledge(twice.inferred).unknown.values()
    assert share == bytes_read / (bytes_read + known * PAGE)
    assert 0 < share < 0.5
