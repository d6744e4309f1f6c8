"""Waits for a used-up CPU quota agree with the naive ones, in the view, the tables and findings."""

from collections import Counter

import pytest

from tests.oracles.drawing import first_with, seeds
from tests.oracles.throttled import (
    MAIN,
    MS,
    STRANGER,
    TENANT,
    WINDOW,
    WINDOWS,
    WORKER,
    Job,
    longest,
    parts_without,
)
from tests.support.traces import make_trace
from tracer.analysis.views.catalogue import VIEWS

pytestmark = pytest.mark.slow

TARGETS = [
    {"name": "a", "role": "target", "kind": "pid", "pid": MAIN},
    {"name": "b", "role": "target", "kind": "pid", "pid": TENANT},
]
END = (WINDOWS + 1) * WINDOW
CLOCK = {"name": "mono", "start_ns": 0, "end_ns": END}


def threads(**more):
    """The threads' rows; the worker's number is a stranger's after its end."""
    rows = []
    for tid, pid, target in (
        (MAIN, MAIN, "a"),
        (WORKER, MAIN, "a"),
        (TENANT, TENANT, "b"),
        (STRANGER, STRANGER, None),
    ):
        row = {"pid": pid, "tid": tid, "ppid": 1, "comm": f"t{tid}", "target": target}
        row |= {"role": "target" if target else "other", "cgroup": f"/{target}" if target else "/"}
        rows.append(row | more.get(f"t{tid}", {}))
    return rows


def made(folder, off_cpu, samples, **tables):
    rows = {"processes": threads(), "off_cpu": off_cpu, "samples": samples} | tables
    return make_trace(folder, rows, targets=TARGETS, clock=CLOCK, duration_s=END / 1e9)


def waits(trace):
    VIEWS["waits"].make(trace)
    return trace.connection.execute(
        "SELECT tid, ts, dur_ns, kind, certainty, target FROM waits"
    ).fetchall()


def by_kind(rows):
    """Time by thread and kind."""
    found = Counter()
    for tid, _, dur_ns, kind, *_ in rows:
        found[tid, kind] += dur_ns
    return found


@pytest.mark.parametrize("seed", seeds(6))
def test_the_throttled_time_is_that_of_the_quota(tmp_path, seed):
    job = first_with(lambda job: sum(job.throttled.values()) > 0, Job, seed)
    with made(tmp_path / "t", job.off_cpu, job.samples) as trace:
        rows = waits(trace)
    found = by_kind(rows)
    for tid, true in job.throttled.items():
        assert found[tid, "throttled"] == true
        assert found[tid, "throttled"] + found[tid, "cpu"] == job.waited[tid]
    assert found[TENANT, "throttled"] == 0
    assert found[TENANT, "cpu"] == job.waited[TENANT]
    assert {row[4] for row in rows if row[3] == "throttled"} == {"inferred"}
    # Waits and the time on the CPU are all the time of a thread.
    for tid in (MAIN, WORKER, TENANT):
        off = sum(row["dur_ns"] for row in job.off_cpu if row["tid"] == tid)
        assert sum(row[2] for row in rows if row[0] == tid) == off


def told(target, *values):
    """Samples of the throttled time, one at the end of each window."""
    rows, total = [], 0.0
    for at, value in enumerate((0, *values)):
        total += value / 1e9
        row = {"ts": at * WINDOW, "target": target, "instance": f"/{target}"}
        rows.append(row | {"name": "cgroup_throttled_time", "value": total})
        if at:
            share, rate = 100 * value / WINDOW, 10.0 if value else 0.0
            rows.append(row | {"name": "cgroup_throttled", "value": share})
            rows.append(row | {"name": "cgroup_throttle_rate", "value": rate})
        periods = {"name": "cgroup_nr_throttled", "value": 5.0 * sum(1 for v in values[:at] if v)}
        rows.append(row | periods)
    return rows


def preempted(tid, begin, end, ran_tid):
    """A thread loses its CPU, and gets it back from another one (0: the CPU was idle)."""
    pid = MAIN if tid == WORKER else tid
    row = {"ts": begin, "dur_ns": end - begin, "run_delay_ns": end - begin, "state": "R+"}
    cpu = 1 if tid == WORKER else 0
    return row | {"pid": pid, "tid": tid, "ran_tid": ran_tid, "cpu": cpu, "ran_cpu": cpu}


def slept(tid, begin, end):
    pid = MAIN if tid == WORKER else tid
    row = {"ts": begin, "dur_ns": end - begin, "run_delay_ns": 0, "state": "S", "wake_ns": end}
    row |= {"waker_tid": 0, "interrupt": True}
    return row | {"pid": pid, "tid": tid, "cpu": 1, "ran_cpu": 1}


