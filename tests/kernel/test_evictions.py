"""Pages that a memory limit evicts, and the prediction of what such a limit makes a job read."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import loads
from tests.support.file_systems import FileSystems
from tracer.analysis.memory.answer import KERNEL, answer_memory
from tracer.analysis.views.reading.reads import reads
from tracer.workloads.modes import cgroups
from tracer.workloads.modes.cgroups import Memory, Share

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
LIMIT, ENOUGH = 24 * MIB, 512 * MIB
FILES, FILE_MIB, EPOCHS = 17, 3, 3
LOAD = """
import ctypes, json, os, random

libc = ctypes.CDLL(None)

class Range(ctypes.Structure):
    _fields_ = [("off", ctypes.c_uint64), ("len", ctypes.c_uint64)]

class Found(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("cache", "dirty", "writeback", "evicted", "recent")]

def cached(fd):
    found, asked = Found(), Range(0, 0)
    assert libc.syscall(451, fd, ctypes.byref(asked), ctypes.byref(found), 0) == 0
    return found.cache

with open({cgroup!r} + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
open_files = [os.open(f"{mount}/{{number}}", os.O_RDONLY) for number in range({files})]
draw = random.Random(11)
for epoch in range({epochs}):
    draw.shuffle(open_files)
    for fd in open_files:
        for at in range(0, {size}, 65536):
            os.pread(fd, 65536, at)
with open({cgroup!r} + "/memory.stat") as file:
    stat = dict(line.split() for line in file)
for name in ("memory.usage_in_bytes", "memory.current"):
    if os.path.exists({cgroup!r} + "/" + name):
        with open({cgroup!r} + "/" + name) as file:
            own = int(file.read()) - int(stat.get("cache") or stat["file"])
print(json.dumps([sum(map(cached, open_files)), own]))
"""


@dataclass
class Limited:
    """A recording of a job with a limit, what is left in the cache, and its device."""

    recorded: loads.Recorded
    dev: str
    left: int
    own: int
    device_read: int

    def evicters(self) -> set[int]:
        """Returns the processes that evicted pages, without threads of the kernel (DAMON's)."""
        rows = self.recorded.rows(
            "SELECT DISTINCT u.by_pid FROM page_uses u ANTI JOIN"
            " (SELECT pid FROM processes WHERE ppid = 2) k ON u.by_pid = k.pid"
            " WHERE u.dev = ? AND u.evicted > 0",
            self.dev,
        )
        return {pid for (pid,) in rows}

    def sum(self, column: str) -> int:
        query = f"SELECT sum({column}) FROM reads WHERE dev = ?"
        return self.recorded.one(query, self.dev) or 0


def bytes_read(dev):
    return int(Path(f"/sys/dev/block/{dev}/stat").read_text().split()[2]) * 512


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """Returns a function that records the job with a memory limit, once for each limit."""
    folder = tmp_path_factory.mktemp("evictions")
    made, plans = {}, []
    with FileSystems(folder) as make:
        mount, dev = make(kind="ext4")
        for number in range(FILES):
            Path(mount, str(number)).write_bytes(os.urandom(FILE_MIB * MIB))

        def record(limit):
            if limit in made:
                return made[limit]
            name = f"tracer-evictions-{os.getpid()}-{limit}"
            plans.append(cgroups.plan(Share(), name, memory=Memory(limit)))
            cgroup, *_ = cgroups.make(plans[-1])
            make.anew(mount)
            source = LOAD.format(
                cgroup=str(cgroup), mount=mount, files=FILES, epochs=EPOCHS, size=FILE_MIB * MIB
            )
            place = folder / str(limit)
            place.mkdir()
            before = bytes_read(dev)
            found = loads.record(place, {"job": source}, "-e", "default,page_cache")
            read = bytes_read(dev) - before
            left, own = json.loads(found.loads["job"].out)
            reads(found.trace)
            made[limit] = Limited(found, dev, left, own, read)
            return made[limit]

        try:
            yield record
        finally:
            for one in made.values():
                one.recorded.trace.close()
            for plan in reversed(plans):
                cgroups.remove(plan)


def test_pages_read_are_evicted_or_still_there(limited):
    short = limited(LIMIT)
    assert short.sum("accessed") == EPOCHS * FILES * FILE_MIB * MIB // PAGE
    assert short.sum("removed") == 0
    assert short.sum("evicted") == short.sum("read") - short.left > 0
    assert short.sum("disk_bytes") == short.sum("read") * PAGE


def test_pages_read_again_are_those_read_more_than_once(limited):
    short = limited(LIMIT)
    assert short.sum("refaulted") == short.sum("read") - FILES * FILE_MIB * MIB // PAGE > 0
    assert short.evicters() == {short.recorded.pid("job")}


def test_with_enough_memory_each_page_is_read_once(limited):
    enough = limited(ENOUGH)
    assert enough.evicters() == set()
    again = enough.sum("refaulted")
    assert enough.sum("read") == FILES * FILE_MIB * MIB // PAGE + again
    assert again <= enough.sum("evicted")


def test_a_limit_is_predicted_from_a_recording_without_one(limited):
    enough, short = limited(ENOUGH), limited(LIMIT)
    answer = answer_memory(enough.recorded.trace, [LIMIT], own=short.own)
    predicted = answer.reads[f"{KERNEL}_pages"].sum() * answer.page_bytes
    assert predicted == pytest.approx(short.device_read, rel=0.1)
    least = FILES * FILE_MIB * MIB + short.own
    assert least <= answer.enough_bytes[answer.reads["target"].iloc[0]] < least + 32 * MIB
