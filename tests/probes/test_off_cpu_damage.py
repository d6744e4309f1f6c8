"""Rows of `off_cpu` from events that are lost, damaged, or made by an enemy."""

import random

import pytest

from tests.support.budget import within_budget
from tests.support.off_cpu_stories import (
    GETPID,
    IDLE,
    JOB,
    OTHER,
    START,
    THREAD,
    WORKER,
    K,
    after_start,
    target,
    told,
)
from tests.support.pages import enter, exited, newtask
from tests.support.scheduling import (
    SWITCH,
    WAKEUP_NEW,
    WAKING,
    Logged,
    Lost,
    scheduled_trace,
)
from tracer.probes.backends import timeline
from tracer.probes.limits import PID_LIMIT
from tracer.store.trace import Trace


def test_an_interval_in_which_events_may_be_lost_has_no_length(tmp_path):
    rows = told(
        tmp_path,
        "state, dur_ns, run_delay_ns, wake_ns, ran_cpu, ran_tid, ts",
        START,
        (100, K.switch(JOB, "S", IDLE)),
        (150, K.waking(IDLE, JOB)),
        (180, K.switch(IDLE, "R", JOB)),
        (200, K.switch(JOB, "S", IDLE)),
        (205, K.waking(IDLE, JOB)),
        (280, K.switch(IDLE, "R", JOB)),
        (300, K.switch(JOB, "D", IDLE)),
        (350, K.waking(IDLE, JOB)),
        (380, K.switch(IDLE, "R", JOB)),
        (400, K.switch(JOB, "S", IDLE)),
        lost=[Lost(1, 210, 340)],
        backend="ebpf",
    )
    assert after_start(rows) == [
        ("S", 80, 30, 150, 0, IDLE, 100),
        ("S", None, None, 205, None, None, 200),
        ("D", None, None, None, None, None, 300),  # it may have been another sleep that ended
        ("S", None, None, None, None, None, 400),
    ]


def test_the_interval_after_a_loss_that_is_not_over_has_no_waker(tmp_path):
    rows = told(
        tmp_path,
        "state, dur_ns, wake_ns, ts",
        START,
        (100, K.switch(JOB, "S", IDLE)),
        (250, K.waking(IDLE, JOB)),
        (999, exited(OTHER)),
        lost=[Lost(1, 110, 190)],
        backend="ebpf",
    )
    assert after_start(rows) == [("S", None, None, 100)]


def test_a_wake_up_before_a_loss_wakes_nobody_that_leaves_its_cpu_after_it(tmp_path):
    """It ended a sleep whose begin and end are lost, and so is the wake-up of the next one."""
    told_of = "state, dur_ns, run_delay_ns, wake_ns, waker_tid, interrupt, ts"
    events = (
        START,
        (50, enter(JOB, GETPID)),
        (100, K.waking(OTHER, JOB), 1),
        (200, K.switch(JOB, "S", IDLE)),
        (270, K.switch(IDLE, "R", JOB)),
    )
    whole = ("S", 70, 70, 200, OTHER, False, 200)
    for number, (lost, row) in enumerate(
        [
            ([], whole),
            ([Lost(1, 60, 90)], whole),
            ([Lost(0, 110, 190), Lost(1, 110, 190)], ("S", 70, None, None, None, None, 200)),
        ]
    ):
        assert after_start(told(tmp_path / str(number), told_of, *events, lost=lost)) == [row]


def test_a_loss_that_ends_in_a_later_batch_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline, "_BATCH_BYTES", 4096)
    calls = [(n, enter(OTHER, GETPID)) for n in range(200, 600)]
    rows = told(
        tmp_path,
        "dur_ns, ts",
        START,
        (100, K.switch(JOB, "S", IDLE)),
        (170, K.switch(IDLE, "R", JOB)),
        *calls,
        (900, K.switch(OTHER, "R", IDLE), 1),
        lost=[Lost(1, 90, 800)],
    )
    assert after_start(rows) == [(None, 100)]


