"""Every page written has its reason, inode, path and dirtier: on ext4, xfs, btrfs and overlayfs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from analysis.views.flushes import flushes
from tests.support.backends import every_backend
from tracer.store.trace import Trace

KINDS = ("ext4", "xfs", "btrfs")

SETUP = """\
import ctypes, fcntl, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def put(path, pages, flags=0):
    fd = os.open(path, os.O_CREAT | os.O_RDWR | flags, 0o600)
    assert os.pwrite(fd, os.urandom(4096 * pages), 0) == 4096 * pages
    return fd
def aligned(pages):
    memory = mmap.mmap(-1, 4096 * pages)
    memory[:] = os.urandom(4096 * pages)
    return memory
def no_checksums(fd):  # FS_IOC_SETFLAGS: btrfs writes nothing directly that it has to sum
    fcntl.ioctl(fd, 0x40086602, (0x00800000).to_bytes(8, "little"))
"""


@pytest.fixture
def files_of(record, load):
    """Record a load; returns the trace with its flushes, and rows of them for one device."""

    def run(source: str, dev: str, *options: object):
        trace = record(load(SETUP + source), *options)
        flushes(trace)

        def rows(columns: str, where: str = "true") -> list[tuple]:
            return trace.connection.execute(
                f"SELECT {columns} FROM flushes WHERE dev = ? AND NOT contains(rwbs, 'M') "
                f"AND ({where}) GROUP BY ALL ORDER BY ALL",
                [dev],
            ).fetchall()

        return trace, rows

    return run


@pytest.mark.parametrize("kind", KINDS)
@every_backend
def test_pages_by_reason_call_and_file(kind, file_system, files_of):
    mount, dev = file_system(kind=kind)
    trace, rows = files_of(
        f"""
