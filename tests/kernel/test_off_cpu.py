"""Threads that leave their CPU on the real kernel: loads whose waits are known by construction."""

import json
import re
import shutil
import subprocess

import pytest

from tests.conftest import do_without
from tests.support.backends import every_backend
from tests.support.loads import program
from tests.support.slow_disk import slow_disk
from tracer.probes.events.sched import PROBE

pytestmark = pytest.mark.quiet

SLEEPS, ROUNDS, READS, CHILDREN, THREADS, SEEN = 23, 29, 11, 5, 7, 31
SLEEP_MS, READ_MS = 11, 8
MS = 1_000_000

LOADS = {}
"""Programs, all of them in one recording a backend: `recorded`."""


@pytest.fixture(scope="module")
def recorded(record_loads, tmp_path_factory, backend):
    """The recording of LOADS, of reads from a slow disk, and of a load that perf watches, too."""
    folder = tmp_path_factory.mktemp("disk")
    with slow_disk(folder, "slow", READ_MS) as disk:
        loads = LOADS | {"reads": READS_OF_A_DISK.format(device=disk.device)}
        data = folder / "perf.data"
        if shutil.which("perf"):
            watched = program(folder, "seen", SEEN_BY_PERF)
            loads["seen"] = ["perf", "sched", "record", "-k", "mono", "-o", data, "--", *watched]
        found = record_loads(loads, "-e", "sched,syscalls", backend=backend)
        found.by_perf = data
        yield found


def within(call):
    """SQL: rows of off_cpu whose thread was in this system call when it left its CPU."""
    return (
        "(SELECT o.* FROM off_cpu o JOIN syscalls s ON s.tid = o.tid AND o.ts >= s.ts "
        f"AND o.ts < s.ts + s.dur_ns WHERE s.name = '{call}')"
    )


