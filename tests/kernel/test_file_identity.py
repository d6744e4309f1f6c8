"""The page, file, reason and writer of each write-back, by every backend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.backends import every_backend
from tests.support.file_systems import FileSystems
from tests.support.written import Written
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks

KINDS = ("ext4", "xfs", "btrfs")
REWRITTEN = {
    "rewriting ext4": {},
    "rewriting small blocks of ext4": {"mkfs": ("-b", "1024")},
    "rewriting xfs": {"kind": "xfs"},
}
"""Loads that rewrite a file, and how their file systems are made."""
PARTITION = "rewriting a partition of ext4"
PAGES, TIMES = 23, 5
WHOLE = PAGES * TIMES

by_ftrace = pytest.mark.parametrize("backend", ["ftrace"], scope="module")
"""The mark for tests of what is made of decoded events, which are the same for all backends."""


def _each(*statements: str) -> str:
    """Returns a program that writes a checkpoint so many times, and syncs it each time."""
    written = "\n    ".join((*statements, "os.sync()"))
    return f"for n in range({TIMES}):\n    {written}\n"


WAYS = {
    "truncating ext4": _each(f"os.close(put(mount + '/c', {PAGES}, os.O_TRUNC))"),
    "overwriting ext4": _each(f"os.close(put(mount + '/c', {PAGES}))"),
    "renaming ext4": _each(
        f"os.close(put(mount + '/c.tmp', {PAGES}))", "os.replace(mount + '/c.tmp', mount + '/c')"
    ),
    "renaming over an open file of ext4": _each(
        "held = os.open(mount + '/c', os.O_CREAT | os.O_RDONLY)",
        f"os.close(put(mount + '/c.tmp', {PAGES}))",
        "os.replace(mount + '/c.tmp', mount + '/c')",
        "os.close(held)",
    ),
    "making new files of ext4": _each(f"os.close(put(mount + f'/c-{{n}}', {PAGES}))"),
}
"""Programs that write a checkpoint of a prime number of pages, each in a way of its own."""
BY_ALL = ("rewriting ext4", "rewriting xfs", "renaming ext4")
"""Loads of REWRITTEN and WAYS that every backend records; ftrace records all."""


@pytest.fixture(scope="module")
def recorded(record_loads, tmp_path_factory, backend):
    """One recording of a backend's loads, each on a file system of its own."""
    rewritten, ways = (
        {name: one for name, one in loads.items() if backend == "ftrace" or name in BY_ALL}
        for loads in (REWRITTEN, WAYS)
    )
    with FileSystems(tmp_path_factory.mktemp("disks")) as file_system:
        disks = {f"calling {kind}": file_system(name=kind, kind=kind) for kind in KINDS}
        for name, made in rewritten.items():
            disks[name] = file_system(name=name, **made)
        if backend == "ftrace":
            mount, _, disk = file_system.on_a_partition("partition")
            disks[PARTITION] = mount, disk
        sources = {name: CALLS if name.startswith("calling") else REWRITE for name in disks}
        for name, source in sources.items():
            if source == REWRITE:
                (disks[name][0] / "before").write_bytes(bytes(4096 * 11))
        disks |= {name: file_system(64, name=name) for name in ways}
        yield Written(record_loads, sources | ways, disks, backend=backend)


CALLS = """
direct = os.open(mount + "/direct", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
if kind == "btrfs": no_checksums(direct)
fsynced = put(mount + "/fsynced", 29)
os.fsync(fsynced)
left = put(mount + "/left", 23)
put(mount + "/also left", 31)
os.sync()
os.pwrite(direct, aligned(37), 0)
put(mount + "/dsync", 41, os.O_DSYNC)
mapped = put(mount + "/mapped", 43)
with mmap.mmap(mapped, 4096 * 43) as memory:
    for page in range(43): memory[page * 4096] = 1
    memory.flush()
ranged = put(mount + "/ranged", 47)
assert libc.sync_file_range(ranged, ctypes.c_int64(0), ctypes.c_int64(0), 7) == 0
os.close(put(mount + "/truncated", 3))
truncated = os.open(mount + "/truncated", os.O_WRONLY | os.O_TRUNC)
os.write(truncated, os.urandom(4096 * 7))
os.close(truncated)
# In the middle of a large folio: one page, not sixteen.
os.pwrite(left, b"y" * 4096, 5 * 4096)
os.fdatasync(left)
os.pwrite(direct, aligned(37), 0)
"""


