"""Switches and wake-ups become rows of `off_cpu`: short stories of one CPU or two."""

import pytest

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
    told,
)
from tests.support.pages import FAULT, enter, execed, exited, fault, newtask
from tests.support.scheduling import (
    HARDIRQ,
    LINUX_4_9,
    LINUX_6_18,
    SOFTIRQ,
    WAKEUP_NEW,
)
from tracer.probes.events.page_faults import TRACEPOINTS


def test_a_sleep_is_a_row_from_the_switch_to_the_switch(tmp_path):
    rows = told(
        tmp_path,
        "* EXCLUDE (ts, kernel_stack), ts",
        START,
        (100, K.switch(JOB, "S", IDLE)),
        (150, K.waking(IDLE, JOB, HARDIRQ)),
        (170, K.switch(OTHER, "R+", JOB), 1),
    )
    # dur_ns, cpu, pid, tid, state, next_tid, wake_ns, waker_pid, waker_tid, interrupt,
    # run_delay_ns, ran_cpu, ran_tid
    expected = (70, 0, JOB, JOB, "S", IDLE, 150, IDLE, IDLE, True, 20, 1, OTHER, 100)
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
        "state, dur_ns, run_delay_ns, wake_ns, next_tid, ran_tid, ts",
        START,
        (100, K.switch(JOB, state, OTHER)),
        (400, K.switch(OTHER + 1, "S", JOB)),
    )
    assert after_start(rows) == [(state, 300, 300, None, OTHER, OTHER + 1, 100)]


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
        (50, K.wakeup_new(JOB, 90, cpu=3)),
        (80, K.switch(IDLE, "R", 90), 1),
    )
    expected = (pid, 90, "new", 3, 50, JOB, JOB, False, 30, 30, 1, IDLE, 50)
    assert after_start(rows) == [expected]


@pytest.mark.parametrize("cpu", [-1, -(1 << 31), 1 << 15, (1 << 31) - 1])
def test_a_queue_that_cannot_be_is_not_known(tmp_path, cpu):
    rows = told(
        tmp_path,
        "tid, cpu, ran_cpu, ts",
        (1, K.switch(IDLE, "R", JOB)),
        (40, newtask(JOB, 90, b"x", THREAD)),
        (50, K.wakeup_new(JOB, 90, cpu=cpu)),
        (80, K.switch(IDLE, "R", 90), 1),
    )
    assert after_start(rows) == [(90, None, 1, 50)]


@pytest.mark.parametrize("size", [28, 32])
def test_a_queue_is_not_known_without_its_field(tmp_path, size):
    """A format lacks the field, or the event ends before it."""
    formats = {**K.fields, WAKEUP_NEW: "char comm[16] 8 16 0\npid_t pid 24 4 1"}
    rows = told(
        tmp_path,
        "tid, cpu, wake_ns, dur_ns, ts",
        (1, K.switch(IDLE, "R", JOB)),
        (40, newtask(JOB, 90, b"x", THREAD)),
        (50, K.wakeup_new(JOB, 90, cpu=3)[:size]),
        (80, K.switch(IDLE, "R", 90), 1),
        kernel=K._replace(fields=formats) if size == 28 else K,
    )
    assert after_start(rows) == [(90, None, 50, 30, 50)]


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


def test_the_first_wake_up_of_a_sleep_ends_it(tmp_path):
    rows = told(
        tmp_path,
        "wake_ns, waker_tid, run_delay_ns, ts",
        START,
        (100, K.switch(JOB, "S", OTHER)),
        (150, K.waking(OTHER, JOB)),
        (160, K.waking(IDLE, JOB), 1),
        (170, K.switch(OTHER, "S", JOB)),
    )
    assert after_start(rows) == [(150, OTHER, 20, 100)]


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


@pytest.mark.parametrize(("user", "dur_ns"), [(True, 20), (False, 90)])
def test_a_fault_in_kernel_mode_does_not_end_an_interval(tmp_path, user, dur_ns):
    """Another tool takes such faults as it reads the stack of the thread that leaves its CPU."""
    rows = told(
        tmp_path,
        "dur_ns, ts",
        START,
        (100, K.switch(JOB, "S", OTHER)),
        (120, fault(JOB, 0x7F0000000000, user)),
        (190, enter(JOB, GETPID)),
        kernel=K._replace(
            fields={**K.fields, **dict.fromkeys(TRACEPOINTS, FAULT)},
            numbers={**K.numbers, **dict(zip(TRACEPOINTS, (101, 102), strict=True))},
        ),
    )
    assert after_start(rows) == [(dur_ns, 100)]