@pytest.mark.parametrize("wrong", [-1, -(1 << 31), PID_LIMIT, (1 << 31) - 1])
def test_threads_that_cannot_be_are_none(tmp_path, wrong):
    rows = told(
        tmp_path,
        "tid, dur_ns, ts",
        START,
        (10, K.switch(wrong, "S", wrong, context=OTHER), 1),
        (20, K.waking(OTHER, wrong), 1),
        (30, newtask(JOB, 91, b"x", 0)),
        (31, K.payload(WAKEUP_NEW, JOB, pid=wrong)),
        (32, K.payload(WAKEUP_NEW, JOB, pid=0)),
        (33, K.waking(OTHER, 0), 1),
        (100, K.switch(JOB, "S", IDLE)),
        (170, K.switch(IDLE, "R", JOB)),
    )
    assert after_start(rows) == [(JOB, 70, 100)]


def test_an_event_that_is_too_short_is_none(tmp_path):
    cut = []
    for name, values in (
        (SWITCH, {"prev_pid": JOB, "next_pid": WORKER, "prev_state": 1}),
        (WAKING, {"pid": JOB}),
        (WAKEUP_NEW, {"pid": JOB}),
    ):
        whole = K.payload(name, OTHER, **values)
        last = max(sum(K.place(name, field)) for field in values)
        cut += [whole[:size] for size in range(8, last, 4)]
    rows = told(
        tmp_path,
        "tid, wake_ns, dur_ns, ts",
        START,
        (100, K.switch(JOB, "S", IDLE)),
        *((101 + n, payload, 1) for n, payload in enumerate(cut)),
        (170, K.switch(IDLE, "R", JOB)),
    )
    assert after_start(rows) == [(JOB, None, 70, 100)]


def opened(folder):
    Trace(folder).close()


def hostile(folder, kernel=K, count=30_000):
    """A trace of events that make no sense, about all threads and in all states."""
    numbers = random.Random(1)
    tids = [0, 1, JOB, PID_LIMIT - 1, PID_LIMIT, -1]
    events = []
    for ts in range(count):
        tid = numbers.choice(tids[:4])
        some = [numbers.choice(tids) for _ in range(2)]
        state = numbers.getrandbits(64) - (1 << 63)
        switched = {"prev_pid": some[0], "next_pid": some[1], "prev_state": state}
        match numbers.choice(range(4)):
            case 0:
                payload = kernel.payload(SWITCH, tid, **switched)
            case 1:
                payload = kernel.payload(WAKING, tid, 255, pid=some[0])
            case 2:
                payload = kernel.payload(WAKEUP_NEW, tid, pid=some[0])
            case _:
                payload = newtask(tid, some[0], b"x", THREAD)
        events.append(Logged(ts // 3, 0, payload[: numbers.choice([8, 12, 28, 60, 99])]))
    scheduled_trace(folder / "t", kernel, events, targets=[target(0, "m", "machine")])


@pytest.mark.slow
@pytest.mark.parametrize(
    "print_format",
    [
        K.print_format,
        '"", __print_flags(REC->prev_state, "|", '
        + ", ".join(f'{{ {1 << n:#x}, "{"<" * 300}{n}" }}' for n in range(64))
        + ")",
        '"", __print_flags(REC->prev_state, "|", '
        + ", ".join(f'{{ {1 << n:#x}, "{n}" }}' for n in range(64))
        + ")",
        '"", __print_flags(REC->prev_state, "|", { -1, "A" }, { 0, "B" }, { 99999999999999, "C" })',
    ],
    ids=["6.18", "long names", "many names", "odd bits"],
)
def test_hostile_events_cost_little_and_make_rows_that_can_be(tmp_path, monkeypatch, print_format):
    kernel = K._replace(print_format=print_format)
    monkeypatch.setattr(timeline, "_BATCH_BYTES", 1 << 16)
    (tmp_path / "warm").mkdir()
    hostile(tmp_path / "warm", kernel, 100)
    opened(tmp_path / "warm" / "t")
    hostile(tmp_path, kernel)
    assert within_budget(opened, tmp_path / "t") is None
    with Trace(tmp_path / "t") as trace:
        query = (
            "SELECT count(*) > 0, count(DISTINCT state) <= 1025, max(length(state)) <= 64, "
            "min(dur_ns) >= 0, min(run_delay_ns) >= 0, min(tid) > 0, max(tid) < 4 << 20 "
            "FROM off_cpu"
        )
        assert all(trace.connection.execute(query).fetchone())
