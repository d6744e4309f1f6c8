"""Measures of events that did not occur, and of events that were not recorded."""

import shutil

import pytest

from tests.support.compared import S, make_times, row
from tests.support.traces import make_trace
from tracer.analysis.compare.comparison import MISSING, compare
from tracer.analysis.compare.measured import REQUESTS, measured


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