LOADS["sleeps"] = f"""
import json, os, time
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
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
        "SELECT ts, ts + dur_ns, wake_ns, interrupt, run_delay_ns, state, pid "
        f"FROM {within('clock_nanosleep')} WHERE tid = ? AND state NOT LIKE 'R%' ORDER BY ts",
        recorded.pid("sleeps"),
    )
    began = json.loads(recorded.loads["sleeps"].out)
    assert len(found) == SLEEPS
    seen = set()
    for at, (ts, end, wake, interrupt, delay, state, pid) in zip(began, found, strict=True):
        assert (state, pid) == ("S", recorded.pid("sleeps"))
        assert at < ts
        assert end >= at + SLEEP_MS * MS
        if wake is not None:  # perf may hear nothing in the context of some threads
            seen.add(interrupt)
            assert end - delay == wake >= at + SLEEP_MS * MS
    assert seen == {True}


LOADS["rounds"] = f"""
import os, time
def asleep(pid):
    while open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.0005)
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
    assert found == [
        (parent, child, child, False, ROUNDS, ROUNDS),
        (child, parent, parent, False, ROUNDS, ROUNDS),
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
        "count(run_delay_ns), bool_and(wake_ns = ts AND run_delay_ns = dur_ns AND cpu >= 0) "
        "FROM off_cpu WHERE state = 'new' AND list_contains(?, pid) AND waker_tid = ? "
        "GROUP BY ALL ORDER BY 1",
        maker,
        recorded.pids("family"),
        maker,
    )
    assert found == [
        (False, True, maker, maker, False, CHILDREN, CHILDREN, True),
        (True, False, maker, maker, False, THREADS, THREADS, True),
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
    while True:  # until nothing comes between the two readings
        os.sched_yield()  # brings the thread's account up to date
        at = time.monotonic_ns()
        on_cpu, waited, _ = map(int, open("/proc/thread-self/schedstat").read().split())
        if time.monotonic_ns() < at + 300_000: return at, on_cpu, waited
begin = now()
while time.monotonic_ns() < begin[0] + 600_000_000: pass
spun = now()
for _ in range(5): time.sleep(0.02)
end = now()
os.kill(hog, signal.SIGKILL)
os.wait()
print(json.dumps([hog, begin, spun, end]))
"""


@every_backend
def test_a_thread_waits_for_the_cpu_while_another_one_has_it(recorded):
    """The wait ends where the hog leaves the CPU to the thread. At last, the hog is killed."""
    hog, _, _, (killed_after, *_) = json.loads(recorded.loads["hog"].out)
    waits = recorded.rows(
        "SELECT ts + dur_ns, ran_cpu, ran_tid, run_delay_ns = dur_ns, wake_ns "
        "FROM off_cpu WHERE tid = ? AND state LIKE 'R%' AND ts + dur_ns <= ?",
        recorded.pid("hog"),
        killed_after,
    )
    of_hog = recorded.rows("SELECT ts, cpu FROM off_cpu WHERE tid = ? AND state LIKE 'R%'", hog)
    ends = {(end, cpu) for end, cpu, ran, _, _ in waits if ran == hog}
    assert ends
    assert ends <= set(of_hog)
    job = recorded.pid("hog")
    got = recorded.rows("SELECT ts, cpu FROM off_cpu WHERE tid = ? AND next_tid = ?", job, hog)
    turns = "SELECT ts + dur_ns, ran_cpu FROM off_cpu WHERE tid = ? AND ran_tid = ?"
    assert got
    assert set(got) == set(recorded.rows(turns, hog, job))
    assert {(whole, wake) for *_, whole, wake in waits} == {(True, None)}


@every_backend
def test_off_the_cpu_and_on_it_are_the_wall_time(recorded):
    """The kernel's account of the thread tells the time on its CPU, and of waiting for it.

    The time in which a host runs another machine on the CPU is in neither.
    """
    _, begin, spun, end = json.loads(recorded.loads["hog"].out)
    wall, on_cpu, waited = (after - before for before, after in zip(begin, end, strict=True))
    spinning, *accounted = (after - before for before, after in zip(begin, spun, strict=True))
    stolen = max(0, spinning - sum(accounted))
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
    assert 0.99 * wall - stolen <= off + on_cpu <= 1.01 * wall + more_off
    assert 0.99 * waited <= delay <= 1.01 * waited + more_delay


@every_backend
def test_the_intervals_of_a_thread_do_not_overlap(recorded):
    query = """
        SELECT count(*) FROM (SELECT ts, dur_ns, lead(ts) OVER (PARTITION BY tid ORDER BY ts)
        AS next FROM off_cpu) WHERE dur_ns IS NULL AND next IS NOT NULL OR ts + dur_ns > next
    """
    assert recorded.one(query) == 0


SEEN_BY_PERF = f"""
import os, signal, time
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
hog = os.fork()
if hog == 0:
    while True: pass
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
for _ in range({SEEN}): time.sleep(0.003)
os.kill(hog, signal.SIGKILL)
os.wait()
"""
"""A thread of SCHED_BATCH takes its CPU from no other one: it waits for the hog's turn to end."""


@every_backend
def test_perf_tells_the_same_times(recorded):
    """perf hears of each switch through buffers of its own, and pairs them by its own program."""
    why = None if shutil.which("perf") else "it is not installed"
    do_without("perf", "TRACER_REQUIRE_KERNEL", why)
    theirs = timehist(recorded.by_perf)
    ours = recorded.rows(
        "SELECT tid, ts, ts + dur_ns, dur_ns, CASE WHEN state NOT LIKE 'R%' THEN run_delay_ns END "
        "FROM off_cpu WHERE list_contains(?, pid) AND state != 'new' AND ran_tid IS NOT NULL",
        [pid for pid in recorded.pids("seen") if pid != recorded.pid("seen")],  # without perf
    )
    seen = [row for row in ours if row[1] > theirs[row[0]][0][0]]
    nearest = [(row, min(theirs[row[0]], key=lambda other: abs(other[1] - row[2]))) for row in seen]
    # perf, too, does not hear of every switch of every machine.
    pairs = [(row, other) for row, other in nearest if abs(row[2] - other[1]) < MS / 10]
    assert len(pairs) > max(SEEN, 0.9 * len(seen))
    # perf prints whole microseconds.
    apart = sum(abs(dur - waited) for (*_, dur, _), (*_, waited, _) in pairs)
    assert apart < 0.01 * sum(dur for (*_, dur, _), _ in pairs)
    delayed = [(delay, other) for (*_, delay), (*_, other) in pairs if delay is not None]
    # perf prints no delay if it did not hear of the wake-up.
    delays = [(delay, other) for delay, other in delayed if other]
    assert len(delays) > 0.8 * len(delayed) > 0
    apart = sum(abs(delay - other) for delay, other in delays)
    assert apart < 0.01 * sum(delay for delay, _ in delays) + 1000 * len(delays)


def timehist(data):
    """{thread: [(left its CPU, had come there, waited, delayed)]} in ns, by perf's program."""
    printed = subprocess.run(
        ["perf", "sched", "timehist", "-i", data], check=True, capture_output=True, text=True
    ).stdout
    line = re.compile(
        r"^ *([0-9]+)\.([0-9]{6}) \[[0-9]+\] +.*\[([0-9]+)(?:/[0-9]+)?\]"
        r" +([0-9]+)\.([0-9]{3}) +([0-9]+)\.([0-9]{3}) +([0-9]+)\.([0-9]{3})",
        re.MULTILINE,
    )
    found = {}
    for seconds, us, tid, *printed_ms in line.findall(printed):
        left = int(seconds + us) * 1000
        waited, delayed, ran = (int("".join(printed_ms[n : n + 2])) * 1000 for n in (0, 2, 4))
        found.setdefault(int(tid), []).append((left, left - ran, waited, delayed))
    return found


ON_ONE_CPU = "import os, time; os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})\n"
IDLE = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"


def test_a_sleep_makes_as_many_events_as_the_list_says(tracer, tmp_path):
    """A thread leaves its CPU, is woken, and runs again: the rows of a recording are such waits.

    Another process has the CPU meanwhile: some machines log no switch from their idle thread.
    """
    load = program(tmp_path, "load", ON_ONE_CPU + "for _ in range(2003): time.sleep(0.0001)")
    place = tmp_path / "x.trace"
    with subprocess.Popen(program(tmp_path, "idle", ON_ONE_CPU + IDLE)) as other:
        try:
            tracer("record", "--backend", "ftrace", "-e", "sched", "-o", place, "--", *load)
        finally:
            other.kill()
    made = json.loads((place / "manifest.json").read_text())
    streams = made["capture"]["stats"].items()
    events = sum(s["read events"] for name, s in streams if "-target-" in name)
    words = {1: "one", 2: "two", 3: "three", 4: "four"}
    assert PROBE.rate.startswith(words[round(events / made["tables"]["off_cpu"]["rows"])])
