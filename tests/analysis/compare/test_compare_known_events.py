"""Measures of events that did not occur, and of events that were not recorded."""

import shutil

import pytest

from tests.support.compared import S, make_times, row
from tests.support.findings import (
    FLUSHER,
    JBD2,
    JOB,
    PROCESSES,
    call,
    chain,
    merged,
    off,
    phase,
    start,
)
from tests.support.traces import make_trace
from tracer.analysis.compare.comparison import compare
from tracer.analysis.compare.measured import MACHINES_PAGES, REQUESTS, measured
from tracer.analysis.compare.verdicts import MISSING


def of_requests(folder, requests, **manifest):
    """A trace of so many reads of a disk; None: the block layer was not recorded."""
    moments = ("bio_queue", "issue", "complete")
    tables = {"syscalls": [{"ts": 1, "tid": 7, "name": "write", "dur_ns": 1000}]}
    if requests is not None:
        tables["block"] = [
            {"ts": n * S + at, "tid": 7, "pid": 7, "event": event, "dev": "8:0", "sector": 8 * n,
             "nr_sector": 8, "rwbs": "R"}
            for n in range(requests)
            for at, event in enumerate(moments)
            if not manifest or event == "bio_queue"
        ]  # fmt: skip
    clock = {"name": "mono", "start_ns": 0, "end_ns": 100 * S}
    make_trace(folder, tables, clock=clock, **manifest).close()
    return folder


def test_recorded_requests_that_never_came_are_0_and_unrecorded_ones_are_not(tmp_path):
    queued = {"formats": {"block:block_bio_queue": ""}}
    base = of_requests(tmp_path / "cold.trace", 50)
    for name, why, requests, manifest in (
        ("warm", None, 0, {}),
        ("unrecorded", "a trace has no table block", None, {}),
        ("lacking", "a trace has no event issue of the table block", 50, {"capture": queued}),
        ("imported", "a trace has no event issue of the table block", 50, {"imported": {}}),
    ):
        found = compare([base, of_requests(tmp_path / f"{name}.trace", requests, **manifest)])
        reads, times = row(found, REQUESTS, "read"), row(found, REQUESTS, "read: service")
        assert (reads["base_mean"], times["verdict"]) == (0.5, MISSING)
        if why is None:
            assert (reads["mean"], reads["ratio"]) == (0, 0)
            assert times["why"] == "not in warm: nothing of this kind was recorded"
        else:
            assert (reads["verdict"], reads["why"]) == (MISSING, f"not in {name}: {why}")
            assert times["why"] == reads["why"]


def test_equal_traces_have_a_ratio_of_1_in_everything_that_is_not_0(tmp_path):
    with make_times(tmp_path / "a.trace") as trace:
        first = trace.folder
    shutil.copytree(first, tmp_path / "b.trace")
    rows = compare([first, tmp_path / "b.trace"]).rows
    known = rows["ratio"].notna()
    assert known.sum() > 20 and set(rows.loc[known, "ratio"]) == {1}
    assert set(rows.loc[~known, "why"]) <= {"it is 0 in both groups"}


@pytest.mark.parametrize(
    ("kinds", "measures"),
    [
        ([], {"all": 0, "major": 0}),
        (["minor", "major", "unknown"], {"all": 3, "major": 1}),
        (["unknown", "unknown"], {"all": 2}),
    ],
)
def test_faults_that_did_not_occur_are_0_and_unknown_kinds_are_not(tmp_path, kinds, measures):
    faults = [{"ts": 1, "pid": 7, "tid": 7, "kind": kind, "user": True} for kind in kinds]
    tables = {
        "processes": [{"pid": 7, "tid": 7, "role": "target", "target": "job"}],
        "page_faults": [*faults, {"ts": 2, "pid": 8, "tid": 8, "kind": "major", "user": True}],
        "phases": [], "off_cpu": [],
    }  # fmt: skip
    job = {"name": "job", "role": "target", "kind": "pid", "pid": 7}
    with make_trace(tmp_path / "t", tables, targets=[job]) as trace:
        found = measured(trace)
    rows = found.frame[found.frame["topic"] == "page faults"]
    assert dict(zip(rows["measure"], rows["value"], strict=True)) == measures
    assert "no step that began and ended" in found.whys["critical path"]


