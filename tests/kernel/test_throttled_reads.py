"""Reads below a limit on the speed of a device: whose they are, though the kernel issues them.

Two processes read a file each, at the same time.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import loads
from tests.support.file_systems import FileSystems
from tracer.analysis.views.reading.reads import reads
from tracer.workloads.containers.limits import Speed
from tracer.workloads.studies import throttle
from tracer.workloads.studies.throttle import Throttle

PAGE = 4096
SLOW = Speed(4 << 20, 4 << 20, 100_000, 100_000)
LOAD = """
import json, os
with open("{group}/cgroup.procs", "w") as file: file.write(str(os.getpid()))
children = {{}}
for name in {names}:
    child = os.fork()
    if child == 0:
        fd = os.open("{mount}/" + name, os.O_RDONLY)
        while os.read(fd, 31 * {page}): pass
        os._exit(0)
    children[name] = child
for child in children.values(): os.waitpid(child, 0)
print(json.dumps(children))
"""
SIZES = {"one": 499, "two": 761}
"""Pages of each file."""


@dataclass
class Reading:
    """A recording of the readers, the process of each file, and the file system's device."""

    recorded: loads.Recorded
    pids: dict[str, int]
    dev: str

    def of(self, name: str, what: str, where: str = "true") -> int:
        """Returns a sum over the uses of a file."""
        query = f"SELECT sum({what}) FROM page_uses WHERE dev = ? AND path LIKE ? AND {where}"
        return self.recorded.one(query, self.dev, f"%/{name}") or 0


@pytest.fixture(scope="module", autouse=True)
def limits():
    if throttle.find_hierarchy() is None:
        pytest.skip("this kernel cannot limit devices")


def recorded(folder, make, disks):
    """Records readers on file systems, by name, each below a limit of its own.

    `disks` has the mount point, the file system's device and its disk.
    """
    outside = throttle.find_hierarchy().own()
    sources = {}
    with contextlib.ExitStack() as limited:
        for of, (mount, _, disk) in disks.items():
            for name, pages in SIZES.items():
                with Path(mount, name).open("wb") as file:
                    file.write(os.urandom(pages * PAGE))
                    file.flush()
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            group = limited.enter_context(Throttle(disk, SLOW, folder / of)).own()
            sources[of] = LOAD.format(group=group, names=list(SIZES), mount=mount, page=PAGE)
        # The recorder is not limited.
        (outside / "cgroup.procs").write_text(str(os.getpid()))
        found = loads.record(folder, sources, "-e", "default,page_cache")
    reads(found.trace)
    return {
        of: Reading(found, json.loads(found.loads[of].out), dev)
        for of, (_, dev, _) in disks.items()
    }


PLACES = ("ext4", "xfs", "partition")


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """One recording of the readers on several file systems, by place."""
    folder = tmp_path_factory.mktemp("throttled")
    with FileSystems(folder) as make:
        disks = {"partition": make.on_a_partition("partition")}
        for kind in ("ext4", "xfs"):
            mount, dev = make(name=kind, kind=kind)
            disks[kind] = mount, dev, dev
        found = recorded(folder, make, disks)
        yield found
        found["ext4"].recorded.trace.close()


@pytest.fixture(params=PLACES)
def reading(readings, request):
    """The readers on one file system."""
    return readings[request.param]


@pytest.mark.parametrize("name", SIZES)
def test_the_device_reads_all_pages_of_a_file_once(reading, name):
    assert reading.of(name, "read") == SIZES[name]
    assert reading.of(name, "disk_bytes") == SIZES[name] * PAGE


@pytest.mark.parametrize("name", SIZES)
def test_bytes_are_of_the_process_that_reads_the_file(reading, name):
    own = f"pid = {reading.pids[name]}"
    assert reading.of(name, "disk_bytes", own) == SIZES[name] * PAGE
    assert reading.of(name, "disk_bytes", f"{own} AND by_pid != pid") > 0


def test_every_byte_has_a_file(readings):
    nobodys = "SELECT count(*) FROM page_uses WHERE disk_bytes > 0 AND ino IS NULL"
    assert readings["ext4"].recorded.one(nobodys) == 0


def test_bytes_whose_file_is_not_known_are_counted_apart(tmp_path):
    """A place in a file of btrfs is none of a device."""
    with FileSystems(tmp_path) as make:
        mount, disk = make(kind="btrfs")
        found = recorded(tmp_path, make, {"btrfs": (mount, disk, disk)})["btrfs"]
        with found.recorded.trace as trace:
            readers = ", ".join(map(str, found.pids.values()))  # no name of btrfs's is known
            of_files = f"FROM page_uses WHERE pid IN ({readers}) AND ino IS NOT NULL"
            ((known,),) = trace.rows(f"SELECT coalesce(sum(disk_bytes), 0)::BIGINT {of_files}")
            nobodys = "SELECT sum(disk_bytes)::BIGINT FROM reads WHERE dev IS NULL"
            ((unknown,),) = trace.rows(nobodys)
    assert 0 < unknown == sum(SIZES.values()) * PAGE - known
