"""Threads that leave their CPU on the real kernel: loads whose waits are known by construction."""

import json

import pytest

from tests.support.backends import every_backend
from tests.support.slow_disk import slow_disk

SLEEPS, ROUNDS, READS, CHILDREN, THREADS = 23, 29, 11, 5, 7
SLEEP_MS, READ_MS = 11, 8
MS = 1_000_000

LOADS = {}
"""Programs, all of them in one recording a backend: `recorded`."""


@pytest.fixture(scope="module")
def recorded(record_loads, tmp_path_factory, backend):
    """The recording of LOADS and of reads from a slow disk."""
    folder = tmp_path_factory.mktemp("disk")
    with slow_disk(folder, "slow", READ_MS) as disk:
        loads = LOADS | {"reads": READS_OF_A_DISK.format(device=disk.device)}
        yield record_loads(loads, "-e", "sched,syscalls", backend=backend)


def within(call):
    """SQL: rows of off_cpu whose thread was in this system call when it left its CPU."""
    return (
        "(SELECT o.* FROM off_cpu o JOIN syscalls s ON s.tid = o.tid AND o.ts >= s.ts "
        f"AND o.ts < s.ts + s.dur_ns WHERE s.name = '{call}')"
    )


LOADS["sleeps"] = f"""
import json, time
began = []
for _ in range({SLEEPS}):
    began.append(time.monotonic_ns())
    time.sleep({SLEEP_MS} / 1000)
print(json.dumps(began))
"""


@every_backend
def test_a_sleep_ends_with_an_interrupt(recorded, backend):
    """A timer never ends before its time."""
    found = recorded.rows(
        "SELECT ts, ts + dur_ns, wake_ns, interrupt, run_delay_ns, state, pid, ran_tid "
        f"FROM {within('clock_nanosleep')} WHERE tid = ? AND state NOT LIKE 'R%' ORDER BY ts",
        recorded.pid("sleeps"),
    )
    began = json.loads(recorded.loads["sleeps"].out)
    assert len(found) == SLEEPS
    seen = set()
    for at, (ts, end, wake, interrupt, delay, state, pid, ran) in zip(began, found, strict=True):
        assert (state, pid) == ("S", recorded.pid("sleeps"))
        assert at < ts
        assert end >= at + SLEEP_MS * MS
        if ran is not None:  # else this kernel has logged neither the switch nor, maybe, the waking
            seen.add(interrupt)
            assert end - delay == wake >= at + SLEEP_MS * MS
    assert seen <= {None if backend == "ebpf" else True}


LOADS["rounds"] = f"""
import os, time
def asleep(pid):
    while open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] != "S": pass
    time.sleep(0.001)
there, back, parent = os.pipe(), os.pipe(), os.getpid()
child = os.fork()
for _ in range({ROUNDS}):
    if child:
        asleep(child)
        os.write(there[1], b"x")
        os.readv(back[0], [bytearray(1)])
    else:
        os.readv(there[0], [bytearray(1)])
        asleep(parent)
        os.write(back[1], b"x")
if child == 0: os._exit(0)
os.wait()
print(child)
"""


@every_backend
def test_each_side_of_a_pipe_is_woken_by_the_other(recorded, backend):
    parent, child = recorded.pid("rounds"), int(recorded.loads["rounds"].out)
    found = recorded.rows(
        f"SELECT tid, waker_tid, waker_pid, interrupt, count(*), count(run_delay_ns) "
        f"FROM {within('readv')} WHERE state = 'S' AND tid IN (?, ?) GROUP BY ALL ORDER BY tid",
        parent,
        child,
    )
    interrupt = None if backend == "ebpf" else False
    assert found == [
        (parent, child, child, interrupt, ROUNDS, ROUNDS),
        (child, parent, parent, interrupt, ROUNDS, ROUNDS),
    ]


LOADS["family"] = f"""
import os, threading
for _ in range({CHILDREN}):
    if os.fork() == 0: os._exit(0)
    os.wait()
barrier = threading.Barrier({THREADS} + 1)
threads = [threading.Thread(target=barrier.wait) for _ in range({THREADS})]
for thread in threads: thread.start()
barrier.wait()
for thread in threads: thread.join()
"""


