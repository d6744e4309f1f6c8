"""Kernel stacks of sleeps, from events that are made by hand, damaged, or made by an enemy."""

import random

import pytest

from tests.support.off_cpu_stories import IDLE, JOB, OTHER, START, WORKER, K, after_start, told
from tests.support.scheduling import Lost
from tracer.probes.backends import timeline
from tracer.probes.rows import kernel_stacks

TRACER, SCHEDULE, READ, ENTRY, MODULE, ODD = range(0x1000, 0x7000, 0x1000)
KALLSYMS = f"""\
{TRACER:016x} t trace_event_raw_event_sched_switch
{SCHEDULE:016x} t __schedule
{READ:016x} T vfs_read
{ENTRY:016x} T entry
{MODULE:016x} t ext4_sync_file\t[ext4]
{ODD:016x} t a;b\\c
{0x7000:016x} T _etext
"""
UNNAMED = "".join(f"{0:016x} {line.split(maxsplit=1)[1]}\n" for line in KALLSYMS.splitlines())
COLUMNS = "state, kernel_stack, dur_ns, ts"
BACKENDS = ("ftrace", "ebpf", "perf")
OWN_EVENTS = ("ftrace", "ebpf")
"""Backends whose stacks are events of their own; those of perf are parts of the switches."""


def callers(*functions: int) -> list[int]:
    """Addresses within these functions to which calls return."""
    return [function + 8 for function in functions]


def slept(folder, *events, backend="ftrace", kallsyms=KALLSYMS, columns=COLUMNS, **more):
    """The rows of a trace that names its functions."""
    return told(folder, columns, START, *events, backend=backend, kallsyms=kallsyms, **more)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sleep_has_the_functions_from_the_root(tmp_path, backend):
    rows = slept(
        tmp_path,
        (100, K.switch(JOB, "S", IDLE)),
        (101, K.stack(JOB, *callers(TRACER, SCHEDULE, READ, ENTRY))),
        (150, K.waking(IDLE, JOB)),
        (180, K.switch(IDLE, "R", JOB)),
        (200, K.switch(JOB, "D", IDLE)),
        (201, K.stack(JOB, *callers(SCHEDULE, MODULE, ENTRY))),
        (300, K.switch(IDLE, "R", JOB)),
        backend=backend,
    )
    assert after_start(rows) == [
        ("S", "entry;vfs_read;__schedule", 80, 100),
        ("D", "entry;ext4_sync_file;__schedule", 100, 200),
    ]


def test_a_thread_that_could_go_on_has_no_stack(tmp_path):
    rows = slept(
        tmp_path,
        (100, K.switch(JOB, "S", IDLE)),
        (101, K.stack(JOB, *callers(SCHEDULE))),
        (180, K.switch(IDLE, "R", JOB)),
        (200, K.switch(JOB, "R+", OTHER)),
        (300, K.switch(OTHER, "R", JOB)),
    )
    assert after_start(rows) == [("S", "__schedule", 80, 100), ("R+", None, 100, 200)]


def test_the_sleep_lasts_until_the_thread_runs_not_until_its_stack(tmp_path):
    """A wake-up on another CPU may come between the switch and the stack."""
    rows = slept(
        tmp_path,
        (100, K.switch(JOB, "S", IDLE)),
        (101, K.waking(OTHER, JOB), 1),
        (102, K.stack(JOB, *callers(SCHEDULE))),
        (180, K.switch(IDLE, "R", JOB)),
        columns="kernel_stack, dur_ns, wake_ns, waker_tid, ts",
    )
    assert after_start(rows) == [("__schedule", 80, 101, OTHER, 100)]


def test_the_stack_of_another_process_is_not_kept(tmp_path):
    """Ftrace records it too if a target's thread takes the CPU."""
    rows = slept(
        tmp_path,
        (100, K.switch(JOB, "S", OTHER)),
        (101, K.stack(JOB, *callers(SCHEDULE, READ))),
        (150, K.switch(OTHER, "S", JOB)),
        (151, K.stack(OTHER, *callers(SCHEDULE, ENTRY))),
    )
    assert after_start(rows) == [("S", "vfs_read;__schedule", 50, 100)]


def test_a_stack_without_its_switch_belongs_to_no_sleep(tmp_path):
    rows = slept(
        tmp_path,
        (100, K.stack(JOB, *callers(READ))),
        (110, K.switch(JOB, "S", IDLE)),
        (111, K.stack(WORKER, *callers(READ))),
        (112, K.stack(JOB, *callers(READ)), 1),
        (180, K.switch(IDLE, "R", JOB)),
    )
    assert after_start(rows) == [("S", None, 70, 110)]


