"""Pages written on ext4, xfs, btrfs and overlayfs: whose they are, and how sure that is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.file_systems import FileSystems
from tests.support.written import SETUP, Written, extents_of
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.trace import Trace

KINDS = ("ext4", "xfs", "btrfs")
each_kind = pytest.mark.parametrize("kind", KINDS)

LOADS = {}
"""Programs that each kind of file system has, at `mount`; all of them in one recording: `recorded`.

The name of a load there is its name here and the kind."""
OF_BTRFS = {}
"""Programs that btrfs has, and how it is made."""


@pytest.fixture(scope="module")
def recorded(record_loads, tmp_path_factory):
    """One recording of all loads, each on a file system of its own."""
    folder = tmp_path_factory.mktemp("disks")
    sources = {f"{name} {kind}": source for name, source in LOADS.items() for kind in KINDS}
    with FileSystems(folder) as file_system:
        disks = {name: file_system(name=name, kind=name.split()[-1]) for name in sources}
        for name, (source, made) in OF_BTRFS.items():
            sources[f"{name} btrfs"] = source
            disks[f"{name} btrfs"] = file_system(name=name, kind="btrfs", **made)
        upper, dev = file_system(name="upper")
        (upper / "lower").mkdir()
        (upper / "lower/old").write_bytes(b"o" * 4096 * 3)
        merged = file_system.overlay(upper, "merged")
        sources["overlay"], disks["overlay"] = OVERLAY, (merged, dev)
        found = Written(record_loads, sources, disks)
        found.upper = upper / "upper"
        yield found


LOADS["metadata"] = "os.fsync(put(mount + '/a', 5))"


@each_kind
def test_metadata_in_a_callers_context_is_the_journals(recorded, kind):
    load = f"metadata {kind}"
    found = recorded.rows(
        "SELECT DISTINCT reason, certainty, path FROM flushes, processes p "
        "WHERE dev = ? AND contains(rwbs, 'M') AND p.pid = ? "
        "AND ts BETWEEN p.start_ns AND p.end_ns",
        recorded.dev(load),
        recorded.pid(load),
    )
    assert found == [("journal", "exact", None)]


# Renamed, deleted, and deleted with its inode number used again at once.
LOADS["renaming"] = """
first = put(mount + "/first", 11)
os.fsync(first)
os.mkdir(mount + "/folder")
os.rename(mount + "/first", mount + "/folder/second")
gone = put(mount + "/gone", 13)
os.fsync(gone)
os.close(gone)
os.unlink(mount + "/gone")
for i in range(5):
    fd = put(mount + "/again", 17)
    os.fsync(fd)
    os.close(fd)
    if i < 4: os.unlink(mount + "/again")
