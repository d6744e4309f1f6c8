"""Shared memory of a real cgroup: its samples, and a prediction's room for the page cache."""

import os
import subprocess

import pytest

from tests.conftest import do_without
from tests.support.waiting import wait_for
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.memory.words import basis
from tracer.store.trace import Trace
from tracer.targets.cgroups import hierarchies

MIB = 1 << 20
SHARED, DATA = 61 * MIB, 23 * MIB
NEAR = 64 * 4096 * (os.cpu_count() or 1)
"""Bytes that the kernel may not have added up yet: a batch per CPU (MEMCG_CHARGE_BATCH)."""
LOAD = f"""
import os, sys, time
folder, path = sys.argv[1:]
with open(folder + "/cgroup.procs", "w") as file: file.write(str(os.getpid()))
shared = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)
for _ in range({SHARED // MIB}): os.write(shared, bytes({MIB}))
data = os.open(path, os.O_RDONLY)
os.posix_fadvise(data, 0, 0, os.POSIX_FADV_DONTNEED)
while os.pread(data, {DATA}, 0):
    print("done", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def cgroup():
    """A memory cgroup of a test's own: its folder. Its process ends with the test."""
    counting = [h for h in hierarchies() if "memory" in h.controllers.split(",")]
    found = [h for h in counting or hierarchies() if (h.mount / "memory.stat").exists()]
    if not found:
        do_without("a hierarchy", "TRACER_REQUIRE_KERNEL", "none counts memory")
    folder = found[0].mount / f"tracer-shared-{os.getpid()}"
    folder.mkdir()
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text(), f"{folder} to empty")
    folder.rmdir()


def counted(folder):
    """Returns the bytes of memory.stat, by their name in version 2."""
    rows = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    of_both = {"total_cache": "file", "total_shmem": "shmem"}
    return {of_both.get(name, name): int(value) for name, value in rows.items()}


def test_shared_memory_of_a_cgroup_is_sampled_and_is_no_room_for_pages(
    tracer, tmp_path, load, cgroup
):
    path = tmp_path / "data"
    path.write_bytes(os.urandom(DATA))
    os.sync()
    with subprocess.Popen([*load(LOAD), cgroup, path], stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout.readline() == "done\n"
            options = "--cgroup", cgroup, "-e", "default,page_cache", "-d", "1"
            tracer("record", "-o", "a.trace", *options)
            told = counted(cgroup)
        finally:
            job.kill()
    assert told["file"] >= SHARED + DATA - NEAR
    with Trace(tmp_path / "a.trace") as trace:
        last = dict(
            trace.rows("SELECT name, arg_max(value, ts) FROM samples WHERE name IN "
                       "('cgroup_shmem', 'cgroup_page_cache') GROUP BY name")
        )  # fmt: skip
        assert last["cgroup_shmem"] == pytest.approx(SHARED, abs=NEAR)
        assert last["cgroup_shmem"] == pytest.approx(told["shmem"], abs=NEAR)
        assert last["cgroup_page_cache"] == pytest.approx(told["file"], abs=NEAR)
        found = answer_memory(trace, [1 << 30])
    (own,) = found.own_bytes.values()
    assert own >= SHARED - NEAR
    assert found.without_shared == [] and not any("shared memory" in one for one in basis(found))
