"""Waits for a CPU with many turns of others, and what is made of them."""

from __future__ import annotations

import pytest

from tests.support.traces import make_trace
from tracer.analysis.report.waits import waits_table
from tracer.analysis.views.waiting.critical_path import critical_path
from tracer.analysis.views.waiting.turn_parts import MOST_PARTS, MOST_TURNS
from tracer.analysis.views.waiting.waits import waits

JOB, WORKER, PIN, PEER, CRON, DB = 7, 8, 9, 10, 30, 31
START = 100_000
MS = 10**6
TARGETS = [
    {"name": "job", "role": "target", "kind": "pid", "pid": JOB},
    {"name": "peer", "role": "target", "kind": "pid", "pid": PEER},
]
OTHERS = range(100, 112)
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python", "ppid": 1},
    {"pid": JOB, "tid": WORKER, "role": "target", "target": "job", "comm": "worker", "ppid": 1},
    {"pid": JOB, "tid": PIN, "role": "target", "target": "job", "comm": "pin", "ppid": 1},
    {"pid": PEER, "tid": PEER, "role": "target", "target": "peer", "comm": "peer", "ppid": 1},
    {"pid": CRON, "tid": CRON, "role": "other", "comm": "cron", "ppid": 1},
    {"pid": DB, "tid": DB, "role": "other", "comm": "db", "ppid": 1, "container_id": "c0ffee" * 8},
    *(
        {"pid": n, "tid": n, "role": "child", "target": "job", "comm": f"t{n}", "ppid": JOB}
        for n in OTHERS
    ),
]
RECORDED = (WORKER, PIN, PEER, *OTHERS)