"""


@each_kind
def test_a_name_is_the_last_one_and_never_another_files(recorded, kind):
    load = f"renaming {kind}"
    mount = recorded.mount(load)
    assert recorded.flushed(load, "path, sum(pages)::INT, bool_and(certainty = 'exact')") == [
        (str(mount / "again"), 17, True),
        (str(mount / "folder/second"), 11, True),
        (None, 13 + 4 * 17, True),
    ]
    names = "SELECT count(*) FROM files WHERE starts_with(path, ?)"
    assert recorded.one(names, f"{mount}/") >= 2


def test_names_that_were_found_out_at_the_end_are_part_of_the_trace(recorded, tmp_path):
    before = recorded.trace.sql("SELECT * FROM files ORDER BY ALL")
    assert len(before) > 2 * len(KINDS)
    copy = tmp_path / "again.trace"
    shutil.copytree(recorded.trace.folder, copy, ignore=shutil.ignore_patterns("events"))
    with Trace(copy) as again:
        assert again.sql("SELECT * FROM files ORDER BY ALL").equals(before)


SUBMITTED = """
left = put(mount + "/left", 4001)
os.sync()
fsynced = put(mount + "/fsynced", 2003)
os.fsync(fsynced)
"""
OF_BTRFS["slow checksums"] = (SUBMITTED, {"mkfs": ["--csum", "sha256"], "size_mib": 512})
OF_BTRFS["and compression"] = (
    SUBMITTED,
    {"mkfs": ["--csum", "blake2"], "options": "compress-force=zstd", "size_mib": 512},
)


@pytest.mark.parametrize("how", ["slow checksums", "and compression"])
def test_bios_of_btrfs_workers_belong_to_the_process_they_work_for(recorded, how):
    load = f"{how} btrfs"
    mount, pid = recorded.mount(load), recorded.pid(load)
    assert recorded.flushed(load, "path, reason, call, certainty, dirtier") == [
        (str(mount / "fsynced"), "fsync", "fsync", "exact", pid),
        (str(mount / "left"), "sync", None, "exact", pid),
    ]
    if how == "slow checksums":
        assert recorded.flushed(load, "path, sum(pages)::INT") == [
            (str(mount / "fsynced"), 2003),
            (str(mount / "left"), 4001),
        ]
    (workers,) = recorded.flushed(
        load, "1, count(*)", "pid IN (SELECT tid FROM file_writes WHERE event = 'work_start')"
    )
    assert workers[1] > 0


LOADS["direct"] = """
direct = os.open(mount + "/a", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
if kind == "btrfs": no_checksums(direct)
child = os.fork()
if child == 0:
    put(mount + "/a", 11)
    os._exit(0)
os.waitpid(child, 0)
os.pwrite(direct, aligned(11), 0)
"""


@each_kind
def test_data_written_through_the_cache_for_a_direct_write(recorded, kind):
    """Pages that were dirty where a direct write goes are written first: it is their cause."""
    load = f"direct {kind}"
    found = recorded.flushed(load, "reason, certainty, sum(pages)::INT")
    assert {row[0] for row in found} == {"direct"}
    assert sum(row[2] for row in found) == 22
    own = recorded.pid(load)
    for dirtier, certainty in recorded.flushed(load, "dirtier, certainty"):
        # A page of the other's is never shown as surely the caller's.
        assert certainty == "ambiguous" or kind == "ext4" or dirtier == own
    if kind == "ext4":
        # This write-out has an end. The direct write marks the inode while the child's pages are
        # dirty, if a tick has passed: then the caller may have a part in them.
        (child, surely, n), (caller, own_pages, m) = recorded.flushed(
            load, f"dirtier = {own}, max(certainty), sum(pages)::INT"
        )
        assert (child, n, caller, own_pages, m) == (False, 11, True, "exact", 11)
        assert surely in ("exact", "ambiguous")


OF_BTRFS["summed"] = (
    """
fd = os.open(mount + "/a", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
os.pwrite(fd, aligned(13), 0)
""",
    {},
)


def test_a_direct_write_that_btrfs_has_to_sum_is_only_inferred(recorded):
    # Through the page cache (kernel 6.15), or directly.
    (found,) = recorded.flushed("summed btrfs", "reason, path, sum(pages)::INT, max(certainty)")
    assert found[:3] == ("direct", str(recorded.mount("summed btrfs") / "a"), 13)
    assert found[3] in ("inferred", "exact")


LOADS["sharing"] = """
fd = put(mount + "/shared", 5)
in_child(lambda: os.pwrite(fd, os.urandom(4096 * 7), 4096 * 64))
os.fsync(fd)
in_child(lambda: os.pwrite(fd, os.urandom(4096 * 11), 4096 * 128))
os.fsync(fd)
in_child(lambda: os.pwrite(fd, os.urandom(4096 * 13), 4096 * 192))
os.sync()
os.pwrite(fd, os.urandom(4096 * 17), 4096 * 256)
os.sync()
in_child(lambda: os.pwrite(fd, os.urandom(4096 * 19), 4096 * 320))
os.pwrite(fd, os.urandom(4096 * 23), 4096 * 384)
os.sync()
"""


@each_kind
def test_two_processes_and_one_file_are_ambiguous_until_it_is_clean(recorded, kind):
    load = f"sharing {kind}"
    found = recorded.flushed(
        load,
        f"min(ts), reason, dirtier = {recorded.pid(load)}, dirtiers, certainty, sum(pages)::INT",
    )
    by_write_out: dict[tuple, int] = {}
    for _, *facts, pages in found:
        by_write_out[tuple(facts)] = by_write_out.get(tuple(facts), 0) + pages
    assert by_write_out == {
        ("fsync", False, 2, "ambiguous"): 12,
        ("fsync", False, 1, "exact"): 11,
        ("sync", False, 1, "exact"): 13,
        ("sync", True, 1, "exact"): 17,
        ("sync", True, 2, "ambiguous"): 42,
    }
    # Both belong to the same target, which therefore is no guess.
    assert recorded.flushed(load, "target") == [(recorded.target,)]


OVERLAY = """
fsynced = put(mount + "/new", 29)
os.fsync(fsynced)
# Copied up, then written to.
old = os.open(mount + "/old", os.O_RDWR)
os.pwrite(old, os.urandom(4096), 4096)
os.fdatasync(old)
put(mount + "/left", 31)
os.sync()
put(mount + "/dsync", 41, os.O_DSYNC)
"""


def test_overlayfs_pages_are_those_of_the_file_above(recorded):
    upper = recorded.upper
    found = recorded.flushed(
        "overlay", "path, reason, call, certainty, ino, sum(pages)::INT", "call != 'openat'"
    )
    assert [row[:4] + row[5:] for row in found] == [
        (str(upper / "dsync"), "fsync", "pwrite64", "exact", 41),
        (str(upper / "new"), "fsync", "fsync", "exact", 29),
        (str(upper / "old"), "fsync", "fdatasync", "exact", 1),
    ]
    assert all(row[4] == Path(row[0]).stat().st_ino for row in found)
    columns = "path, certainty, sum(pages)::INT"
    left = recorded.flushed("overlay", columns, "reason = 'sync'")
    assert left == [(str(upper / "left"), "exact", 31)]
    assert recorded.flushed("overlay", "dirtier") == [(recorded.pid("overlay"),)]


LOADS["extents"] = """
fds = []
for i in range(23):
    fds.append(put(mount + "/%d" % i, i + 1))
    if i % 3 == 0: os.fsync(fds[-1])
os.sync()
"""


@each_kind
def test_sectors_lie_in_the_files_that_filefrag_names(recorded, kind):
    """The same question put to another tool: whose extents are these sectors?"""
    mount = recorded.mount(f"extents {kind}")
    extents = {str(path): extents_of(path) for path in mount.iterdir() if path.is_file()}
    assert len(extents) == 23
    found = recorded.flushed(f"extents {kind}", "path, sector, nr_sector")
    assert sum(length for *_, length in found) == 8 * sum(range(1, 24))
    for path, sector, length in found:
        assert any(start <= sector and sector + length <= end for start, end in extents[path])


PERIODIC = """
import time
def written():  # sectors
    return [int(open(stat).read().split()[6]) for stat in stats]
mounts, stats = sys.argv[1:4], sys.argv[4:]
before = written()
for number, pages in enumerate((23, 29, 31)):
    if os.fork() == 0:
        for mount in mounts:
            put("%s/%d" % (mount, number), pages)
        print(os.getpid(), pages, flush=True)
        os._exit(0)
    os.wait()
now, still = before, 0
while still < 50 or any(n - b < 8 * (23 + 29 + 31) for n, b in zip(now, before)):
    time.sleep(0.01)
    last, now = now, written()
    still = still + 1 if now == last else 0
"""


@pytest.mark.settings
def test_the_flusher_writes_what_three_processes_left(file_system, tracer, load, tmp_path, sysctls):
    """Each page has the right process, file and reason, on three file systems at once."""
    sysctls(dirty_expire_centisecs=100, dirty_writeback_centisecs=50)
    places = {kind: file_system(kind=kind, name=kind) for kind in KINDS}
    command = load(SETUP + PERIODIC)
    for attempt in range(3):
        folder = tmp_path / f"{attempt}.trace"
        mounts = [str(mount) for mount, _ in places.values()]
        stats = [f"/sys/dev/block/{dev}/stat" for _, dev in places.values()]
        ran = tracer("record", "-o", folder, "--", *command, *mounts, *stats)
        with Trace(folder) as trace:
            flushes(trace)
            # Somebody else's sync writes the pages first: that is no failure of ours.
            begun = "SELECT count(*) n FROM writeback WHERE event = 'queue' AND reason = 'sync'"
            if trace.sql(begun)["n"][0] and attempt < 2:
                continue
            pids = {int(pages): int(pid) for pid, pages in map(str.split, ran.out.splitlines())}
            assert len(set(pids.values())) == 3
            target = trace.manifest["targets"][0]["name"]
            for mount, dev in places.values():
                found = trace.connection.execute(
                    "SELECT path, reason, certainty, dirtier, target, sum(pages)::INT FROM flushes "
                    "WHERE dev = ? AND NOT contains(rwbs, 'M') GROUP BY ALL ORDER BY ALL",
                    [dev],
                ).fetchall()
                assert found == [
                    (str(mount / str(number)), "periodic", "exact", pids[pages], target, pages)
                    for number, pages in enumerate((23, 29, 31))
                ]
            return
