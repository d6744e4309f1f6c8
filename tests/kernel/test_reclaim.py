"""Reclaim of real memory cgroups: who waits, the pages taken, and the process that is killed."""

import json
import os
from pathlib import Path

import pytest

from tests.conftest import do_without
from tests.support import loads
from tests.support.backends import every_backend
from tracer.workloads.modes import cgroups
from tracer.workloads.modes.cgroups import Memory, Share

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
LIMIT, FILE = 24 * MIB, 71 * MIB
ENTER = """
import json, os
def enter(cgroup):
    with open(cgroup + "/cgroup.procs", "w") as file: file.write(str(os.getpid()))
"""
READING = """
import threading
def read():
    fd = os.open({file!r}, os.O_RDONLY)
    for at in [*range(0, {size}, 1 << 20)] * 2: os.pread(fd, 1 << 20, at)
    told["tid"] = threading.get_native_id()
told = {{}}
enter({cgroup!r})
with open({cgroup!r} + "/memory.stat") as file: before = file.read()
reader = threading.Thread(target=read)
reader.start()
reader.join()
with open({cgroup!r} + "/memory.stat") as file: after = file.read()
with open("/proc/self/io") as file: io = file.read()
print(json.dumps({{**told, "before": before, "after": after, "io": io}}))
"""
KILLED = """
pid = os.fork()
if pid == 0:
    enter({cgroup!r})
    with open("/proc/self/comm", "w") as file: file.write("greedy")
    held = b"x" * {size}
    os._exit(0)
print(json.dumps([pid, os.waitpid(pid, 0)[1]]))
"""
OTHER = "import os\nfor _ in range(23): os.getppid()"


@pytest.fixture(scope="module")
def limited():
    """Makes a memory cgroup with a limit; returns its folder."""
    made = []

    def make(limit):
        name = f"tracer-reclaim-{os.getpid()}-{len(made)}"
        made.append(cgroups.plan(Share(), name, memory=Memory(limit)))
        (folder,) = cgroups.make(made[-1])
        return str(folder)

    yield make
    for planned in made:
        cgroups.remove(planned)


def on_disk(folder):
    """A file on a disk, of which no page is cached; the first reader is charged with its pages."""
    path = folder / "data"
    path.write_bytes(os.urandom(FILE))
    device = path.stat().st_dev
    if not Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").exists():
        do_without("a disk", "TRACER_REQUIRE_KERNEL", f"{folder} lies on none")
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return str(path)


@pytest.fixture(scope="module")
def recorded(backend, limited, tmp_path_factory):
    """One recording of a reader beyond its limit, of a process that is killed, and of another."""
    folder = tmp_path_factory.mktemp("reclaim")
    file = on_disk(folder)
    sources = {
        "reading": READING.format(file=file, size=FILE, cgroup=limited(LIMIT)),
        "killed": KILLED.format(size=4 * LIMIT, cgroup=limited(LIMIT)),
        "other": OTHER,
    }
    sources = {name: ENTER + source for name, source in sources.items()}
    found = loads.record(folder, sources, "-e", "reclaim", backend=backend)
    yield found
    found.trace.close()


def numbers(text):
    """Numbers by name, of a file with a name and a number on each line."""
    return {name: int(value) for name, value in (line.split()[:2] for line in text.splitlines())}


@every_backend
def test_a_thread_waits_in_brackets_of_its_own(recorded):
    told = json.loads(recorded.loads["reading"].out)
    rows = recorded.rows(
        "SELECT tid, event FROM reclaim WHERE pid = ? ORDER BY ts", recorded.pid("reading")
    )
    assert told["tid"] != recorded.pid("reading")
    assert {tid for tid, _ in rows} == {told["tid"]}
    brackets = [event for _, event in rows if event.startswith("memcg")]
    assert len(brackets) > 2
    pairs = zip(brackets[::2], brackets[1::2], strict=True)
    assert set(pairs) == {("memcg_begin", "memcg_end")}


@every_backend
def test_the_pages_taken_are_those_that_were_read_and_are_no_longer_there(recorded):
    """Two witnesses of the kernel: I/O accounting and the cgroup's own count of cached pages."""
    told = json.loads(recorded.loads["reading"].out)
    io = numbers(told["io"].replace(":", ""))
    before, after = numbers(told["before"]), numbers(told["after"])
    cached = next(name for name in ("total_cache", "file") if name in after)
    gone = io["read_bytes"] - (after[cached] - before[cached])
    taken = recorded.one(
        "SELECT sum(nr_reclaimed)::BIGINT FROM reclaim WHERE pid = ?", recorded.pid("reading")
    )
    assert io["read_bytes"] >= FILE
    assert taken * PAGE == pytest.approx(gone, rel=0.01)
    if "pgsteal" in after:  # version 2 counts them itself
        assert taken == pytest.approx(after["pgsteal"] - before["pgsteal"], rel=0.01)


@every_backend
def test_begins_tell_of_the_allocation_and_ends_of_the_pages(recorded):
    found = recorded.rows(
        """
        SELECT event, bool_and(gfp_flags > 0 AND page_order = 0), bool_and(nr_reclaimed >= 0)
        FROM reclaim WHERE pid = ? AND event LIKE 'memcg%' GROUP BY 1 ORDER BY 1
        """,
        recorded.pid("reading"),
    )
    assert found == [("memcg_begin", True, None), ("memcg_end", None, True)]


@every_backend
def test_the_process_that_is_killed_is_named(recorded):
    victim, status = json.loads(recorded.loads["killed"].out)
    assert os.WTERMSIG(status) == 9
    found = recorded.rows(
        "SELECT pid, tid, victim_tid, victim_comm FROM reclaim WHERE event = 'oom_kill'"
        " AND victim_tid = ?",
        victim,
    )
    # It asked for the memory itself. The name is null where a kernel does not log it.
    assert found in ([(victim, victim, victim, "greedy")], [(victim, victim, victim, None)])


@every_backend
def test_a_process_with_enough_memory_does_not_reclaim(recorded):
    assert recorded.rows("SELECT * FROM reclaim WHERE pid = ?", recorded.pid("other")) == []