@every_backend
def test_new_threads_and_processes_wait_for_their_first_cpu(recorded, backend):
    maker = recorded.pid("family")
    found = recorded.rows(
        "SELECT pid = ?, tid = pid, waker_pid, waker_tid, interrupt, count(*), "
        "count(run_delay_ns), bool_and(wake_ns = ts AND run_delay_ns = dur_ns AND cpu IS NULL) "
        "FROM off_cpu WHERE state = 'new' AND list_contains(?, pid) AND waker_tid = ? "
        "GROUP BY ALL ORDER BY 1",
        maker,
        recorded.pids("family"),
        maker,
    )
    interrupt = None if backend == "ebpf" else False
    assert found == [
        (False, True, maker, maker, interrupt, CHILDREN, CHILDREN, True),
        (True, False, maker, maker, interrupt, THREADS, THREADS, True),
    ]


READS_OF_A_DISK = f"""
import json, mmap, os, time
fd = os.open("{{device}}", os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 4096)
began = []
for n in range({READS}):
    os.lseek(fd, n << 20, os.SEEK_SET)
    began.append(time.monotonic_ns())
    assert os.readv(fd, [buffer]) == 4096
print(json.dumps(began))
"""


@every_backend
def test_a_read_from_a_slow_disk_is_an_uninterruptible_sleep(recorded):
    found = recorded.rows(
        f"SELECT ts, ts + dur_ns, state FROM {within('readv')} "
        "WHERE tid = ? AND state NOT LIKE 'R%' ORDER BY ts",
        recorded.pid("reads"),
    )
    began = json.loads(recorded.loads["reads"].out)
    assert [state for *_, state in found] == ["D"] * READS
    for at, (ts, end, _) in zip(began, found, strict=True):
        assert at < ts
        assert end >= at + READ_MS * MS


LOADS["hog"] = """
import json, os, signal, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
hog = os.fork()
if hog == 0:
    while True: pass
def now():
    os.sched_yield()  # brings the thread's account up to date
    at = time.monotonic_ns()
    on_cpu, waited, _ = map(int, open("/proc/thread-self/schedstat").read().split())
    return at, on_cpu, waited
begin = now()
while time.monotonic_ns() < begin[0] + 600_000_000: pass
for _ in range(5): time.sleep(0.02)
end = now()
os.kill(hog, signal.SIGKILL)
os.wait()
print(json.dumps([hog, begin, end]))
"""


@every_backend
def test_a_thread_waits_for_the_cpu_while_another_one_has_it(recorded):
    """The wait ends where the hog leaves the CPU to the thread."""
    hog, _, _ = json.loads(recorded.loads["hog"].out)
    pid = recorded.pid("hog")
    waits = recorded.rows(
        "SELECT ts + dur_ns, ran_cpu, ran_tid, run_delay_ns = dur_ns, wake_ns "
        "FROM off_cpu WHERE tid = ? AND state LIKE 'R%'",
        pid,
    )
    of_hog = recorded.rows("SELECT ts, cpu FROM off_cpu WHERE tid = ? AND state LIKE 'R%'", hog)
    ends = {(end, cpu) for end, cpu, ran, _, _ in waits if ran == hog}
    assert ends
    assert ends <= set(of_hog)
    assert {(whole, wake) for *_, whole, wake in waits} == {(True, None)}


@every_backend
def test_off_the_cpu_and_on_it_are_the_wall_time(recorded):
    _, begin, end = json.loads(recorded.loads["hog"].out)
    wall, on_cpu, waited = (after - before for before, after in zip(begin, end, strict=True))
    off, delay, more_off, more_delay = recorded.rows(
        "SELECT sum(dur_ns)::BIGINT, sum(run_delay_ns)::BIGINT, "
        "coalesce(sum(dur_ns) FILTER (ran_tid IS NULL), 0)::BIGINT, "
        "coalesce(sum(run_delay_ns) FILTER (ran_tid IS NULL), 0)::BIGINT "
        "FROM off_cpu WHERE tid = ? AND ts >= ? AND ts + dur_ns <= ?",
        recorded.pid("hog"),
        begin[0],
        end[0],
    )[0]
    # A switch that is not logged ends an interval too late, but not before the interval.
    assert on_cpu * 0.99 - more_off <= wall - off <= on_cpu * 1.01
    assert waited * 0.99 <= delay <= waited * 1.01 + more_delay


@every_backend
def test_the_intervals_of_a_thread_do_not_overlap(recorded):
    query = """
        SELECT count(*) FROM (SELECT ts, dur_ns, lead(ts) OVER (PARTITION BY tid ORDER BY ts)
        AS next FROM off_cpu) WHERE dur_ns IS NULL AND next IS NOT NULL OR ts + dur_ns > next
    """
    assert recorded.one(query) == 0
