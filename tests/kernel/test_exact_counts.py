"""A load of exactly N events, N a prime, is recorded as exactly N."""

import collections
import re
import subprocess

import pytest

from tests.support.backends import every_backend, every_backend_of_calls
from tests.support.file_systems import FileSystems
from tests.support.let_go import GO, WAITING_CALLS, waiting
from tests.support.loads import program
from tests.support.perf_counts import INSERTED, SAME, perf_stat
from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.trace import Trace

CALLS, PAGES, SYNCED, FILES, STORM = 9973, 1009, 101, 23, 500_009

LOADS = {}
"""Programs, all of them in one recording a backend: `recorded`."""
ON_DISK = {}
"""Those that write to a file system of their own, `mount`."""


@pytest.fixture(scope="module")
def recorded(record_loads, tmp_path_factory, backend):
    """The recording of LOADS and ON_DISK, and of two of three processes that one of them lets go.

    It has `dev`, the MAJOR:MINOR of each load's file system.
    """
    folder = tmp_path_factory.mktemp("disks")
    with FileSystems(folder) as file_system, waiting(folder) as pids:
        mounts, dev = {}, {}
        for name in ON_DISK:
            mounts[name], dev[name] = file_system(name=name)
        mounts["partition"], dev["partition"], dev["disk"] = file_system.on_a_partition("partition")
        loads = LOADS | {
            name: f"mount = {str(mounts[name])!r}\n{source}"
            for name, source in (ON_DISK | {"partition": PARTITION}).items()
        }
        perf = program(folder, "perf", loads["perf"])
        loads["perf"] = [*perf_stat(dev["perf"], folder / "perf.csv"), *perf]
        loads["go"] = GO.format(pids=pids, done=[str(folder / f"{n}") for n in WAITING_CALLS])
        found = record_loads(loads, "-p", f"{pids[0]},{pids[1]}", backend=backend)
        flushes(found.trace)
        requests(found.trace)
        found.dev, found.waiting, found.by_perf = dev, pids, folder / "perf.csv"
        yield found


def after_exec(of_pid):
    """SQL: the time from which on a load's process runs the load's program."""
    return f"(SELECT max(ts + dur_ns) FROM syscalls WHERE name = 'execve' AND pid = {of_pid})"


LOADS["calls"] = f"import os\nfor _ in range({CALLS}): os.getppid()"


@every_backend_of_calls
def test_system_calls(recorded):
    pid = recorded.pid("calls")
    query = "SELECT count(*) FROM syscalls WHERE name = 'getppid' AND pid = ?"
    assert recorded.one(query, pid) == CALLS
    unfinished = "SELECT list(name) FROM syscalls WHERE dur_ns IS NULL AND pid = ?"
    assert recorded.one(unfinished, pid) == ["exit_group"]


LOADS["storm"] = f"""
import os
fd = os.memfd_create("empty")
for number in range(1, {STORM} + 1): os.lseek(fd, number, 0)
"""


@every_backend_of_calls
def test_a_storm_is_whole_with_default_settings(recorded):
    """The calls return 1, 2, 3, ...: a missing call shows, even if the kernel does not count it."""
    query = (
        "SELECT count(DISTINCT ret), max(ret) FROM syscalls "
        "WHERE name = 'lseek' AND ret > 0 AND pid = ?"
    )
    assert recorded.rows(query, recorded.pid("storm")) == [(STORM, STORM)]


LOADS["listing"] = "import os\nfor _ in range(101): os.getppid()\nos.listdir('/')\n"


@every_backend_of_calls
def test_the_same_calls_as_strace(recorded, load, tmp_path):
    log = tmp_path / "strace.log"
    # The same kinds of stdin, stdout and stderr: the interpreter looks at them.
    subprocess.run(
        ["strace", "-f", "-o", str(log), *load(LOADS["listing"])],
        check=True,
        stdin=subprocess.PIPE,
        capture_output=True,
    )
    theirs = collections.Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE))
    pid = recorded.pid("listing")
    ours = dict(
        recorded.rows(
            "SELECT name, count(*) FROM syscalls WHERE pid = ? "
            f"AND ts + coalesce(dur_ns, 0) >= {after_exec(pid)} GROUP BY 1",
            pid,
        )
    )
    # The kernel randomises where the heap begins, so brk may need one call more or less.
    theirs.pop("brk"), ours.pop("brk")
    assert ours == dict(theirs)