def turns(*taken: tuple[int, int]) -> list[dict]:
    """Intervals off the CPU if threads take these turns while the job waits from START on."""
    now, before, rows = START, JOB, []
    left = dict.fromkeys(RECORDED, START // 2)
    for tid, length in taken:
        if tid in left:
            row = {"ts": left[tid], "dur_ns": now - left[tid], "pid": JOB, "tid": tid}
            row |= {"state": "S", "run_delay_ns": 0}
            rows.append(row | {"cpu": 0, "ran_cpu": 0, "ran_tid": before})
            left[tid] = now + length
        now, before = now + length, tid
    row = {"ts": START, "dur_ns": now - START, "pid": JOB, "tid": JOB, "state": "R"}
    row |= {"run_delay_ns": now - START, "cpu": 0, "ran_cpu": 0, "ran_tid": before}
    gone = [
        {"ts": ts, "pid": JOB, "tid": tid, "state": "S", "cpu": 0}
        for tid, ts in left.items()
        if ts > START
    ]
    return [*rows, row, *gone]


def made(folder, *taken, **tables):
    rows = {"processes": PROCESSES, "off_cpu": turns(*taken)} | tables
    return make_trace(folder, rows, targets=TARGETS)


def parts(folder, *taken, **tables):
    """The time, length, thread and certainty of the job's waits for a CPU."""
    with made(folder / "t", *taken, **tables) as trace:
        waits(trace)
        return trace.rows(
            f"SELECT ts - {START}, dur_ns, by_tid, certainty FROM waits"
            f" WHERE kind = 'cpu' AND tid = {JOB} ORDER BY ts"
        )


def test_few_turns_are_in_order_of_time(tmp_path):
    taken = [(WORKER, 3), (PIN, 2)] * (MOST_PARTS // 2)
    edges = [sum(length for _, length in taken[:n]) for n in range(MOST_PARTS)]
    expected = [
        (edge, length, tid, "exact") for edge, (tid, length) in zip(edges, taken, strict=True)
    ]
    assert parts(tmp_path, *taken) == expected


def test_many_turns_are_put_together_by_thread_the_largest_first(tmp_path):
    found = parts(tmp_path, *[(PIN, 2), (WORKER, 3)] * MOST_PARTS)
    worker, pin = 3 * MOST_PARTS, 2 * MOST_PARTS
    assert found == [(0, worker, WORKER, "exact"), (worker, pin, PIN, "exact")]


def test_the_smallest_of_many_threads_are_put_together_for_nobody(tmp_path):
    taken = [(tid, tid - OTHERS[0] + 1) for tid in OTHERS]
    lengths = sorted((length for _, length in taken), reverse=True)
    found = parts(tmp_path, *taken)
    assert [length for _, length, *_ in found[:-1]] == lengths[:MOST_PARTS]
    assert {tid - OTHERS[0] + 1 - length for _, length, tid, _ in found[:-1]} == {0}
    largest, rest = sum(lengths[:MOST_PARTS]), sum(lengths[MOST_PARTS:])
    assert found[-1] == (largest, rest, None, "inferred")


def test_a_wait_of_very_many_turns_has_the_latest(tmp_path):
    pairs = MOST_TURNS // 2 + 10
    found = parts(tmp_path, *[(PIN, 2), (WORKER, 3)] * pairs)
    worker, pin = 3 * MOST_TURNS // 2, 2 * MOST_TURNS // 2
    assert found == [
        (0, worker, WORKER, "exact"),
        (worker, pin, PIN, "exact"),
        (worker + pin, 10 * 5, None, "inferred"),
    ]


def test_the_table_of_waits_charges_each_who_had_the_cpu(tmp_path):
    with made(tmp_path / "t", (DB, 11), (PEER, 13), (CRON, 17), (PIN, 19), (PEER, 23)) as trace:
        found = waits_table(trace)
    rows = found[(found["target"] == "job") & (found["kind"] == "cpu")].astype(object)
    rows = rows.where(rows.notna(), None)
    told = {(r.whose, r.blamed): (r.waits, round(r.total_s * 1e9)) for r in rows.itertuples()}
    assert told == {
        ("container", "c0ffeec0ffee"): (1, 11),
        ("target", "peer"): (2, 13 + 23),
        ("process", "cron"): (1, 17),
        ("itself", None): (1, 19),
    }


def test_a_step_that_begins_and_ends_in_a_wait_has_the_turns_of_its_time(tmp_path):
    step = {"start": START + 5, "end": START + 25, "pid": JOB, "tid": JOB, "name": "step"}
    phases = [step | {"epoch": 0, "step": 0}]
    with made(tmp_path / "t", (WORKER, 10), (PIN, 10), (CRON, 10), phases=phases) as trace:
        critical_path(trace)
        found = trace.rows("SELECT ts, dur_ns, tid, kind, by_comm FROM critical_path ORDER BY ts")
    assert found == [
        (START + 5, 5, JOB, "cpu", "worker"),
        (START + 10, 10, JOB, "cpu", "pin"),
        (START + 20, 5, JOB, "cpu", "cron"),
    ]


def told(*readings: tuple[int, float]) -> list[dict]:
    """Samples of the job's cgroup: times (ns) and the throttled part of the time before (%)."""
    sample = {"target": "job", "instance": "/job"}
    counter = {"name": "cgroup_throttled_time", "value": 0.0}
    first, *later = readings
    rows = [sample | counter | {"ts": first[0]}]
    for ts, value in later:
        rows.append(sample | counter | {"ts": ts})
        rows.append(sample | {"ts": ts, "name": "cgroup_throttled", "value": value})
    return rows


@pytest.mark.parametrize(("throttled", "unit"), [(0.0, MS), (10.0, MS), (10.0, 1)])
def test_long_waits_of_a_target_that_used_up_a_quota_are_split_and_inferred(
    tmp_path, throttled, unit
):
    """The thread may have been throttled, so that it waited for no turn of others."""
    samples = told((0, 0.0), (10**8, throttled))
    found = parts(tmp_path, (WORKER, 3 * unit), (PIN, 4 * unit), samples=samples)
    certainty = "inferred" if throttled and unit == MS else "exact"
    assert found == [(0, 3 * unit, WORKER, certainty), (3 * unit, 4 * unit, PIN, certainty)]


@pytest.mark.parametrize(
    ("readings", "certainty"),
    [
        ([(-20, 0), (-10, 0), (10, 0), (20, 0), (30, 9)], "exact"),
        ([(-20, 0), (-10, 9), (10, 0), (20, 0)], "exact"),
        ([(-20, 0), (-10, 0), (10, 9), (20, 0)], "inferred"),
        ([(-20, 0), (-10, 0), (10, 0), (20, 9), (30, 0)], "inferred"),
        ([(-20, 0), (-10, 9), (10, 0)], "inferred"),
        ([(-20, 0), (-10, 9)], "inferred"),
        ([(3, 0), (10, 0), (20, 0), (30, 9)], "inferred"),
    ],
    ids=["after", "before", "within", "read early", "last of all", "none after", "first within"],
)
def test_waits_are_exact_if_the_samples_rule_out_that_the_quota_was_used_up(
    tmp_path, readings, certainty
):
    """The job waits from 0 to 7 ms."""
    samples = told(*((START + ts * MS, value) for ts, value in readings))
    found = parts(tmp_path, (WORKER, 3 * MS), (PIN, 4 * MS), samples=samples)
    assert found == [(0, 3 * MS, WORKER, certainty), (3 * MS, 4 * MS, PIN, certainty)]


@pytest.mark.parametrize("missing", ["cgroup_throttled", "instance"])
def test_a_sample_that_does_not_tell_rules_nothing_out(tmp_path, missing):
    """The counter was reset, or one of a cgroup above has just been found."""
    times = [START + n * MS for n in (-20, -10, 10, 20, 30, 40)]
    samples = told(*zip(times, (0, 0, 0, 0, 0, 9), strict=True))
    if missing == "instance":
        above = {"target": "job", "instance": "/", "name": "cgroup_throttled_time", "value": 0.0}
        samples.append(above | {"ts": times[2]})
    else:
        samples = [s for s in samples if (s["ts"], s["name"]) != (times[2], missing)]
    found = parts(tmp_path, (WORKER, 3 * MS), (PIN, 4 * MS), samples=samples)
    assert found == [(0, 3 * MS, WORKER, "inferred"), (3 * MS, 4 * MS, PIN, "inferred")]


def test_the_parts_of_a_wait_that_are_not_throttled_have_their_turns(tmp_path):
    """The quota is used up after 10 ms. Another tenant has the CPU until it is renewed."""
    taken = (WORKER, 10 * MS), (DB, 30 * MS), (WORKER, 4 * MS), (PIN, 6 * MS)
    samples = told((0, 0.0), (100 * MS, 30.0))
    with made(tmp_path / "t", *taken, samples=samples) as trace:
        waits(trace)
        found = trace.rows(
            f"SELECT (ts - {START}) // {MS}, dur_ns // {MS}, kind, by_tid, certainty FROM waits"
            f" WHERE tid = {JOB} ORDER BY ts"
        )
    assert found == [
        (0, 10, "cpu", WORKER, "inferred"),
        (10, 30, "throttled", None, "inferred"),
        (40, 4, "cpu", WORKER, "inferred"),
        (44, 6, "cpu", PIN, "inferred"),
    ]


def test_a_wait_that_seems_to_end_after_the_exit_of_its_thread_is_throttled_once(tmp_path):
    """The switch that ended it was not logged. The job waits from 10 ms on, and exits at 20 ms."""
    ended = [PROCESSES[0] | {"end_ns": START + 20 * MS}, *PROCESSES[1:]]
    intervals = (JOB, 0, 1, "S"), (PIN, 0, 2, "S"), (PIN, 8, 42, "S"), (JOB, 10, 30, "R")
    off_cpu = [
        {"ts": START + ts * MS, "dur_ns": ms * MS, "pid": JOB, "tid": tid, "state": state}
        | {"run_delay_ns": ms * MS if state == "R" else 0, "cpu": 0, "ran_cpu": 0}
        for tid, ts, ms, state in intervals
    ]
    tables = {"processes": ended, "off_cpu": off_cpu}
    tables["samples"] = told((0, 0.0), (START + 100 * MS, 60.0))
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as trace:
        waits(trace)
        found = trace.rows(
            f"SELECT (ts - {START}) // {MS}, dur_ns // {MS}, kind FROM waits"
            f" WHERE tid = {JOB} AND ts > {START}"
        )
    assert found == [(10, 30, "throttled")]


def moved(folder, wait, *before):
    """The length, thread and certainty of the job's waits for a CPU, from START on.

    It leaves CPU 0, and comes to CPU 1, which was idle, unless `wait` tells otherwise.
    """
    row = {"ts": START, "dur_ns": 50, "tid": JOB, "state": "R", "run_delay_ns": 50}
    row |= {"cpu": 0, "ran_cpu": 1, "ran_tid": 0}
    rows = [{"pid": JOB, **one} for one in (*before, row | wait)]
    tables = {"processes": PROCESSES, "off_cpu": rows}
    with make_trace(folder / "t", tables, targets=TARGETS) as trace:
        waits(trace)
        return trace.rows(
            "SELECT dur_ns, by_tid, certainty FROM waits"
            f" WHERE kind = 'cpu' AND tid = {JOB} AND ts >= {START} ORDER BY ts"
        )


RAN_BEFORE = {"ts": 10, "dur_ns": 10, "tid": JOB, "state": "S", "cpu": 0, "ran_cpu": 0,
              "ran_tid": 0, "run_delay_ns": 0}  # fmt: skip


def test_a_thread_that_comes_to_an_idle_cpu_waited_for_the_one_that_it_left(tmp_path):
    """The program that got that one has it all the time, as far as events tell."""
    assert moved(tmp_path, {"next_tid": CRON}, RAN_BEFORE) == [(50, CRON, "inferred")]


def test_the_cpu_that_it_left_has_turns_of_others(tmp_path):
    """A worker has it, then a program that is not recorded; then the thread is moved."""
    worker = {"tid": WORKER, "state": "S", "cpu": 0}
    rows = [
        {**worker, "ts": 50, "dur_ns": START - 50, "ran_cpu": 0, "ran_tid": JOB, "run_delay_ns": 0},
        {**worker, "ts": START + 20, "next_tid": DB},
    ]
    assert moved(tmp_path, {"next_tid": WORKER}, RAN_BEFORE, *rows) == [
        (20, WORKER, "inferred"), (30, DB, "inferred")
    ]  # fmt: skip


def test_nobody_knows_for_whom_a_thread_waits_once_its_cpu_is_idle(tmp_path):
    worker = {"tid": WORKER, "state": "S", "cpu": 0}
    rows = [
        {**worker, "ts": 50, "dur_ns": START - 50, "ran_cpu": 0, "ran_tid": JOB, "run_delay_ns": 0},
        {**worker, "ts": START + 20, "next_tid": 0},
    ]
    assert moved(tmp_path, {"next_tid": WORKER}, RAN_BEFORE, *rows) == [
        (20, WORKER, "inferred"), (30, None, "inferred")
    ]  # fmt: skip


def test_a_thread_that_left_its_cpu_idle_and_got_another_one_has_an_unknown_wait(tmp_path):
    assert moved(tmp_path, {"next_tid": 0}, RAN_BEFORE) == [(50, None, "inferred")]


def test_a_thread_that_comes_late_to_its_own_idle_cpu_waits_for_no_thread(tmp_path):
    assert moved(tmp_path, {"next_tid": 0, "ran_cpu": 0}, RAN_BEFORE) == [(50, None, "exact")]