@pytest.mark.parametrize("kind", KINDS)
@every_backend
def test_pages_by_reason_call_and_file(recorded, kind):
    load = f"calling {kind}"
    mount, pid = recorded.mount(load), recorded.pid(load)
    found = recorded.flushed(
        load,
        "path, reason, call, sum(pages)::INT, sum(nr_sector)::INT, bool_and(pid = dirtier)",
    )
    expected = {
        ("fsynced", "fsync", "fsync", 29, True),
        ("left", "sync", None, 23, False),
        ("also left", "sync", None, 31, False),
        ("direct", "direct", "pwrite64", 74, True),
        ("dsync", "fsync", "pwrite64", 41, True),
        ("mapped", "fsync", "msync", 43, True),
        ("ranged", "fsync", "sync_file_range", 47, True),
        ("truncated", "other", "close", 7, True),
        ("left", "fsync", "fdatasync", 1, True),
    }
    assert {(Path(p).name, r, c, n, own) for p, r, c, n, _, own in found} == expected
    assert all(sectors == 8 * pages for *_, pages, sectors, _ in found)
    assert {Path(p).parent for p, *_ in found} == {mount}
    assert recorded.flushed(load, "path, ino") == sorted(
        (str(path), path.stat().st_ino) for path in mount.iterdir() if path.is_file()
    )
    dirtiers = recorded.flushed(load, "certainty, dirtier, dirtiers, target")
    assert dirtiers == [("exact", pid, 1, recorded.target)]


REWRITE = """
def rewrite(name, first, pages, flags):
    fd = os.open(f"{mount}/{name}", os.O_CREAT | os.O_WRONLY | flags, 0o600)
    assert os.pwrite(fd, os.urandom(4096 * pages), 4096 * first) == 4096 * pages
    os.fsync(fd)
    os.close(fd)
rewrite("checkpoint", 0, 23, os.O_TRUNC)
rewrite("checkpoint", 0, 29, os.O_TRUNC)
rewrite("checkpoint", 5, 3, 0)
rewrite("before", 7, 2, 0)
os.unlink(f"{mount}/checkpoint")
"""


def in_files(trace, dev):
    """The page accesses to data of files on a device, as numbers in order of first access."""
    found = page_writebacks(trace, [dev], Identity.FILE)
    data = np.repeat(
        [found.bios.names["reason"][code] == "fsync" for code in found.bios.reason],
        found.bios.pages,
    )
    assert found.by_mapping["not mapped"] == 0
    pages = found.page[data].tolist()
    order = {page: number for number, page in enumerate(dict.fromkeys(pages))}
    return [order[page] for page in pages]


def assert_hot(recorded, load):
    """Asserts that pages of a rewritten file are hot though their blocks are new."""
    dev = recorded.dev(load)
    first, second, over = list(range(23)), list(range(29)), list(range(5, 8))
    assert in_files(recorded.trace, dev) == [*first, *second, *over, 29, 30]
    by_block = page_writebacks(recorded.trace, [dev])
    assert by_block.unique >= 23 + 29 + 2  # the same by block: new ones


@pytest.mark.parametrize("load", [load for load in REWRITTEN if load in BY_ALL])
@every_backend
def test_pages_of_a_rewritten_file_are_hot_though_their_blocks_are_new(recorded, load):
    assert_hot(recorded, load)


@by_ftrace
def test_pages_of_several_blocks_are_hot_too(recorded):
    assert_hot(recorded, "rewriting small blocks of ext4")


@by_ftrace
def test_a_partition_s_files_are_found(recorded):
    dev = recorded.dev(PARTITION)
    assert len(set(in_files(recorded.trace, dev))) == 29 + 2


def counted(recorded, load, identity):
    """N and U of the checkpoint's pages, and the pages of files of unknown paths."""
    found = page_writebacks(recorded.trace, [recorded.dev(load)], Identity(identity))
    assert found.by_mapping.get("not mapped", 0) == 0
    data = found.page[found.bios.data[found.bios.of_pages()]]
    assert len(data) < len(found)  # the journal and metadata are written, too
    return len(data), len(np.unique(data)), found.by_mapping.get("path not known", 0)


def assert_distinct(recorded, load, file, path, not_known):
    """Asserts how many pages are distinct, and how many have no path."""
    assert counted(recorded, load, "file") == (WHOLE, file, 0)
    assert counted(recorded, load, "path") == (WHOLE, path, not_known)
    assert counted(recorded, load, "index") == (WHOLE, PAGES, 0)


@every_backend
def test_distinct_pages_of_a_renamed_file(recorded):
    assert_distinct(recorded, "renaming ext4", WHOLE, PAGES, 0)


@pytest.mark.parametrize(
    ("load", "file", "path", "not_known"),
    [
        ("truncating ext4", PAGES, PAGES, 0),
        ("overwriting ext4", PAGES, PAGES, 0),
        # The old file goes after the rename: nothing tells that its path went on. The last remains.
        ("renaming over an open file of ext4", WHOLE, WHOLE, WHOLE - PAGES),
        ("making new files of ext4", WHOLE, WHOLE, 0),
    ],
)
@by_ftrace
def test_distinct_pages_by_file_path_and_index(recorded, load, file, path, not_known):
    assert_distinct(recorded, load, file, path, not_known)


@by_ftrace
def test_distinct_pages_by_block(recorded):
    def unique(load):
        written, distinct, _ = counted(recorded, load, "block")
        assert written == WHOLE
        return distinct

    assert unique("overwriting ext4") == PAGES
    assert unique("making new files of ext4") == WHOLE
    # Freed blocks may be used again once the journal has forgotten them: not by the next write.
    for load in ("truncating ext4", "renaming ext4"):
        assert 2 * PAGES <= unique(load) <= WHOLE