LOADS["family"] = """
import os, threading
def calls():
    for _ in range(7): os.getppid()
for _ in range(23):
    if os.fork() == 0:
        calls()
        if os.fork() == 0:
            calls()
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
threads = [threading.Thread(target=calls) for _ in range(5)]
for t in threads: t.start()
for t in threads: t.join()
"""


@every_backend_of_calls
def test_children_and_threads_are_followed_and_nobody_else(recorded):
    family = recorded.pids("family")
    query = "SELECT count(*) FROM syscalls WHERE name = 'getppid' AND list_contains(?, pid)"
    assert recorded.one(query, family) == 7 * (23 + 23 + 5)
    pids = "SELECT count(DISTINCT pid) FROM syscalls WHERE list_contains(?, pid)"
    assert recorded.one(pids, family) == 1 + 23 + 23
    ppids = (
        "SELECT count(DISTINCT ppid) FROM processes WHERE role = 'child' AND list_contains(?, ppid)"
    )
    assert recorded.one(ppids, family) == 24
    # All others are processes that were named, and the recorded command's children.
    targets = [target["pid"] for target in recorded.trace.manifest["targets"]]
    roles = recorded.rows(
        "SELECT p.role, list(DISTINCT p.pid ORDER BY p.pid) FROM syscalls s "
        "LEFT JOIN processes p USING (tid) WHERE p.role IS DISTINCT FROM 'child' GROUP BY 1"
    )
    assert roles == [("target", sorted(targets))]


LOADS["faults"] = f"""
import ctypes, mmap
size = {PAGES} * 4096
m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m.madvise(mmap.MADV_NOHUGEPAGE)
start = ctypes.addressof(ctypes.c_char.from_buffer(m))
for page in range({PAGES}):
    m[page * 4096] = 1
print(start, start + size)
"""


@every_backend
def test_page_faults_on_an_anonymous_mapping(recorded):
    pid, out = recorded.loads["faults"]
    found = recorded.rows(
        'SELECT access, "user", count(*), count(DISTINCT address // 4096) FROM page_faults '
        "WHERE address >= ? AND address < ? AND pid = ? GROUP BY ALL",
        *map(int, out.split()),
        pid,
    )
    assert found == [("write", True, PAGES, PAGES)]


@every_backend
def test_the_number_of_faults_equals_perfs(recorded, load):
    """perf counts from the exec on; both see the same program."""
    counted = subprocess.run(
        ["perf", "stat", "-x", ",", "-e", "page-faults:u", "--", *load(LOADS["faults"])],
        check=True,
        capture_output=True,
        text=True,
    )
    theirs = int(counted.stderr.strip().splitlines()[-1].split(",")[0])
    pid = recorded.pid("faults")
    query = f'SELECT count(*) FROM page_faults WHERE "user" AND pid = ? AND ts > {after_exec(pid)}'
    ours = recorded.one(query, pid)
    # Address randomisation moves a few faults of the loader and the allocator.
    assert abs(ours - theirs) < 0.02 * theirs
    assert ours > PAGES


ON_DISK["overwriting"] = f"""
import os
fd = os.open(mount + "/synced", os.O_CREAT | os.O_RDWR, 0o600)
os.pwrite(fd, b"x" * 4096 * {SYNCED}, 0)  # allocate
os.fsync(fd)
for i in range({SYNCED}):
    os.pwrite(fd, bytes([i]) * 4096, i * 4096)
    os.fdatasync(fd)
"""