def waiting_trace(folder, without=()):
    """A trace of a step with an fsync, and of pages that the flusher and the fsync write."""
    end = {**start(41, None), "event": "pages_written", "bdi": None}
    tables = merged(
        {
            "processes": PROCESSES,
            "phases": [phase("train", 0, 100), phase("step", 5, 25, step=0, epoch=0)],
            "syscalls": [call("fsync", 10, 10)],
            "off_cpu": [off(11, 8, state="D", waker=JBD2)],
            "writeback": [start(39, "background"), end],
        },
        chain(JOB, JOB, 100, 12, 1000, 30),
        chain(FLUSHER, JOB, 200, 40, 5000, 70),
    )
    for table in without:
        del tables[table]
    clock = {"name": "mono", "start_ns": 0, "end_ns": 100 * S}
    make_trace(folder, tables, clock=clock).close()
    return folder


def test_a_reason_whose_evidence_one_trace_lacks_is_not_compared(tmp_path):
    base = waiting_trace(tmp_path / "all.trace")
    same = compare([base, waiting_trace(tmp_path / "same.trace")])
    assert row(same, MACHINES_PAGES, "background")["ratio"] == 1
    assert row(same, MACHINES_PAGES, "fsync")["ratio"] == 1

    found = compare([base, waiting_trace(tmp_path / "less.trace", ["writeback"])])
    background = row(found, MACHINES_PAGES, "background")
    assert (background["base_mean"], background["verdict"]) == (70, MISSING)
    assert background["why"] == "not in less: a trace has no table writeback"
    for told in ("all", "fsync"):
        assert row(found, MACHINES_PAGES, told)["ratio"] == 1
    others = found.rows[found.rows["measure"] == "other"]
    assert others.empty  # 70 pages of the second trace, since nobody knows of their reason

    both = [waiting_trace(tmp_path / f"{name}.trace", ["writeback"]) for name in "ab"]
    assert row(compare(both), MACHINES_PAGES, "other")["ratio"] == 1


def test_a_kind_of_wait_whose_evidence_one_trace_lacks_is_not_compared(tmp_path):
    base = waiting_trace(tmp_path / "all.trace")
    found = compare([base, waiting_trace(tmp_path / "less.trace", ["file_writes", "syscalls"])])
    path = found.rows[found.rows["topic"] == "critical path"].set_index("measure")
    (sync,) = [name for name in path.index if name.startswith("sync")]
    assert path.loc[sync, "base_mean"] == pytest.approx(8000)
    assert path.loc[sync, "verdict"] == MISSING
    assert path.loc[sync, "why"] == "not in less: a trace has no table file_writes, syscalls"
    assert path.loc["run: own thread", "ratio"] == 1
    assert not [name for name in path.index if name.startswith("other")]


def test_the_use_of_the_cpus_is_named_a_median_of_the_samples(tmp_path):
    samples = [
        {"ts": n * S, "name": "cpu_use", "value": value, "unit": "%"}
        for n, value in enumerate((20.0, 40.0, 180.0))
    ]
    with make_trace(tmp_path / "t", {"samples": samples}, host={"cpus": 2}) as trace:
        frame = measured(trace).frame
    row = frame[frame["topic"] == "CPU"].iloc[0]
    assert (row["measure"], row["value"]) == ("median use of the machine's CPUs", 20)


def test_the_time_that_the_host_took_is_a_share_of_the_time_with_work(tmp_path):
    ends = [("cpu_time", 5.0), ("cpu_time", 14.0), ("steal_time", 7.0), ("steal_time", 8.0)]
    samples = [
        {"ts": n % 2 * S // 2, "name": name, "value": value, "unit": "s"}
        for n, (name, value) in enumerate(ends)
    ]
    called = "share of the CPUs' work time that the host took (steal)"
    for folder, rows, told in (("t", samples, [10.0]), ("before", samples[:2], [])):
        with make_trace(tmp_path / folder, {"samples": rows}, host={"cpus": 2}) as trace:
            frame = measured(trace).frame
        assert list(frame[frame["measure"] == called]["value"]) == told