direct = os.open("{mount}/direct", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
if "{kind}" == "btrfs": no_checksums(direct)
fsynced = put("{mount}/fsynced", 29)
os.fsync(fsynced)
left = put("{mount}/left", 23)
put("{mount}/also left", 31)
os.sync()
os.pwrite(direct, aligned(37), 0)
put("{mount}/dsync", 41, os.O_DSYNC)
mapped = put("{mount}/mapped", 43)
with mmap.mmap(mapped, 4096 * 43) as memory:
    for page in range(43): memory[page * 4096] = 1
    memory.flush()
ranged = put("{mount}/ranged", 47)
assert libc.sync_file_range(ranged, ctypes.c_int64(0), ctypes.c_int64(0), 7) == 0
os.close(put("{mount}/truncated", 3))
truncated = os.open("{mount}/truncated", os.O_WRONLY | os.O_TRUNC)
os.write(truncated, os.urandom(4096 * 7))
os.close(truncated)
# In the middle of a large folio: one page, not sixteen.
os.pwrite(left, b"y" * 4096, 5 * 4096)
os.fdatasync(left)
os.pwrite(direct, aligned(37), 0)
""",
        dev,
    )
    me = trace.manifest["targets"][0]
    found = rows(
        "path, reason, call, sum(pages)::INT, sum(nr_sector)::INT, bool_and(pid = dirtier)"
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
    assert rows("path, ino") == sorted(
        (str(path), path.stat().st_ino) for path in mount.iterdir() if path.is_file()
    )
    assert rows("certainty, dirtier, dirtiers, target") == [("exact", me["pid"], 1, me["name"])]


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_in_a_callers_context_is_the_journals(kind, file_system, files_of):
    mount, dev = file_system(kind=kind)
    trace, _ = files_of(f"os.fsync(put('{mount}/a', 5))", dev)
    found = trace.connection.execute(
        "SELECT DISTINCT reason, certainty, path FROM flushes "
        "WHERE dev = ? AND contains(rwbs, 'M')",
        [dev],
    ).fetchall()
    assert found == [("journal", "exact", None)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_is_the_last_one_and_never_another_files(kind, file_system, files_of):
    """Renamed, deleted, and deleted with its inode number used again at once."""
    mount, dev = file_system(kind=kind)
    trace, rows = files_of(
        f"""
first = put("{mount}/first", 11)
os.fsync(first)
os.mkdir("{mount}/folder")
os.rename("{mount}/first", "{mount}/folder/second")
gone = put("{mount}/gone", 13)
os.fsync(gone)
os.close(gone)
os.unlink("{mount}/gone")
for i in range(5):
    fd = put("{mount}/again", 17)
    os.fsync(fd)
    os.close(fd)
    if i < 4: os.unlink("{mount}/again")
""",
        dev,
    )
    assert rows("path, sum(pages)::INT, bool_and(certainty = 'exact')") == [
        (str(mount / "again"), 17, True),
        (str(mount / "folder/second"), 11, True),
        (None, 13 + 4 * 17, True),
    ]
    assert trace.manifest["tables"]["files"]["rows"] >= 2
    # What was found out at the end is part of the trace.
    before = trace.sql("SELECT * FROM files ORDER BY ALL")
    shutil.rmtree(trace.folder / "events")
    with Trace(trace.folder) as again:
        assert again.sql("SELECT * FROM files ORDER BY ALL").equals(before)


@pytest.mark.parametrize(
    ("mkfs", "options"),
    [(["--csum", "sha256"], ""), (["--csum", "blake2"], "compress-force=zstd")],
    ids=["slow checksums", "and compression"],
)
def test_what_workers_of_btrfs_submit_is_whose_they_work_for(mkfs, options, file_system, files_of):
    mount, dev = file_system(kind="btrfs", mkfs=mkfs, options=options, size_mib=512)
    trace, rows = files_of(
        f"""
left = put("{mount}/left", 4001)
os.sync()
fsynced = put("{mount}/fsynced", 2003)
os.fsync(fsynced)
""",
        dev,
    )
    assert rows("path, reason, call, certainty, dirtier") == [
        (str(mount / "fsynced"), "fsync", "fsync", "exact", trace.manifest["targets"][0]["pid"]),
        (str(mount / "left"), "sync", None, "exact", trace.manifest["targets"][0]["pid"]),
    ]
    if not options:
        assert rows("path, sum(pages)::INT") == [
            (str(mount / "fsynced"), 2003),
            (str(mount / "left"), 4001),
        ]
    workers = trace.sql(
        "SELECT count(*) n FROM flushes f WHERE dev = ? AND NOT contains(rwbs, 'M') "
        "AND f.pid IN (SELECT tid FROM file_writes WHERE event = 'work_start')",
        dev,
    )
    assert workers["n"][0] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_data_written_through_the_cache_for_a_direct_write(kind, file_system, files_of):
    """Pages that were dirty where a direct write goes are written first: it is their cause."""
    mount, dev = file_system(kind=kind)
    trace, rows = files_of(
        f"""
direct = os.open("{mount}/a", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
if "{kind}" == "btrfs": no_checksums(direct)
child = os.fork()
if child == 0:
    put("{mount}/a", 11)
    os._exit(0)
os.waitpid(child, 0)
os.pwrite(direct, aligned(11), 0)
""",
        dev,
    )
    found = rows("reason, certainty, sum(pages)::INT")
    assert {row[0] for row in found} == {"direct"}
    assert sum(row[2] for row in found) == 22
    own = trace.manifest["targets"][0]["pid"]
    for dirtier, certainty in rows("dirtier, certainty"):
        # A page of the other's is never shown as surely the caller's.
        assert certainty == "ambiguous" or kind == "ext4" or dirtier == own
    if kind == "ext4":
        # Whose write-out has an end. The direct write marks the inode while the child's pages are
        # dirty, if a tick has passed: then the caller may have a part in them.
        (child, surely, n), (caller, own_pages, m) = rows(
            f"dirtier = {own}, max(certainty), sum(pages)::INT"
        )
        assert (child, n, caller, own_pages, m) == (False, 11, True, "exact", 11)
        assert surely in ("exact", "ambiguous")


def test_a_direct_write_that_btrfs_has_to_sum_is_only_inferred(file_system, files_of):
    mount, dev = file_system(kind="btrfs")
    _, rows = files_of(
        f"""
fd = os.open("{mount}/a", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
os.pwrite(fd, aligned(13), 0)
""",
        dev,
    )
    # Through the page cache (kernel 6.15), or directly.
    (found,) = rows("reason, path, sum(pages)::INT, max(certainty)")
    assert found[:3] == ("direct", str(mount / "a"), 13)
    assert found[3] in ("inferred", "exact")


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_and_one_file_are_ambiguous_until_it_is_clean(kind, file_system, files_of):
    mount, dev = file_system(kind=kind)
    trace, rows = files_of(
        f"""
def in_child(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    os.waitpid(child, 0)
fd = put("{mount}/shared", 5)
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
""",
        dev,
    )
    me = trace.manifest["targets"][0]
    found = rows(f"min(ts), reason, dirtier = {me['pid']}, dirtiers, certainty, sum(pages)::INT")
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
    assert rows("target") == [(me["name"],)]


def test_overlayfs_pages_are_those_of_the_file_above(file_system, files_of, tmp_path):
    mount, dev = file_system()
    for name in ("lower", "upper", "work"):
        (mount / name).mkdir()
    (mount / "lower/old").write_bytes(b"o" * 4096 * 3)
    subprocess.run(["sync", "-f", str(mount)], check=True)
    merged = tmp_path / "merged"
    merged.mkdir()
    layers = ",".join(f"{name}dir={mount / name}" for name in ("lower", "upper", "work"))
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(merged)], check=True)
    try:
        trace, rows = files_of(
            f"""
fsynced = put("{merged}/new", 29)
os.fsync(fsynced)
# Copied up, then written to.
old = os.open("{merged}/old", os.O_RDWR)
os.pwrite(old, os.urandom(4096), 4096)
os.fdatasync(old)
put("{merged}/left", 31)
os.sync()
put("{merged}/dsync", 41, os.O_DSYNC)
""",
            dev,
        )
    finally:
        subprocess.run(["umount", str(merged)], check=True)
    upper = mount / "upper"
    found = rows("path, reason, call, certainty, ino, sum(pages)::INT", "call != 'openat'")
    assert [row[:4] + row[5:] for row in found] == [
        (str(upper / "dsync"), "fsync", "pwrite64", "exact", 41),
        (str(upper / "new"), "fsync", "fsync", "exact", 29),
        (str(upper / "old"), "fsync", "fdatasync", "exact", 1),
    ]
    assert all(row[4] == Path(row[0]).stat().st_ino for row in found)
    assert rows("path, certainty, sum(pages)::INT", "reason = 'sync'") == [
        (str(upper / "left"), "exact", 31)
    ]
    assert rows("dirtier") == [(trace.manifest["targets"][0]["pid"],)]


@pytest.mark.parametrize("kind", KINDS)
def test_sectors_lie_in_the_files_that_filefrag_names(kind, file_system, files_of):
    """The same question put to another tool: whose extents are these sectors?"""
    mount, dev = file_system(kind=kind)
    _, rows = files_of(
        f"""
fds = []
for i in range(23):
    fds.append(put("{mount}/%d" % i, i + 1))
    if i % 3 == 0: os.fsync(fds[-1])
os.sync()
""",
        dev,
    )
    extents = {str(path): _extents(path) for path in mount.iterdir() if path.is_file()}
    assert len(extents) == 23
    found = rows("path, sector, nr_sector")
    assert sum(length for *_, length in found) == 8 * sum(range(1, 24))
    for path, sector, length in found:
        assert any(start <= sector and sector + length <= end for start, end in extents[path])


def _extents(path: Path) -> list[tuple[int, int]]:
    """The sectors of a file: on a new file system btrfs's own addresses are the device's, too."""
    listed = subprocess.run(
        ["filefrag", "-v", "-b512", str(path)], check=True, capture_output=True, text=True
    ).stdout
    found = []
    for line in listed.splitlines():
        parts = line.replace("..", " ").replace(":", " ").split()
        if len(parts) >= 6 and parts[0].isdigit():
            found.append((int(parts[3]), int(parts[4]) + 1))
    assert found, listed
    return found


PERIODIC = """
import time
for number, pages in enumerate((23, 29, 31)):
    if os.fork() == 0:
        for mount in sys.argv[1:]:
            put("%s/%d" % (mount, number), pages)
        print(os.getpid(), pages, flush=True)
        os._exit(0)
    os.wait()
time.sleep(7)
"""


def test_the_flusher_writes_what_three_processes_left(file_system, tracer, load, tmp_path, sysctls):
    """Each page has the right process, file and reason, on three file systems at once."""
    sysctls(dirty_expire_centisecs=300, dirty_writeback_centisecs=100)
    places = {kind: file_system(kind=kind, name=kind) for kind in KINDS}
    command = load(SETUP + PERIODIC)
    for attempt in range(3):
        folder = tmp_path / f"{attempt}.trace"
        mounts = [str(mount) for mount, _ in places.values()]
        ran = tracer("record", "-o", folder, "--", *command, *mounts)
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