def test_only_parts_in_which_no_thread_of_the_target_ran_count(tmp_path):
    wait = preempted(MAIN, 100 * MS, 150 * MS, STRANGER)
    ran = [(110 * MS, 120 * MS), (130 * MS, 130 * MS + 500_000), (131 * MS, 133 * MS)]
    edges = [0, *(edge for times in ran for edge in times), WINDOW]
    sleeps = [slept(WORKER, a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    off_cpu = sorted([wait, *sleeps], key=lambda row: row["ts"] + row["dur_ns"])
    expected = parts_without(100 * MS, 150 * MS, ran)
    assert len(expected) == 3  # a part of half a millisecond is too short
    with made(tmp_path / "t", off_cpu, told("a", 100 * MS)) as trace:
        rows = [row for row in waits(trace) if row[0] == MAIN]
    found = sorted((ts, ts + dur_ns) for _, ts, dur_ns, kind, *_ in rows if kind == "throttled")
    assert found == expected
    assert sum(dur_ns for _, _, dur_ns, *_ in rows) == 50 * MS


def test_the_longest_waits_count_if_the_samples_tell_less(tmp_path):
    lengths = [20, 80, 40, 60]
    off_cpu, at = [], 10 * MS
    for length in lengths:
        off_cpu.append(preempted(MAIN, at, at + length * MS, STRANGER))
        at += (length + 20) * MS
    with made(tmp_path / "t", off_cpu, told("a", 140 * MS)) as trace:
        rows = waits(trace)
    found = sorted((dur for _, _, dur, kind, *_ in rows if kind == "throttled"), reverse=True)
    assert found == longest([length * MS for length in lengths], 140 * MS)
    assert by_kind(rows)[MAIN, "cpu"] == 60 * MS


@pytest.mark.parametrize("ran_tid", [0, STRANGER])
def test_a_window_counts_only_if_its_own_sample_tells_of_throttling(tmp_path, ran_tid):
    off_cpu = [
        preempted(MAIN, n * WINDOW + 100 * MS, n * WINDOW + 160 * MS, ran_tid) for n in range(4)
    ]
    with made(tmp_path / "t", off_cpu, told("a", 0, 61 * MS, 0, 61 * MS)) as trace:
        rows = waits(trace)
    kinds = [kind for _, ts, _, kind, *_ in sorted(rows, key=lambda row: row[1])]
    assert kinds == ["cpu", "throttled", "cpu", "throttled"]


def test_a_limit_of_a_cgroup_above_counts(tmp_path):
    samples = [row | {"instance": "/"} for row in told("a", 61 * MS)]
    off_cpu = [preempted(MAIN, 100 * MS, 160 * MS, 0)]
    with made(tmp_path / "t", off_cpu, samples) as trace:
        assert by_kind(waits(trace))[MAIN, "throttled"] == 60 * MS


@pytest.mark.parametrize("which", ["none", "other", "zero"])
def test_nothing_is_throttled_without_a_sample_that_tells(tmp_path, which):
    samples = {"none": [], "other": told("b", 90 * MS), "zero": told("a", 0, 0)}[which]
    off_cpu = [
        preempted(MAIN, 100 * MS, 160 * MS, 0),
        preempted(MAIN, 200 * MS, 290 * MS, STRANGER),
    ]
    with made(tmp_path / "t", off_cpu, samples) as trace:
        assert set(by_kind(waits(trace))) == {(MAIN, "cpu")}


def test_a_number_used_again_is_not_throttled(tmp_path):
    off_cpu = [preempted(MAIN, n * WINDOW + 100 * MS, n * WINDOW + 160 * MS, 0) for n in (0, 1)]
    ended, begun = {"end_ns": WINDOW}, {"start_ns": WINDOW + MS}
    again = {"pid": MAIN, "tid": MAIN, "ppid": 1, "comm": "new", "role": "other", **begun}
    processes = [*threads(t100=ended), again]
    samples = told("a", 61 * MS, 61 * MS)
    with made(tmp_path / "t", off_cpu, samples, processes=processes) as trace:
        rows = waits(trace)
    assert [(ts, kind) for _, ts, _, kind, *_ in rows] == [(100 * MS, "throttled")]


# The finding


def steps(count):
    """Steps of the main thread, one in each period."""
    mark = {"pid": MAIN, "tid": MAIN, "source": "script", "epoch": 0}
    rows = [mark | {"name": "train", "start": 0, "end": count * 100 * MS, "step": None}]
    return rows + [
        mark | {"name": "step", "start": n * 100 * MS, "end": (n + 1) * 100 * MS, "step": n}
        for n in range(count)
    ]


def test_the_finding_has_the_share_of_the_steps_time(tmp_path, tracer):
    job, count = Job(2), 5 * WINDOWS
    for name, samples in (("quota", job.samples), ("none", [])):
        made(tmp_path / name, job.off_cpu, samples, phases=steps(count)).close()
    report = tracer("report", tmp_path / "quota", "--json").json
    rows = [row for row in report["tables"]["waits"] if row["kind"] == "throttled"]
    assert {row["target"] for row in rows} == {"a"}
    total = sum(job.throttled.values()) / 1e9
    assert sum(row["total_s"] for row in rows) == pytest.approx(total)
    (finding,) = [one for one in report["findings"] if one["topic"] == "steps: throttled"]
    expected = 100 * job.throttled[MAIN] / (count * 100 * MS)
    assert finding["value"] == pytest.approx(expected, abs=0.1)
    assert finding["certainty"] == "inferred"
    first = tracer("query", tmp_path / "quota", finding["query"], "--json").json[0]
    assert next(iter(first.values())) == pytest.approx(finding["value"])
    found = tracer("report", tmp_path / "none", "--json").json["findings"]
    assert not [one for one in found if "throttled" in one["topic"]]
