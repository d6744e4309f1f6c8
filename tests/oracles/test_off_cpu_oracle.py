"""The table `off_cpu` tells what a machine drawn at random did: `off_cpu.py`."""

import random
import tempfile
from pathlib import Path

import pytest

from tests.oracles.drawing import seeds
from tests.oracles.off_cpu import START, Machine, told
from tests.support.in_memory import PLACE
from tests.support.scheduling import LINUX_4_9, LINUX_6_18, Lost, scheduled_trace
from tracer.probes.backends import timeline
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

STEPS = 400
TARGETS = [{"name": f"job{pid}", "role": "target", "kind": "pid", "pid": pid} for pid in (100, 200)]
KERNELS = [pytest.param(LINUX_6_18, id="6.18"), pytest.param(LINUX_4_9, id="4.9")]
SCHEDULER = {number for kernel in (LINUX_6_18, LINUX_4_9) for number in kernel.numbers.values()}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Has the events read in many batches."""
    monkeypatch.setattr(timeline, "_BATCH_BYTES", 9_000)


def drawn(case, kernel, backend):
    """Returns a machine whose recording is over."""
    machine = Machine(random.Random(case), kernel, backend != "ebpf")
    machine.run(STEPS)
    return machine


def of_scheduler(event):
    return int.from_bytes(event.payload[:2], "little") in SCHEDULER


def expected(machine, events, gaps=()):
    """The rows of the machine; those that had begun before the recording begin with its first
    event."""
    first = next(event.ts for event in events if of_scheduler(event))
    rows = []
    for row in machine.rows:
        if row["state"] is None:
            ended = row["dur_ns"] is not None
            dur_ns = row["ts"] + row["dur_ns"] - first if ended else None
            row = row | {"ts": first, "dur_ns": dur_ns}
        rows.append(row)
    return told(rows, gaps)


def table(machine, kernel, backend, events, lost=()):
    """(rows of the table, gaps) of a trace of these events."""
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        scheduled_trace(
            Path(folder) / "t", kernel, events, backend=backend, lost=lost,
            threads=machine.at_start, targets=TARGETS,
            clock={"name": "mono", "start_ns": START, "end_ns": machine.now, "jiffies": None},
        )  # fmt: skip
        with Trace(Path(folder) / "t") as trace:
            cursor = trace.connection.execute("SELECT * FROM off_cpu")
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            assert {row.pop("kernel_stack") for row in rows} <= {None}  # no stack was recorded
            gaps = trace.connection.execute('SELECT "from", "to" FROM loss').fetchall()
    return rows, gaps


def sequence(row):
    return repr(sorted(row.items()))


def agree(found, expected):
    assert sorted(found, key=sequence) == sorted(expected, key=sequence)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("backend", ["ftrace", "ebpf", "perf"])
def test_the_intervals_off_the_cpu_are_those_of_the_machine(kernel, backend):
    for case in seeds(5):
        machine = drawn(case, kernel, backend)
        numbers = random.Random(case)
        events = machine.events
        if backend != "perf" and numbers.random() < 0.5:  # as the kernel filters them
            pairs = zip(events, machine.about_targets, strict=True)
            events = [event for event, about_targets in pairs if about_targets]
        rows, gaps = table(machine, kernel, backend, events)
        assert gaps == []
        agree(rows, expected(machine, events))
        ends = [row["ts"] + row["dur_ns"] for row in rows if row["dur_ns"] is not None]
        assert ends == sorted(ends)


def window(machine, numbers):
    """Returns a loss of a part of a recording."""
    times = sorted(numbers.choice(machine.events[10:]).ts for _ in range(2))
    length = numbers.choice([1, 20, 1000, 10_000])
    return Lost(numbers.randrange(2), times[0], min(times[0] + length, times[1]) + 1)


@pytest.mark.parametrize("backend", ["ftrace", "ebpf"])
def test_intervals_in_which_events_may_be_lost_have_no_length(backend):
    for case in seeds(5):
        machine = drawn(case, LINUX_6_18, backend)
        lost = [window(machine, random.Random(case))]
        rows, gaps = table(machine, LINUX_6_18, backend, machine.events, lost)
        assert len(gaps) == 1
        agree(rows, expected(machine, machine.events, gaps))


@pytest.mark.parametrize("backend", ["ftrace", "ebpf"])
def test_a_loss_of_events_makes_no_interval_up(backend):
    for case in seeds(5):
        machine = drawn(case, LINUX_6_18, backend)
        cpu, start, end = loss = window(machine, random.Random(case))
        events = [
            event
            for event in machine.events
            if event.cpu != cpu or not start <= event.ts <= end or not of_scheduler(event)
        ]
        rows, gaps = table(machine, LINUX_6_18, backend, events, [loss])
        whole, damaged = (expected(machine, events, some) for some in ((), gaps))
        known = [
            lossy
            for row, lossy in zip(whole, damaged, strict=True)
            if row["dur_ns"] == lossy["dur_ns"]
        ]
        doubtful = after_a_damaged_one(whole, damaged)
        # An interval without an end that began before the loss may be several.
        found, known = (
            [row for row in some if row["dur_ns"] is not None or row["ts"] > gaps[0][1]]
            for some in (rows, known)
        )
        # The waker of a doubtful one is not told, or it is the true one.
        silent = {
            (row["tid"], row["ts"])
            for row in found
            if (row["tid"], row["ts"]) in doubtful and row["wake_ns"] is None
        }
        agree(
            found,
            [
                row | WITHOUT_WAKE
                if row["wake_ns"] is not None and (row["tid"], row["ts"]) in silent
                else row
                for row in known
            ],
        )


WITHOUT_WAKE = dict.fromkeys(
    ("wake_ns", "waker_pid", "waker_tid", "interrupt", "run_delay_ns"), None
)


def after_a_damaged_one(whole, damaged):
    """(thread, begin) of the intervals that follow one whose end may be lost.

    A wake-up before such an interval is that of a thread that leaves its CPU, or it belongs to the
    interval before: nobody can tell.
    """
    last, found = {}, set()
    for row, lossy in sorted(zip(whole, damaged, strict=True), key=lambda pair: pair[0]["ts"]):
        if last.get(row["tid"]):
            found.add((row["tid"], row["ts"]))
        last[row["tid"]] = row != lossy
    return found
