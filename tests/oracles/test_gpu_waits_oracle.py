"""Waits for a GPU, asleep and on critical paths, agree with the naive ones."""

from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from tests.oracles.drawing import batches
from tests.oracles.drawn_gpu_calls import drawn
from tests.oracles.gpu_waits import Job, by_thread
from tests.support.traces import make_trace
from tracer.analysis.views.catalogue import VIEWS
from tracer.probes.errors import BadTrace

pytestmark = pytest.mark.slow

JOBS = 10
"""Cases in a trace."""


def rows_of(trace, name):
    VIEWS[name].make(trace)
    cursor = trace.connection.execute(f"SELECT * FROM {name}")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """The jobs, with the rows of each view."""
    found = []
    for number, cases in enumerate(batches(JOBS)):
        tables, manifest = drawn(cases)
        folder = tmp_path_factory.mktemp("gpu") / f"t{number}"
        with make_trace(folder, tables, **manifest) as trace:
            names = ("gpu_waits", "waits", "critical_path", "steps")
            found.append((Job(tables), {name: rows_of(trace, name) for name in names}))
    return found


def test_each_call_is_a_row_with_its_length_and_one_within_it_is_none(worlds):
    lengths = Counter()
    for job, views in worlds:
        found = defaultdict(list)
        for row in views["gpu_waits"]:
            life = job.life_of(row["tid"], row["ts"], row["pid"])
            found[row["tid"], life].append((row["ts"], row["call"], row["dur_ns"]))
        assert not found.keys() - job.calls.keys()
        for thread, calls in job.calls.items():
            rows = found[thread]
            for call in calls:
                may = [(call.begin, call.name, length) for length in call.lengths]
                row = next((one for one in rows if one in may), None)
                within = [one for one in calls if one.end_at and one.at < call.at < one.end_at]
                if not within or (row and not any(one.sure for one in within)):
                    assert row is not None, (thread, call, rows)
                    rows.remove(row)
                    lengths[row[2] is None, call.clean] += 1
            assert not rows, (thread, rows)
    assert lengths[True, False] and lengths[False, True] > 100


def test_calls_are_of_the_threads_that_had_the_numbers_then(worlds):
    for job, views in worlds:
        lives = by_thread(job.tables["processes"])
        for row in views["gpu_waits"]:
            of_process = [one for one in lives[row["tid"]] if one["pid"] == row["pid"]]
            living = [one for one in of_process if one.get("start_ns", 0) <= row["ts"]]
            owner = max(living, key=lambda one: one.get("start_ns", 0))
            assert (row["comm"], row["target"]) == (owner["comm"], owner["target"]), row


def around(job, wait):
    """Returns the interval off the CPU that a wait is part of."""
    mine = [one for one in job.off_cpu[wait["tid"]] if one["pid"] == wait["pid"]]
    if wait["dur_ns"] == 0:
        return next(one for one in mine if one["ts"] == wait["ts"] and one["dur_ns"] == 0)
    return next(
        one
        for one in mine
        if one["ts"] <= wait["ts"]
        and (one["dur_ns"] is None or wait["ts"] < one["ts"] + one["dur_ns"])
    )


def test_calls_are_in_the_steps_of_their_threads(worlds):
    for _, views in worlds:
        steps = by_thread(views["steps"])
        for row in views["gpu_waits"]:
            for step in steps[row["tid"]]:
                if step["start"] < row["ts"] < step["end"]:
                    assert (row["epoch"], row["step"]) == (step["epoch"], step["step"]), row


@pytest.mark.parametrize("name", ["waits", "critical_path"])
def test_without_calls_nothing_waits_for_the_gpu(tmp_path, name):
    """A table without a row and a missing one make no difference."""
    tables, manifest = drawn(batches(JOBS)[0])
    del tables["gpu_calls"]
    found = []
    for folder, calls in (("missing", {}), ("empty", {"gpu_calls": []})):
        with make_trace(tmp_path / folder, tables | calls, **manifest) as trace:
            found.append(sorted(rows_of(trace, name), key=repr))
            if calls:
                assert rows_of(trace, "gpu_waits") == []
            else:
                with pytest.raises(BadTrace, match="gpu_calls"):
                    rows_of(trace, "gpu_waits")
    assert found[0] == found[1]
    assert found[0] and "gpu" not in {row["kind"] for row in found[0]}


