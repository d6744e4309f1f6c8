"""Waits for a CPU with many turns of others, and what is made of them."""

from __future__ import annotations

import pytest

from tests.support.traces import make_trace
from tracer.analysis.report.waits import waits_table
from tracer.analysis.views.cpu_turns import MOST_PARTS, MOST_TURNS
from tracer.analysis.views.critical_path import critical_path
from tracer.analysis.views.waits import waits

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


@pytest.mark.parametrize(("throttled", "unit"), [(0.0, MS), (10.0, MS), (10.0, 1)])
def test_long_waits_of_a_target_that_used_up_a_quota_are_not_split(tmp_path, throttled, unit):
    """It may have been throttled, so that it waited for no turn of others."""
    samples = [
        {"ts": ts, "target": "job", "instance": "/job", "name": name, "value": value}
        for ts, value in ((0, 0.0), (10**8, throttled))
        for name in ("cgroup_throttled_time", "cgroup_throttled")
    ]
    found = parts(tmp_path, (WORKER, 3 * unit), (PIN, 4 * unit), samples=samples)
    split = [(0, 3 * unit, WORKER, "exact"), (3 * unit, 4 * unit, PIN, "exact")]
    whole = [(0, 7 * unit, PIN, "exact")]
    assert found == (whole if throttled and unit == MS else split)