@every_backend
def test_synced_writes(recorded):
    calls = "SELECT count(*) FROM syscalls WHERE name = 'fdatasync' AND pid = ?"
    assert recorded.one(calls, recorded.pid("overwriting")) == SYNCED
    # Overwrites of allocated blocks need no journal: the data alone is written, page by page.
    (found,) = recorded.rows(
        "SELECT count(*), sum(pages), count(DISTINCT page) FROM flushes "
        "WHERE dev = ? AND call = 'fdatasync'",
        recorded.dev["overwriting"],
    )
    assert found == (SYNCED, SYNCED, SYNCED)


# 23 pages left to sync, 29 pages fsynced, then one page overwritten and fdatasynced.
ON_DISK["by reason"] = f"""
import os
def write(name, pages):
    fd = os.open(mount + "/" + name, os.O_CREAT | os.O_RDWR, 0o600)
    os.pwrite(fd, os.urandom(4096 * pages), 0)
    return fd
a = write("a", {FILES})
b = write("b", 29)
os.fsync(b)
os.sync()
os.pwrite(a, b"y" * 4096, 5 * 4096)
os.fdatasync(a)
"""


@every_backend
def test_pages_by_reason_on_a_file_system_of_its_own(recorded):
    dev = recorded.dev["by reason"]
    found = recorded.rows(
        "SELECT reason, sum(pages)::INT, sum(nr_sector)::INT FROM flushes "
        "WHERE dev = ? AND rwbs NOT LIKE '%M%' AND reason IN ('fsync', 'sync') "
        "GROUP BY 1 ORDER BY 1",
        dev,
    )
    assert found == [("fsync", 30, 240), ("sync", FILES, FILES * 8)]
    ((_, *sync),) = recorded.rows(
        "SELECT DISTINCT ino, certainty, target FROM flushes "
        "WHERE dev = ? AND reason = 'sync' AND rwbs NOT LIKE '%M%'",
        dev,
    )
    assert sync == ["exact", recorded.trace.manifest["targets"][2]["name"]]
    starts = "SELECT count(*) FROM writeback WHERE event = 'start' AND reason = 'sync' AND bdi = ?"
    assert recorded.one(starts, dev) > 0


ON_DISK["requests"] = """
import os
for i in range(7):
    fd = os.open(mount + "/%d" % i, os.O_CREAT | os.O_RDWR, 0o600)
    os.pwrite(fd, os.urandom(4096 * 31), 0)
    os.fsync(fd)
"""


@every_backend
def test_requests_conserve_sectors(recorded):
    dev = recorded.dev["requests"]
    queued = recorded.one(
        "SELECT sum(nr_sector) FROM block WHERE dev = ? AND event = 'bio_queue'", dev
    )
    ((issued, completed, unfinished),) = recorded.rows(
        "SELECT sum(nr_sector), sum(nr_sector) FILTER (complete_ns IS NOT NULL), "
        "count(*) FILTER (complete_ns IS NULL) FROM requests WHERE dev = ?",
        dev,
    )
    assert queued == issued == completed
    assert queued >= 7 * 31 * 8
    assert unfinished == 0
    latencies = "SELECT min(service_latency_ns), min(queue_latency_ns) FROM requests WHERE dev = ?"
    assert min(recorded.rows(latencies, dev)[0]) > 0


ON_DISK["perf"] = """
import os, time
for i in range(23):
    fd = os.open(mount + "/%d" % i, os.O_CREAT | os.O_RDWR, 0o600)
    os.pwrite(fd, os.urandom(4096 * (i + 1)), 0)
    if i % 3 == 0: os.fsync(fd)
os.sync()
time.sleep(0.2)
"""


@every_backend
def test_the_same_block_and_writeback_events_as_perf(recorded):
    """perf counts inside our recording, on a device that nobody else uses meanwhile."""
    lines = [line.split(",") for line in recorded.by_perf.read_text().splitlines()]
    theirs = {line[2]: int(line[0]) for line in lines if len(line) > 4}
    ours = {
        name: recorded.one(
            f"SELECT count(*) FROM {table} t, processes p WHERE event = ? AND {column} = ? "
            "AND p.pid = ? AND ts BETWEEN p.start_ns AND p.end_ns",
            event,
            recorded.dev["perf"],
            recorded.pid("perf"),
        )
        for name, (table, event, column) in SAME.items()
    }
    assert ours == theirs
    assert min(count for name, count in ours.items() if name != INSERTED) > 0


