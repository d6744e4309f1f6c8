"""Switches and wake-ups become rows of `off_cpu`: short stories of one CPU or two."""

import random

import pytest

from tests.support.budget import within_budget
from tests.support.pages import attached, enter, execed, exited, newtask
from tests.support.scheduling import (
    HARDIRQ,
    LINUX_4_9,
    LINUX_6_18,
    SOFTIRQ,
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

JOB, WORKER, OTHER, IDLE = 7, 8, 50, 0
GETPID, THREAD, INTO_CGROUP = 39, 0x10000, 1 << 33
THREADS = [(JOB, JOB, 1, "job", None), (WORKER, JOB, 1, "w", None), (OTHER, OTHER, 1, "o", None)]
K = LINUX_6_18


def target(pid, name="job", kind="pid", **more):
    return {"name": name, "role": "target", "kind": kind, "pid": pid, **more}


def told(folder, columns, *events, kernel=K, targets=(), threads=THREADS, **manifest):
    """Returns columns of the rows, in the order of the table, of events (time, payload[, CPU])."""
    logged = [Logged(ts, cpu[0] if cpu else 0, payload) for ts, payload, *cpu in events]
    targets = list(targets) or [target(JOB)]
    scheduled_trace(folder / "t", kernel, logged, targets=targets, threads=threads, **manifest)
    with Trace(folder / "t") as trace:
        return trace.connection.execute(f"SELECT {columns} FROM off_cpu").fetchall()


START = (1, K.switch(IDLE, "R", JOB))
"""The recording begins when the target's first thread begins to run: a row of no length."""


def after_start(rows):
    """Returns the rows without that of START."""
    assert rows[0][-1] == 1
    return rows[1:]


def test_a_sleep_is_a_row_from_the_switch_to_the_switch(tmp_path):
    rows = told(
        tmp_path,
        "* EXCLUDE ts, ts",
        START,
        (100, K.switch(JOB, "S", IDLE)),
        (150, K.waking(IDLE, JOB, HARDIRQ)),
        (170, K.switch(OTHER, "R+", JOB), 1),
    )
    # dur_ns, cpu, pid, tid, state, wake_ns, waker_pid, waker_tid, interrupt, run_delay_ns,
    # ran_cpu, ran_tid
    expected = (70, 0, JOB, JOB, "S", 150, IDLE, IDLE, True, 20, 1, OTHER, 100)
    assert after_start(rows) == [expected]


@pytest.mark.parametrize(
    ("flags", "interrupt"),
    [(0, False), (0x01 | 0x04 | 0x20 | 0x80, False), (HARDIRQ, True), (SOFTIRQ, True),
     (HARDIRQ | SOFTIRQ | 0x01, True)],
)  # fmt: skip
def test_the_waker_is_the_thread_or_an_interrupt_in_its_context(tmp_path, flags, interrupt):
    rows = told(
        tmp_path,
        "wake_ns, waker_pid, waker_tid, interrupt, ts",
        START,
        (100, K.switch(JOB, "S", WORKER)),
        (150, K.waking(WORKER, JOB, flags)),
        (160, K.switch(WORKER, "S", JOB)),
    )
    assert after_start(rows)[1] == (150, JOB, WORKER, interrupt, 100)


def test_a_backend_without_flags_does_not_tell_of_interrupts(tmp_path):
    rows = told(
        tmp_path,
        "wake_ns, interrupt, ts",
        START,
        (100, K.switch(JOB, "S", IDLE)),
        (150, K.waking(IDLE, JOB, HARDIRQ)),
        (170, K.switch(IDLE, "R", JOB)),
        backend="ebpf",
    )
    assert after_start(rows) == [(150, None, 100)]


@pytest.mark.parametrize("state", ["R", "R+"])
def test_a_thread_that_can_run_waits_for_a_cpu_all_the_time(tmp_path, state):
    rows = told(
        tmp_path,
        "state, dur_ns, run_delay_ns, wake_ns, ran_tid, ts",
        START,
        (100, K.switch(JOB, state, OTHER)),
        (400, K.switch(OTHER, "S", JOB)),
    )
    assert after_start(rows) == [(state, 300, 300, None, OTHER, 100)]


@pytest.mark.parametrize(
    ("kernel", "value", "state"),
    [
        (LINUX_6_18, 0, "R"),
        (LINUX_6_18, 1, "S"),
        (LINUX_6_18, 2, "D"),
        (LINUX_6_18, 1 | 4, "S|T"),
        (LINUX_6_18, 128, "I"),
        (LINUX_6_18, 256, "R+"),
        (LINUX_6_18, 256 | 2, "D+"),
        (LINUX_6_18, 512 | 1, "S"),  # the kernel prints no bits beyond the plus
        (LINUX_4_9, 2 | 128, "D|K"),
        (LINUX_4_9, 2 | 1024, "D|N"),
        (LINUX_4_9, 2048, "R+"),
        (LINUX_6_18._replace(print_format=LINUX_6_18.print_format.replace(', { 0x00000040, "P" }',
         "")), 64 | 1, "S|0x40"),
        (LINUX_6_18._replace(print_format='"nothing"'), 2, "0x2"),
        (LINUX_6_18._replace(print_format='"nothing"'), 0, "R"),
    ],
)  # fmt: skip
def test_a_state_is_as_the_kernel_prints_it(tmp_path, kernel, value, state):
    rows = told(
        tmp_path,
        "state, run_delay_ns, ts",
        (1, kernel.switch(IDLE, "R", JOB)),
        (100, kernel.switch(JOB, value, IDLE)),
        (400, kernel.switch(IDLE, 0, JOB)),
        kernel=kernel,
    )
    assert after_start(rows) == [(state, 300 if state in ("R", "R+") else None, 100)]


@pytest.mark.parametrize(
    ("kernel", "state"), [(LINUX_6_18, "X"), (LINUX_6_18, "Z"), (LINUX_4_9, "x")]
)
def test_a_thread_that_has_ended_is_not_off_the_cpu(tmp_path, kernel, state):
    rows = told(
        tmp_path,
        "tid, state, dur_ns, ts",
        (1, kernel.switch(IDLE, "R", JOB)),
        (90, exited(JOB)),
        (100, kernel.switch(JOB, state, IDLE)),
        (400, exited(OTHER)),
        kernel=kernel,
    )
    assert after_start(rows) == []


def test_a_number_that_another_thread_had_says_nothing_of_the_new_one(tmp_path):
    rows = told(
        tmp_path,
        "pid, tid, state, wake_ns, dur_ns, ts",
        START,
        (50, K.switch(JOB, "S", WORKER)),
        (100, K.switch(WORKER, "X", OTHER)),
        (200, newtask(OTHER, WORKER, b"x", 0)),
        (210, K.wakeup_new(OTHER, WORKER)),
        (220, K.switch(OTHER, "S", WORKER)),
        (300, K.switch(WORKER, "S", IDLE)),
        (310, K.waking(IDLE, WORKER)),
        (320, K.switch(IDLE, "R", WORKER)),
    )
    # The worker that ended, which was off the CPU at the start, and the job, which never ran again.
    assert after_start(rows) == [
        (JOB, WORKER, None, None, 49, 1),
        (JOB, JOB, "S", None, None, 50),
    ]


@pytest.mark.parametrize(("flags", "pid"), [(THREAD, JOB), (0, 90)])
def test_a_new_thread_waits_from_its_wake_up_on(tmp_path, flags, pid):
    rows = told(
        tmp_path,
        "pid, tid, state, cpu, wake_ns, waker_pid, waker_tid, interrupt, dur_ns, run_delay_ns, "
        "ran_cpu, ran_tid, ts",
        (1, K.switch(IDLE, "R", JOB)),
        (40, newtask(JOB, 90, b"x", flags)),
        (50, K.wakeup_new(JOB, 90)),
        (80, K.switch(IDLE, "R", 90), 1),
    )
    expected = (pid, 90, "new", None, 50, JOB, JOB, False, 30, 30, 1, IDLE, 50)
    assert after_start(rows) == [expected]


def test_a_new_thread_that_has_not_run_yet_is_a_row(tmp_path):
    rows = told(
        tmp_path,
        "pid, tid, state, wake_ns, dur_ns, run_delay_ns, ts",
        (1, K.switch(IDLE, "R", JOB)),
        (40, newtask(JOB, 90, b"x", THREAD)),
        (50, K.wakeup_new(JOB, 90)),
        (99, exited(OTHER)),
    )
    assert after_start(rows) == [(JOB, 90, "new", 50, None, None, 50)]


def test_without_the_event_of_its_making_a_new_thread_tells_its_process_later(tmp_path):
    """A foreign trace may lack the event."""
    rows = told(
        tmp_path,
        "pid, tid, state, dur_ns, ts",
        (1, K.switch(IDLE, "R", JOB)),
        (50, K.wakeup_new(JOB, WORKER)),
        (80, K.switch(IDLE, "R", WORKER), 1),
        (99, enter(WORKER, GETPID), 1),
    )
    assert after_start(rows) == [(JOB, WORKER, "new", 30, 50)]


def test_a_thread_that_slept_before_the_recording_sleeps_from_its_first_event_on(tmp_path):
    rows = told(
        tmp_path,
        "tid, cpu, state, wake_ns, dur_ns, run_delay_ns, ran_tid, ts",
        (10, K.switch(OTHER, "R", IDLE)),
        (60, K.waking(OTHER, JOB)),
        (80, K.switch(IDLE, "R", JOB)),
        (90, K.waking(JOB, WORKER)),
    )
    assert rows == [
        (JOB, None, None, 60, 70, 20, IDLE, 10),
        (WORKER, None, None, 90, None, None, None, 10),
    ]


def test_a_thread_that_ran_at_the_start_was_not_off_the_cpu(tmp_path):
    rows = told(
        tmp_path,
        "tid, state, dur_ns, ts",
        (10, K.switch(OTHER, "R", IDLE), 1),
        (60, enter(JOB, GETPID)),
        (80, K.switch(JOB, "S", WORKER)),
        (90, K.switch(WORKER, "D", IDLE)),
    )
    assert rows == [(WORKER, None, 70, 10), (JOB, "S", None, 80), (WORKER, "D", None, 90)]


def test_a_thread_that_has_no_event_is_no_row(tmp_path):
    rows = told(tmp_path, "tid", (10, K.switch(OTHER, "R", IDLE)), (20, K.waking(IDLE, OTHER)))
    assert rows == []


def test_a_thread_that_does_not_run_again_has_no_duration(tmp_path):
    rows = told(
        tmp_path,
        "state, wake_ns, waker_tid, dur_ns, run_delay_ns, ran_cpu, ran_tid, ts",
        START,
        (100, K.switch(JOB, "D", IDLE)),
        (150, K.waking(OTHER, JOB)),
        (999, exited(OTHER)),
    )
    assert after_start(rows) == [("D", 150, OTHER, None, None, None, None, 100)]


def test_a_wake_up_of_a_thread_that_runs_wakes_nobody(tmp_path):
    rows = told(
        tmp_path,
        "wake_ns, run_delay_ns, ts",
        START,
        (50, K.waking(OTHER, JOB), 1),
        (60, enter(JOB, GETPID)),
        (100, K.switch(JOB, "S", IDLE)),
        (150, K.waking(IDLE, JOB)),
        (170, K.switch(IDLE, "R", JOB)),
        (200, K.switch(JOB, "S", IDLE)),
    )
    assert after_start(rows) == [(150, 20, 100), (None, None, 200)]


def test_a_thread_that_is_woken_while_it_leaves_its_cpu_could_run_all_the_time(tmp_path):
    """The other CPU wakes it once it has gone to sleep, which is before its switch is logged."""
    rows = told(
        tmp_path,
        "state, wake_ns, waker_tid, interrupt, dur_ns, run_delay_ns, ts",
        START,
        (99, K.waking(OTHER, JOB), 1),
        (100, K.switch(JOB, "S", IDLE)),
        (170, K.switch(IDLE, "R", JOB)),
        (198, K.waking(OTHER, JOB), 1),  # the thread goes on, and is preempted
        (200, K.switch(JOB, "R+", IDLE)),
        (270, K.switch(IDLE, "R", JOB)),
        (297, K.waking(OTHER, JOB), 1),
        (298, enter(JOB, GETPID)),  # and goes on here
        (300, K.switch(JOB, "S", IDLE)),
        (370, K.switch(IDLE, "R", JOB)),
        (399, K.waking(OTHER, JOB), 1),
        (400, K.switch(JOB, "S", IDLE)),  # no end confirms that it was that sleep
    )
    assert after_start(rows) == [
        ("S", 100, OTHER, False, 70, 70, 100),
        ("R+", None, None, None, 70, 70, 200),
        ("S", None, None, None, 70, None, 300),
        ("S", None, None, None, None, None, 400),
    ]


def test_an_exec_of_another_thread_goes_on_as_the_first_one(tmp_path):
    rows = told(
        tmp_path,
        "pid, tid, state, dur_ns, ts",
        START,
        (50, exited(JOB)),
        (60, K.switch(JOB, "Z", WORKER)),
        (70, execed(JOB)),
        (80, K.switch(JOB, "S", OTHER)),
        (90, K.switch(OTHER, "S", JOB)),
        (95, newtask(JOB, WORKER, b"x", 0)),  # the worker's number is free
        (96, K.wakeup_new(JOB, WORKER)),
        (99, K.switch(JOB, "R", WORKER)),
    )
    assert after_start(rows) == [
        (JOB, WORKER, None, 59, 1),
        (JOB, JOB, "S", 10, 80),
        (WORKER, WORKER, "new", 3, 96),
        (JOB, JOB, "R", None, 99),
    ]


def test_a_switch_that_was_not_logged_ends_with_the_next_event_of_the_thread(tmp_path):
    rows = told(
        tmp_path,
        "dur_ns, run_delay_ns, ran_cpu, ran_tid, ts",
        START,
        (100, K.switch(JOB, "S", OTHER)),
        (150, K.waking(OTHER, JOB)),
        (190, enter(JOB, GETPID), 1),
        (300, K.switch(JOB, "R+", OTHER), 1),
        (360, K.switch(JOB, "S", IDLE), 1),
    )
    assert after_start(rows) == [
        (90, 40, 1, None, 100),
        (60, 60, 1, None, 300),
        (None, None, None, None, 360),
    ]


def test_each_target_has_rows_and_others_have_none(tmp_path):
    threads = [*THREADS, (60, 60, 1, "db", None), (70, 70, JOB, "child", None)]
    rows = told(
        tmp_path,
        "DISTINCT pid, tid",
        *(
            (10 * n, K.switch(prev, "S", following))
            for n, (prev, following) in enumerate(
                zip([JOB, WORKER, OTHER, 60, 70, 2], [WORKER, OTHER, 60, 70, 2, JOB], strict=True)
            )
        ),
        targets=[target(JOB), target(60, "db")],
        threads=threads,
    )
    assert sorted(rows) == [(JOB, JOB), (JOB, WORKER), (60, 60), (70, 70)]


def test_on_the_whole_machine_everybody_counts_but_idle_cpus_and_the_recorder(tmp_path):
    threads = [*THREADS, (900, 900, 1, "tracer", None), (901, 900, 1, "drain", None)]
    around = [900, OTHER, 901, JOB, IDLE]
    rows = told(
        tmp_path,
        "DISTINCT tid",
        *(
            (10 * n, K.switch(prev, "S", following))
            for n, (prev, following) in enumerate(
                zip(around * 3, [*around[1:], around[0]] * 3, strict=True)
            )
        ),
        (200, newtask(900, 902, b"x", THREAD)),
        (210, K.wakeup_new(900, 902)),
        (220, K.switch(900, "S", 902)),
        (230, K.waking(OTHER, 901)),
        targets=[target(0, "machine", "machine")],
        threads=threads,
        recorder={"pid": 900, "start_time": 0, "boot_id": "another boot"},
    )
    assert sorted(rows) == [(JOB,), (OTHER,)]


def test_a_process_counts_while_it_is_in_the_cgroup(tmp_path):
    places = [{"hierarchy": 0, "path": "/job"}]
    rows = told(
        tmp_path,
        "state, dur_ns, ts",
        (10, K.switch(IDLE, "R", OTHER)),
        (20, K.switch(OTHER, "D", IDLE)),
        (30, K.switch(IDLE, "R", OTHER)),
        (40, attached(1, OTHER, 0, b"/job")),
        (50, K.switch(OTHER, "S", IDLE)),
        (60, K.switch(IDLE, "R", OTHER)),
        (70, attached(1, OTHER, 0, b"/")),
        (80, K.switch(OTHER, "T", IDLE)),
        (90, K.switch(IDLE, "R", OTHER)),
        targets=[target(0, kind="cgroup", cgroups=places)],
        members=[[5, 0, -1, -1, 0, False]],
    )
    assert rows == [("S", 10, 50)]


def test_a_thread_of_a_cgroup_that_is_made_within_it_counts(tmp_path):
    places = [{"hierarchy": 0, "path": "/job"}]
    rows = told(
        tmp_path,
        "pid, tid, state, dur_ns, ts",
        (10, attached(1, OTHER, 0, b"/job")),
        (20, newtask(OTHER, 90, b"x", THREAD)),
        (30, K.wakeup_new(OTHER, 90)),
        (40, K.switch(OTHER, "S", 90)),
        (50, newtask(1, 91, b"x", 0)),
        (60, K.wakeup_new(1, 91)),
        (70, K.switch(90, "X", 91)),
        targets=[target(0, kind="cgroup", cgroups=places)],
        members=[[5, 0, -1, -1, 0, False]],
    )
    assert rows == [(OTHER, 90, "new", 10, 30), (OTHER, OTHER, "S", None, 40)]


def test_a_new_process_counts_for_the_cgroup_that_it_is_made_in(tmp_path):
    container = target(100, "c", "container", container="a" * 64, makers=[90])
    container["cgroups"] = [{"hierarchy": 0, "path": "/docker/" + "a" * 64}]
    job = target(0, kind="cgroup", cgroups=[{"hierarchy": 0, "path": "/job"}])
    rows = told(
        tmp_path,
        "pid, dur_ns, ts",
        (10, attached(1, OTHER, 0, b"/job")),
        (20, newtask(OTHER, 91, b"x", INTO_CGROUP)),  # leaves the target
        (30, K.wakeup_new(OTHER, 91)),
        (40, newtask(90, 92, b"x", INTO_CGROUP), 1),  # enters the container
        (50, K.wakeup_new(90, 92), 1),
        (60, K.switch(IDLE, "R", 91)),
        (70, K.switch(90, "R", 92), 1),
        targets=[job, container],
        members=[[1, 90, -1, -1, 0, False], [5, 0, -1, -1, 0, False]],
    )
    assert rows == [(92, 20, 50)]


def test_nothing_counts_before_the_exec_of_the_command(tmp_path):
    rows = told(
        tmp_path,
        "state, dur_ns, ts",
        (10, K.switch(OTHER, "S", IDLE)),
        (20, K.waking(IDLE, JOB)),
        (30, K.switch(IDLE, "R", JOB)),  # the launched process, before it becomes the command
        (40, K.switch(JOB, "D", IDLE)),
        (50, K.switch(IDLE, "R", JOB)),
        (60, execed(JOB)),
        (70, K.switch(JOB, "S", IDLE)),
        (80, K.switch(IDLE, "R", JOB)),
        targets=[target(JOB, kind="command")],
        threads=[(JOB, JOB, 1, "tracer", None)],
    )
    assert rows == [("S", 10, 70)]


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
        payload = numbers.choice(
            [
                kernel.payload(SWITCH, tid, prev_pid=some[0], next_pid=some[1], prev_state=state),
                kernel.payload(WAKING, tid, 255, pid=some[0]),
                kernel.payload(WAKEUP_NEW, tid, pid=some[0]),
                newtask(tid, some[0], b"x", THREAD),
            ]
        )
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