@pytest.mark.parametrize("backend", OWN_EVENTS)
def test_a_stack_after_a_loss_may_be_that_of_another_sleep(tmp_path, backend):
    rows = slept(
        tmp_path,
        (100, K.switch(JOB, "S", IDLE)),
        (151, K.stack(JOB, *callers(READ))),
        (180, K.switch(IDLE, "R", JOB)),
        (200, K.switch(JOB, "S", IDLE)),
        (201, K.stack(JOB, *callers(SCHEDULE))),
        (280, K.switch(IDLE, "R", JOB)),
        lost=[Lost(0, 110, 150), Lost(0, 210, 250)],
        backend=backend,
    )
    assert after_start(rows) == [("S", None, None, 100), ("S", "__schedule", None, 200)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_stacks_are_found_in_all_batches(tmp_path, monkeypatch, backend):
    monkeypatch.setattr(timeline, "_BATCH_BYTES", 4096)
    sleeps = 300
    events = []
    for at in range(1000, 1000 + sleeps * 100, 100):
        events += [
            (at, K.switch(JOB, "S", IDLE)),
            (at + 1, K.stack(JOB, *callers(SCHEDULE, (READ, MODULE)[at // 100 % 2], ENTRY))),
            (at + 50, K.switch(IDLE, "R", JOB)),
        ]
    rows = after_start(slept(tmp_path, *events, backend=backend))
    names = ("vfs_read", "ext4_sync_file")
    assert [row[1] for row in rows] == [
        f"entry;{names[number % 2]};__schedule" for number in range(sleeps)
    ]


def test_names_cannot_end_their_frame(tmp_path):
    rows = slept(
        tmp_path,
        (100, K.switch(JOB, "S", IDLE)),
        (101, K.stack(JOB, *callers(ODD), 0xDEAD0000)),
        (180, K.switch(IDLE, "R", JOB)),
    )
    assert after_start(rows) == [("S", "[unknown];a\\x3bb\\x5cc", 80, 100)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_deep_stack_is_cut_at_its_root(tmp_path, backend):
    deep = [READ + 8] * 200
    rows = slept(
        tmp_path,
        (100, K.switch(JOB, "S", IDLE)),
        (101, K.stack(JOB, *deep)),
        (180, K.switch(IDLE, "R", JOB)),
        backend=backend,
    )
    [(_, stack, *_)] = after_start(rows)
    assert stack == ";".join(["[truncated]", *["vfs_read"] * kernel_stacks.MAX_DEPTH])


@pytest.mark.parametrize("backend", OWN_EVENTS)
@pytest.mark.parametrize("size", [-1, 0, 2, 1 << 30])
def test_a_false_size_reads_nothing_beyond_the_event(tmp_path, size, backend):
    rows = slept(
        tmp_path,
        (100, K.switch(JOB, "S", IDLE)),
        (101, K.stack(JOB, *callers(SCHEDULE, READ), size=size)),
        (180, K.switch(IDLE, "R", JOB)),
        backend=backend,
    )
    expected = "vfs_read;__schedule" if size else None
    assert after_start(rows) == [("S", expected, 80, 100)]


@pytest.mark.parametrize("length", range(4, 32, 4))
def test_an_event_that_is_too_short_has_no_stack(tmp_path, length):
    whole = K.stack(JOB, *callers(SCHEDULE), size=3)
    rows = slept(
        tmp_path,
        (100, K.switch(JOB, "S", IDLE)),
        (101, whole[: max(length, 8)]),
        (180, K.switch(IDLE, "R", JOB)),
    )
    expected = "__schedule" if length >= len(whole) else None
    assert after_start(rows) == [("S", expected, 80, 100)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_stacks_do_no_harm(tmp_path, backend):
    chance = random.Random(7)
    events = []
    for at in range(1000, 60_000, 100):
        many = chance.randrange(0, 12)
        stack = K.stack(JOB, *(chance.getrandbits(64) for _ in range(many)), size=many)
        events += [(at, K.switch(JOB, "S", IDLE)), (at + 1, stack)]
        events += [(at + 50, K.switch(IDLE, "R", JOB))]
    rows = after_start(slept(tmp_path, *events, backend=backend))
    assert len(rows) == 590
    frames = {frame for row in rows if row[1] for frame in row[1].split(";")}
    assert "[unknown]" in frames


def lost(folder, *events, **more):
    """The causes of losses of a trace, and its stacks."""
    from tracer.store.trace import Trace

    stacks = [row[1] for row in after_start(slept(folder, *events, **more))]
    with Trace(folder / "t") as trace:
        query = "SELECT cause FROM loss WHERE stream = 'kernel_stacks'"
        return [cause for (cause,) in trace.connection.execute(query).fetchall()], stacks


ONE = ((100, K.switch(JOB, "S", IDLE)), (101, K.stack(JOB, *callers(SCHEDULE))))


@pytest.mark.parametrize("kallsyms", [None, UNNAMED])
def test_a_kernel_that_hides_its_functions_gives_no_stack_and_a_loss(tmp_path, kallsyms):
    causes, stacks = lost(tmp_path, *ONE, kallsyms=kallsyms)
    assert stacks == [None]
    assert causes == ["1 kernel stacks left out: no names of kernel functions are known"]


def test_stacks_beyond_the_limit_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_stacks, "_MOST_STACKS", 3)
    events = []
    for number in range(5):
        at = 1000 + 100 * number
        events += [
            (at, K.switch(JOB, "S", IDLE)),
            (at + 1, K.stack(JOB, *callers(*[READ] * (number + 1)))),
            (at + 50, K.switch(IDLE, "R", JOB)),
        ]
    causes, stacks = lost(tmp_path, *events)
    assert sum(stack is not None for stack in stacks) == 3
    assert causes == ["2 kernel stacks left out: 3 are known"]


def test_text_beyond_the_limit_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_stacks, "_MOST_TEXT", 5)
    causes, stacks = lost(tmp_path, *ONE)
    assert stacks == [None]
    assert causes == ["1 kernel stacks left out: their names take too much memory"]