@every_backend
def test_several_processes_and_a_command_at_once_and_no_other(recorded):
    pids, go = recorded.waiting, recorded.pid("go")
    targets = recorded.trace.manifest["targets"]
    assert [t["pid"] for t in targets[:2]] == pids[:2]
    assert len({t["name"] for t in targets}) == 3
    found = recorded.rows(
        "SELECT s.pid, p.target, count(*) FROM syscalls s JOIN processes p USING (tid) "
        "WHERE s.name = 'getppid' AND list_contains(?, s.pid) GROUP BY ALL",
        [*pids, go],
    )
    wanted = zip((*pids[:2], go), targets, (*WAITING_CALLS[:2], 499), strict=True)
    assert {*found} == {(pid, target["name"], calls) for pid, target, calls in wanted}


PARTITION = f"""
import os
fd = os.open(mount + "/a", os.O_CREAT | os.O_RDWR, 0o600)
os.pwrite(fd, os.urandom(4096 * {FILES}), 0)
os.sync()
"""


@every_backend
def test_a_file_system_on_a_partition(recorded):
    """Bios name the partition, write-back and requests the disk: the chain holds all the same."""
    found = recorded.rows(
        "SELECT reason, certainty, target, sum(pages)::INT FROM flushes "
        "WHERE dev IN (?, ?) AND reason = 'sync' AND rwbs NOT LIKE '%M%' GROUP BY ALL",
        recorded.dev["disk"],
        recorded.dev["partition"],
    )
    target = recorded.trace.manifest["targets"][2]["name"]
    assert found == [("sync", "exact", target, FILES)]
    ((writes, *waited),) = recorded.rows(
        "SELECT count(*), count(queue_latency_ns), count(service_latency_ns) FROM requests "
        "WHERE dev = ? AND operation = 'write'",
        recorded.dev["disk"],
    )
    assert writes > 0
    assert waited == [writes, writes]


ON_DISK["syncing"] = f"""
import os
fd = os.open(mount + "/f", os.O_CREAT | os.O_RDWR, 0o600)
for i in range({FILES}):
    os.pwrite(fd, bytes([i]) * 4096, i * 4096)
    os.sync()
"""


@every_backend
def test_sync_calls_and_the_pages_that_they_write(recorded):
    calls = "SELECT count(*) FROM syscalls WHERE name = 'sync' AND pid = ?"
    assert recorded.one(calls, recorded.pid("syncing")) == FILES
    (pages,) = recorded.rows(
        "SELECT sum(pages), count(DISTINCT page) FROM flushes "
        "WHERE dev = ? AND reason = 'sync' AND rwbs NOT LIKE '%M%'",
        recorded.dev["syncing"],
    )
    assert pages == (FILES, FILES)


def test_everything_is_recorded_but_the_recorder(load, tracer, tmp_path):
    go, done = tmp_path / "go", tmp_path / "done"
    other = load(
        f"""
        import os, time
        while not os.path.exists("{go}"): time.sleep(0.01)
        for _ in range(1009): os.getppid()
        open("{done}", "w").close()
        """
    )
    command = f"touch {go}; while [ ! -e {done} ]; do sleep 0.1; done"
    with subprocess.Popen(other) as process:
        tracer("record", "-o", "x.trace", "-a", "-e", "syscalls", "--", "sh", "-c", command)
    with Trace(tmp_path / "x.trace") as trace:
        query = "SELECT count(*) FROM syscalls WHERE pid = ? AND name = 'getppid'"
        assert trace.connection.execute(query, [process.pid]).fetchone()[0] == 1009
        recorder = trace.manifest["recorder"]["pid"]
        query = "SELECT count(*) FROM syscalls WHERE pid = ?"
        assert trace.connection.execute(query, [recorder]).fetchone()[0] == 0
        assert trace.manifest["loss"]["events"] == 0
