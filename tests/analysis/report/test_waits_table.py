"""The table of waits: each nanosecond is charged once, and to whom it belongs."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.support.traces import make_trace
from tracer.analysis.compare.measured import measured
from tracer.analysis.report.waits import WAITS, path_times, waits_table
from tracer.analysis.views.waiting.waits import waits

JOB, PEER, DB = 7, 9, 30
TARGETS = [
    {"name": "job", "role": "target", "kind": "pid", "pid": JOB},
    {"name": "peer", "role": "target", "kind": "pid", "pid": PEER},
]
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python", "ppid": 1},
    {"pid": JOB, "tid": 8, "role": "target", "target": "job", "comm": "pin", "ppid": 1},
    {"pid": PEER, "tid": PEER, "role": "target", "target": "peer", "comm": "python", "ppid": 1},
    {"pid": DB, "tid": DB, "role": "other", "comm": "db", "ppid": 1, "container_id": "c0ffee" * 8},
    {"pid": 31, "tid": 31, "role": "other", "comm": "cron", "ppid": 1},
    *({"pid": n, "tid": n, "role": "other", "comm": f"kworker/{n}:1", "ppid": 2} for n in (50, 51)),
]


def off(ts, dur, tid, state="S", waker=None, ran=None, delay=0, interrupt=False):
    return {
        "ts": ts, "dur_ns": dur, "pid": JOB if tid == 8 else tid, "tid": tid, "state": state,
        "wake_ns": None if waker is None else ts + dur - delay, "waker_tid": waker,
        "interrupt": None if waker is None else interrupt, "run_delay_ns": delay, "ran_tid": ran,
    }  # fmt: skip


TABLES = {
    "processes": PROCESSES,
    "syscalls": [
        *({"ts": ts, "tid": JOB, "name": "futex", "dur_ns": 90} for ts in range(100, 600, 100)),
        {"ts": 600, "tid": JOB, "name": "read", "dur_ns": 90},
        {"ts": 100, "tid": PEER, "name": "nanosleep", "dur_ns": 90},
    ],
    "block": [{"ts": 605, "tid": JOB, "event": "bio_queue", "dev": "8:0", "nr_sector": 8,
               "rwbs": "R"}],
    "off_cpu": [
        off(110, 11, JOB, waker=8),
        off(210, 13, JOB, waker=PEER),
        off(310, 17, JOB, waker=DB, delay=5, ran=50),
        off(410, 19, JOB, "R+", ran=51, delay=19),
        off(450, 23, JOB, "R", ran=0, delay=23),
        off(480, 3, JOB, "R", ran=31, delay=3),
        off(540, 7, JOB, "R", delay=7),  # the switch was not logged
        off(610, 29, JOB, "D", waker=31, interrupt=True),
        {"ts": 660, "pid": JOB, "tid": JOB, "state": "D"},
        off(110, 31, PEER, waker=31, interrupt=True),
        off(110, 37, DB, waker=31),
    ],
}  # fmt: skip


@pytest.fixture
def table(tmp_path):
    with make_trace(tmp_path / "t", TABLES, targets=TARGETS) as trace:
        found = waits_table(trace)
        waits(trace)
        of_view = trace.sql("SELECT target, sum(dur_ns)::BIGINT AS ns FROM waits GROUP BY ALL")
    return found, dict(zip(of_view["target"], of_view["ns"], strict=True))


def test_the_recorder_and_its_namesake_have_the_names_that_explain_gives_them(tmp_path):
    others = [{"pid": n, "tid": n, "role": "other", "comm": "tracer", "ppid": 1} for n in (40, 41)]
    tables = {
        "processes": [*PROCESSES, *others],
        "off_cpu": [
            off(410, 19, JOB, "R+", ran=40, delay=19),
            off(450, 23, JOB, "R+", ran=41, delay=23),
        ],
    }
    with make_trace(tmp_path / "t", tables, targets=TARGETS, recorder={"pid": 40}) as trace:
        found = waits_table(trace)
    assert dict(zip(found["blamed"], (found["total_s"] * 1e9).round(), strict=True)) == {
        "the recorder": 19, "tracer (not the recorder)": 23,
    }  # fmt: skip


def test_each_wait_is_charged_to_whom_it_was_for(table):
    found, _ = table
    rows = found.astype(object).where(found.notna(), None)
    told = {
        (r.target, r.kind, r.whose, r.blamed): (r.waits, r.unended, round(r.total_s * 1e9))
        for r in rows.itertuples()
    }
    assert told == {
        ("job", "lock", "itself", None): (1, 0, 11),
        ("job", "lock", "target", "peer"): (1, 0, 13),
        ("job", "lock", "container", "c0ffeec0ffee"): (1, 0, 12),
        ("job", "cpu", "kernel", "kworker"): (2, 0, 24),
        ("job", "cpu", "idle CPU", None): (1, 0, 23),
        ("job", "cpu", "unknown", None): (1, 0, 7),
        ("job", "cpu", "process", "cron"): (1, 0, 3),
        ("job", "disk", "device", "8:0"): (2, 1, 29),
        ("peer", "timer", "itself", None): (1, 0, 31),
    }


def test_a_thread_of_the_kernel_is_told_from_the_program_that_has_its_number_later(tmp_path):
    """On a CPU, the job waits for kworker 50, and later for a program."""
    processes = [one for one in PROCESSES if one["pid"] != 50]
    processes += [
        {"pid": 50, "tid": 50, "role": "other", "comm": "kworker/50:1", "ppid": 2, "end_ns": 330},
        {"pid": 50, "tid": 50, "role": "other", "comm": "tar", "ppid": 1, "start_ns": 400},
    ]
    away = [off(310, 12, JOB, "R", ran=50, delay=12), off(410, 19, JOB, "R+", ran=50, delay=19)]
    step = {"start": 205, "end": 430, "pid": JOB, "tid": JOB, "name": "step", "step": 0}
    tables = {**TABLES, "processes": processes, "off_cpu": away, "phases": [step]}
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as trace:
        found = waits_table(trace)
    told = {
        (r.kind, r.whose, r.blamed): (r.waits, round(r.total_s * 1e9), round(r.path_s * 1e9))
        for r in found.itertuples()
    }
    assert told == {
        ("cpu", "kernel", "kworker"): (1, 12, 12),
        ("cpu", "process", "tar"): (1, 19, 19),
    }


def test_throttled_time_is_charged_to_the_cpu_quota_of_the_target(tmp_path):
    """The thread comes late to an idle CPU: while its cgroup is throttled, and while it is not."""
    late = 30_000_000
    away = [off(ts, late, JOB, "R", ran=0, delay=late) for ts in (1_100_000_000, 2_100_000_000)]
    samples = [
        {"ts": second * 10**9, "target": "job", "name": "cgroup_throttled", "value": value}
        for second, value in ((1, 0), (2, 40), (3, 0))
    ]
    step = {"start": 1_000_000_000, "end": 3_000_000_000, "pid": JOB, "tid": JOB, "name": "step",
            "step": 0}  # fmt: skip
    tables = {"processes": PROCESSES, "off_cpu": away, "samples": samples, "phases": [step]}
    clock = {"name": "mono", "start_ns": 0, "end_ns": 4 * 10**9}
    with make_trace(tmp_path / "t", tables, targets=TARGETS, clock=clock) as trace:
        found = waits_table(trace)
        path, steps = path_times(trace)
    assert sorted(found[["kind", "whose"]].itertuples(index=False, name=None)) == [
        ("cpu", "idle CPU"),
        ("throttled", "its CPU quota"),
    ]
    assert found["blamed"].isna().all()
    assert found["path_s"].tolist() == found["total_s"].tolist() == [late / 1e9] * 2
    waited = path[path["kind"] != "run"]
    assert set(waited["whose"]) == {"idle CPU", "its CPU quota"} and steps == 1


def test_the_sums_are_those_of_the_waits(table):
    found, of_view = table
    sums = (found.groupby("target")["total_s"].sum() * 1e9).round().astype(int).to_dict()
    assert sums == of_view
    assert found.groupby("target")["share"].sum().tolist() == pytest.approx([1, 1])
    assert found["path_s"].isna().all()


def test_traces_add_up(tmp_path):
    parts = []
    for name in "ab":
        with make_trace(tmp_path / name, TABLES, targets=TARGETS) as trace:
            parts.append(WAITS.parts(trace))
    both = WAITS.finish(WAITS.together(parts))
    one = WAITS.finish(parts[0])
    pd.testing.assert_series_equal(both["waits"], 2 * one["waits"])
    pd.testing.assert_series_equal(both["total_s"], 2 * one["total_s"])
    pd.testing.assert_series_equal(both["share"], one["share"])


def test_the_time_on_the_critical_path_is_apart(tmp_path):
    step = {"start": 205, "end": 430, "pid": JOB, "tid": JOB, "name": "step", "step": 0}
    with make_trace(tmp_path / "t", {**TABLES, "phases": [step]}, targets=TARGETS) as trace:
        found = waits_table(trace)
    on_path = found[found["path_s"] > 0]
    told = {(r.kind, r.whose): round(r.path_s * 1e9) for r in on_path.itertuples()}
    # The lock of `peer` is a chain: peer itself runs meanwhile.
    assert told == {("lock", "container"): 12, ("cpu", "kernel"): 5 + 19}
    assert (found["path_s"].notna()).all()


def test_a_step_that_ends_after_the_recording_is_no_step_whose_path_is_known(tmp_path):
    step = {"start": 205, "end": 430, "pid": JOB, "tid": JOB, "name": "step", "step": 0}
    clock = {"name": "mono", "start_ns": 0, "end_ns": 429}
    tables = {**TABLES, "phases": [step]}
    with make_trace(tmp_path / "t", tables, targets=TARGETS, clock=clock) as trace:
        found = waits_table(trace)
    assert found["path_s"].isna().all() and len(found) == 9


def test_no_waits_make_an_empty_table(tmp_path):
    tables = {"processes": PROCESSES, "off_cpu": [], "phases": []}
    with make_trace(tmp_path / "t", tables, targets=TARGETS) as trace:
        found = waits_table(trace)
    assert list(found.columns) == [column.name for column in WAITS.columns]
    assert len(found) == 0


def test_traces_are_compared_by_what_their_steps_waited_for(tmp_path):
    step = {"start": 205, "end": 430, "pid": JOB, "tid": JOB, "name": "step", "step": 0}
    with make_trace(tmp_path / "t", {**TABLES, "phases": [step]}, targets=TARGETS) as trace:
        frame = measured(trace).frame
    rows = frame[frame["topic"] == "critical path"]
    told = dict(zip(rows["measure"], (rows["value"] * 1e6).round().astype(int), strict=True))
    waited = {"lock: container": 12, "cpu: kernel": 5 + 19}
    # While the step waits for `peer`, it depends on what that thread does.
    assert told == {**waited, "run: another thread": 13, "run: own thread": 225 - 13 - 36}
    assert rows["weight"].sum() == pytest.approx(1)


def test_everybody_waits_in_a_recording_of_the_whole_machine(tmp_path):
    others = [{**one, "target": None, "role": "other"} for one in PROCESSES]
    machine = [{"name": "machine", "role": "target", "kind": "machine", "pid": 0}]
    with make_trace(tmp_path / "t", {**TABLES, "processes": others}, targets=machine) as trace:
        found = trace.rows(f"SELECT tid, count(*) FROM {waits(trace)} GROUP BY tid ORDER BY tid")
        assert len(waits_table(trace)) > 0
    away = pd.Series([row["tid"] for row in TABLES["off_cpu"]]).value_counts()
    assert {tid for tid, _ in found} == set(away.index)
    assert all(count >= away[tid] for tid, count in found)