def test_sleeps_in_the_driver_wait_for_the_gpu_and_no_others(worlds):
    seen = Counter()
    for job, views in worlds:
        for row in views["waits"]:
            interval = around(job, row)
            woken = interval.get("wake_ns")
            slept = interval["state"] in ("S", "D")
            late = woken is not None and row["ts"] >= woken and interval["dur_ns"] is not None
            if not slept or late:
                assert row["kind"] == "cpu", (row, interval)
                continue
            functions, sure = job.inside(row["tid"], row["ts"])
            if row["kind"] == "gpu":
                assert row["detail"] in functions, row
                # A wait amid lost events has no length, and may have ended before.
                lost = row["dur_ns"] is None and job.lost_after(row["ts"])
                if sure or lost:
                    assert row["certainty"] == ("inferred" if lost else "exact"), row
            else:
                assert not sure, (row, functions)
            seen[row["kind"], sure] += 1
    assert seen["gpu", True] > 20


def test_waits_of_a_thread_never_overlap_and_add_up(worlds):
    for job, views in worlds:
        mine = defaultdict(list)
        for row in views["waits"]:
            mine[row["pid"], row["tid"]].append(row)
        for (pid, tid), rows in mine.items():
            rows.sort(key=lambda row: (row["ts"], row["dur_ns"] or 0))
            for one, other in pairwise(rows):
                assert one["ts"] + (one["dur_ns"] or 0) <= other["ts"], (one, other)
            total = sum(row["dur_ns"] or 0 for row in rows)
            off = [row for row in job.off_cpu[tid] if row["pid"] == pid]
            assert total == sum(row["dur_ns"] or 0 for row in off if row["dur_ns"]), (pid, tid)


def test_segments_of_a_step_adjoin_and_add_up(worlds):
    for _, views in worlds:
        segments = defaultdict(list)
        for row in views["critical_path"]:
            segments[row["step_tid"], row["step_start"]].append(row)
        assert len(segments) == len(views["steps"])
        for step in views["steps"]:
            mine = sorted(segments[step["tid"], step["start"]], key=lambda row: row["ts"])
            assert mine[0]["ts"] == step["start"]
            for one, other in pairwise(mine):
                assert one["ts"] + one["dur_ns"] == other["ts"]
            assert mine[-1]["ts"] + mine[-1]["dur_ns"] == step["end"]


def test_the_path_lies_where_the_oracle_says(worlds):
    sums = Counter()
    for job, views in worlds:
        edges = job.edges()
        segments = defaultdict(list)
        for row in views["critical_path"]:
            segments[row["step_tid"], row["step_start"]].append(row)
        for step in views["steps"]:
            mine = sorted(segments[step["tid"], step["start"]], key=lambda row: row["ts"])
            for begin, end in pairwise(edges):
                if begin < step["start"] or begin >= step["end"] or begin == end:
                    continue
                allowed = job.places(step["tid"], begin)
                (row,) = [r for r in mine if r["ts"] <= begin < r["ts"] + r["dur_ns"]]
                assert end <= row["ts"] + row["dur_ns"], (row, end)
                asked = {"run": ("run",), "gpu": ("gpu",), "cpu": ("cpu",)}.get(row["kind"], ("",))
                place = next((p for p in allowed if p.tid == row["tid"] and p.kind in asked), None)
                assert place is not None, (
                    begin,
                    row["kind"],
                    row["tid"],
                    row["ts"],
                    allowed,
                    row["call"],
                )
                if row["kind"] == "gpu":
                    assert place.kind == "gpu", (row, allowed)
                    assert row["detail"] in {p.detail for p in allowed}, (row, allowed)
                    assert row["certainty"] == "exact" or len(allowed) > 1, row
                sums[row["kind"], row["tid"] == step["tid"]] += end - begin
    assert sums["gpu", True] and sums["gpu", False]
