"""Reads below a limit on the speed of a device: whose they are, though the kernel issues them.

Two processes read a file each, at the same time.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import loads
from tests.support.file_systems import FileSystems
from tracer.analysis.views.reads import reads
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


def recorded(folder, mount, dev, disk):
    for name, pages in SIZES.items():
        Path(mount, name).write_bytes(os.urandom(pages * PAGE))
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
    outside = throttle.find_hierarchy().own()
    with Throttle(disk, SLOW, folder) as hierarchy:
        group = hierarchy.own()
        # The recorder is not limited.
        (outside / "cgroup.procs").write_text(str(os.getpid()))
        source = LOAD.format(group=group, names=list(SIZES), mount=mount, page=PAGE)
        found = loads.record(folder, {"readers": source}, "-e", "default,page_cache")
    reads(found.trace)
    return Reading(found, json.loads(found.loads["readers"].out), dev)


@pytest.fixture(scope="module", params=["ext4", "xfs", "partition"])
def reading(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("throttled")
    with FileSystems(folder) as make:
        if request.param == "partition":
            mount, dev, disk = make.on_a_partition()
        else:
            mount, dev = make(kind=request.param)
            disk = dev
        found = recorded(folder, mount, dev, disk)
        yield found
        found.recorded.trace.close()


@pytest.mark.parametrize("name", SIZES)
def test_the_device_reads_all_pages_of_a_file_once(reading, name):
    assert reading.of(name, "read") == SIZES[name]
    assert reading.of(name, "disk_bytes") == SIZES[name] * PAGE


@pytest.mark.parametrize("name", SIZES)
def test_bytes_are_of_the_process_that_reads_the_file(reading, name):
    own = f"pid = {reading.pids[name]}"
    assert reading.of(name, "disk_bytes", own) == SIZES[name] * PAGE
    assert reading.of(name, "disk_bytes", f"{own} AND by_pid != pid") > 0


def test_every_byte_has_a_file(reading):
    nobodys = "SELECT count(*) FROM page_uses WHERE disk_bytes > 0 AND ino IS NULL"
    assert reading.recorded.one(nobodys) == 0


def test_bytes_whose_file_is_not_known_are_counted_apart(tmp_path):
    """A place in a file of btrfs is none of a device."""
    with FileSystems(tmp_path) as make:
        mount, disk = make(kind="btrfs")
        found = recorded(tmp_path, mount, disk, disk)
        with found.recorded.trace as trace:
            of_files = "SELECT sum(disk_bytes)::BIGINT FROM page_uses WHERE path LIKE ?"
            known = trace.connection.execute(of_files, [f"{mount}/%"]).fetchone()[0] or 0
            nobodys = "SELECT sum(disk_bytes)::BIGINT FROM reads WHERE dev IS NULL"
            ((unknown,),) = trace.rows(nobodys)
    assert 0 < unknown == sum(SIZES.values()) * PAGE - known
