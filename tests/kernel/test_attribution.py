"""The owners of pages on a file system on any device: disk, partition, or a loop."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.support.file_systems import PARTITION_START, FileSystems, numbers_of
from tests.support.written import Written, extents_of
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.analysis.views.disks.devices import notes
from tracer.session import environment
from tracer.store.devices import Devices
from tracer.targets.cgroups import hierarchies

pytestmark = pytest.mark.slow

KINDS = ("ext4", "xfs", "btrfs", "overlay")
PLACES = ("disk", "partition", "loop on a partition")
LOADS = [f"{place}, {kind}" for place in PLACES for kind in KINDS]
CONTAINER = hashlib.sha256(b"a container of the test's own").hexdigest()

WRITERS = """
put(mount + "/synced", 5)
os.sync()
os.fsync(put(mount + "/fsynced", 7))
os.fdatasync(put(mount + "/fdatasynced", 11))
put(mount + "/osync", 13, os.O_SYNC)
direct = os.open(mount + "/direct", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
if kind == "btrfs": no_checksums(direct)
os.pwrite(direct, aligned(17), 0)
mapped = put(mount + "/mapped", 19)
with mmap.mmap(mapped, 4096 * 19) as memory:
    for page in range(19): memory[page * 4096] = 1
    memory.flush()
os.close(put(mount + "/gone", 23))
os.unlink(mount + "/gone")
held = put(mount + "/held", 29)
os.unlink(mount + "/held")
os.fsync(held)
os.fsync(put(mount + "/name", 31))
os.fsync(put(mount + "/new", 37))
os.rename(mount + "/new", mount + "/name")
shared = put(mount + "/shared", 41)
in_child(lambda: os.pwrite(shared, os.urandom(4096 * 43), 4096 * 64))
os.fsync(shared)
def contained():
    with open(CGROUP + "/cgroup.procs", "w") as file: file.write(str(os.getpid()))
    os.fsync(put(mount + "/contained", 47))
in_child(contained)
"""
EXPECTED = {
    ("synced", "sync", None, 5, True, 1, "exact", None),
    ("fsynced", "fsync", "fsync", 7, True, 1, "exact", None),
    ("fdatasynced", "fsync", "fdatasync", 11, True, 1, "exact", None),
    ("osync", "fsync", "pwrite64", 13, True, 1, "exact", None),
    ("direct", "direct", "pwrite64", 17, True, 1, "exact", None),
    ("mapped", "fsync", "msync", 19, True, 1, "exact", None),
    # Two files have no name: one was removed before its write, and another was renamed over one.
    ("", "fsync", "fsync", 29 + 31, True, 1, "exact", None),
    ("name", "fsync", "fsync", 37, True, 1, "exact", None),
    ("shared", "fsync", "fsync", 41 + 43, False, 2, "ambiguous", None),
    ("contained", "fsync", "fsync", 47, False, 1, "exact", CONTAINER),
}


@pytest.fixture(scope="module")
def container():
    """A cgroup that is called as a container's is: its folder."""
    hierarchy = next(h for h in hierarchies() if "cpuset" not in h.controllers)
    folder = hierarchy.mount / f"tracer-test-{os.getpid()}" / CONTAINER
    folder.mkdir(parents=True)
    yield folder
    for path in (folder, folder.parent):
        path.rmdir()


class Matrix(Written):
    """A recording of every file system on every device."""

    def __init__(self, record, disks, container, upper, partitions, lower):
        """Run the same writers on all of them; see `recorded`."""
        source = f"CGROUP = {str(container)!r}\n{WRITERS}"
        super().__init__(record, dict.fromkeys(disks, source), disks)
        self.upper, self.partitions, self.lower = upper, partitions, lower

    def folder(self, load):
        """Returns the folder of a load's files."""
        return self.upper.get(load, self.mount(load))


@pytest.fixture(scope="module")
def recorded(record_loads, tmp_path_factory, container):
    """One recording of the writers on every file system on every device."""
    disks, upper, partitions = {}, {}, {}
    with FileSystems(tmp_path_factory.mktemp("disks")) as file_system:
        below, _, lower = file_system.on_a_partition("below", size_mib=2048)
        for load in LOADS:
            place, kind = load.split(", ")
            name = load.replace(",", "").replace(" ", "-")
            real = "ext4" if kind == "overlay" else kind
            if place == "disk":
                mount, dev = file_system(name=name, kind=real)
            elif place == "partition":
                mount, partitions[load], dev = file_system.on_a_partition(name, real)
            else:
                mount, dev = file_system.on_a_file(below / name, real)
            if kind == "overlay":
                upper[load] = mount / "upper"
                mount = file_system.overlay(mount, f"{name}-merged")
            disks[load] = mount, dev
        yield Matrix(record_loads, disks, container, upper, partitions, lower)


@pytest.mark.parametrize("load", LOADS)
def test_pages_have_their_reason_file_and_dirtier(recorded, load):
    found = recorded.flushed(
        load,
        f"path, reason, call, sum(pages)::INT, dirtier = {recorded.pid(load)}, dirtiers,"
        " certainty, container",
    )
    folder = recorded.folder(load)
    assert {Path(path).parent for path, *_ in found if path is not None} == {folder}
    assert {(Path(path or "").name, *row) for path, *row in found} == EXPECTED


@pytest.mark.parametrize("load", LOADS)
def test_inodes_are_those_of_the_files(recorded, load):
    found = recorded.flushed(load, "path, ino", "path IS NOT NULL")
    assert found == sorted((path, Path(path).stat().st_ino) for path, _ in found)


@pytest.mark.parametrize("load", [load for load in LOADS if not load.endswith("btrfs")])
def test_sectors_count_from_the_beginning_of_the_disk(recorded, load):
    """Another tool tells where files lie on the partition; in btrfs by addresses of its own."""
    start = PARTITION_START if load in recorded.partitions else 0
    extents = {}
    found = recorded.flushed(load, "path, sector, nr_sector", "path IS NOT NULL")
    for path, sector, length in found:
        spans = extents.setdefault(path, extents_of(Path(path)))
        at = sector - start
        assert any(begin <= at and at + length <= end for begin, end in spans)
    assert len(extents) == len(EXPECTED) - 1


@pytest.mark.parametrize("load", LOADS)
def test_pages_that_the_journal_writes_do_not_count_as_fsync(recorded, load):
    found = recorded.rows(
        "SELECT DISTINCT reason, certainty, path FROM flushes WHERE dev = ? AND pid = ?"
        " AND contains(rwbs, 'M')",
        recorded.dev(load),
        recorded.pid(load),
    )
    # ext4's is written by its own thread; sync() writes other metadata itself.
    reason = "journal" if load.endswith(("xfs", "btrfs")) else "sync"
    assert found == [(reason, "exact", None)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_flush_layer_takes_a_partition_as_its_disk(recorded, kind):
    load = f"partition, {kind}"
    partition, disk = recorded.partitions[load], recorded.dev(load)
    of_partition = page_writebacks(recorded.trace, [partition])
    assert len(of_partition) > 200
    assert of_partition.by_device == page_writebacks(recorded.trace, [disk]).by_device


def test_a_device_on_a_partition_counts_twice(recorded):
    written = {dev for (dev,) in recorded.rows("SELECT DISTINCT dev FROM flushes")}
    said = "\n".join(notes(recorded.trace.manifest, written))
    (below,) = (
        dev
        for dev, disk in Devices(recorded.trace.manifest).partitions.items()
        if disk == recorded.lower
    )
    for kind in KINDS:
        loop = recorded.dev(f"loop on a partition, {kind}")
        assert f"{loop} lies on {below} (on {recorded.lower}): " in said


def test_the_flush_layer_takes_no_page_of_a_loop_device_s_file(recorded):
    loops = {recorded.dev(f"loop on a partition, {kind}") for kind in KINDS}
    images = [
        Path(disk["backing_file"])
        for disk in recorded.trace.manifest["disks"]
        if disk.get("dev") in loops
    ]
    inodes = ", ".join(str(image.stat().st_ino) for image in images)
    ((pages,),) = recorded.rows(
        f"SELECT sum(pages)::BIGINT FROM flushes WHERE dev = ? AND ino IN ({inodes})"
        " AND NOT contains(rwbs, 'M')",
        recorded.lower,
    )
    found = page_writebacks(recorded.trace, all_writers=True)
    assert pages > 1000
    assert found.below[recorded.lower] == pages
    lower = page_writebacks(recorded.trace, [recorded.lower], all_writers=True)
    assert found.by_device.get(recorded.lower, 0) == len(lower) - pages


@pytest.mark.parametrize("place", PLACES)
def test_an_overlay_is_one_with_the_file_system_of_its_upper_layer(recorded, place):
    load = f"{place}, overlay"
    devices = Devices(recorded.trace.manifest)
    number = recorded.mount(load).stat().st_dev
    overlay = f"{os.major(number)}:{os.minor(number)}"
    below = recorded.partitions.get(load, recorded.dev(load))
    assert overlay != below
    assert devices.names(overlay) == devices.names(below)


def test_a_loop_on_a_partition_itself_is_known_to_lie_on_it(tmp_path):
    with FileSystems(tmp_path) as file_system:
        partition, disk = file_system.partition()
        loop = file_system.loop(partition)
        devices = Devices({"disks": environment.disks()})
        assert devices.below(numbers_of(loop)) == {numbers_of(partition): [numbers_of(disk)]}


def test_metadata_on_a_partition_is_dirtied_in_the_partitions_own_inode(recorded):
    load = "partition, ext4"
    disk, partition = recorded.dev(load), recorded.partitions[load]
    own = Devices(recorded.trace.manifest).device_inodes([disk])
    ino, begins = next((ino, page) for (_, ino), page in own.items() if page)
    major, minor = map(int, partition.split(":"))
    assert (ino, begins) == ((major << 20) + minor, PARTITION_START // 8)
    dirtied = {
        index + begins
        for (index,) in recorded.rows(
            "SELECT \"index\" FROM dirty WHERE event = 'dirty_folio' AND dev = ? AND ino = ?",
            disk,
            ino,
        )
    }
    written = {
        page
        for (page,) in recorded.rows(
            "SELECT page FROM flushes WHERE dev = ? AND reason = 'sync' AND contains(rwbs, 'M')",
            disk,
        )
    }
    assert written
    assert written <= dirtied
