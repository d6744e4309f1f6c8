"""`tracer compare` compares what both groups tell, and calls it what the documentation says."""

from __future__ import annotations

import math
import random

import pandas as pd
import pytest

from tests.oracles.compared_runs import ALPHA, TOLD, DrawnRun, corrected, verdict
from tests.oracles.data_waits import World
from tests.oracles.drawing import SEED, seeds
from tests.support.traces import make_trace
from tracer.analysis.compare.comparison import compared, look

pytestmark = pytest.mark.slow

COMPARISONS = len(seeds(20))
RUNS = 6
MEASURES = [measure for those in TOLD.values() for measure in those]


def looked_at(folder, run):
    """Returns what a comparison reads of a run."""
    with make_trace(folder, run.tables, **run.manifest) as trace:
        return look(trace)


def drawn(numbers, pool):
    """Returns the groups of a comparison, by name: runs of the pool, some of them repeated."""
    groups = {}
    for name in ("base", "other", "third")[: numbers.choice((2, 2, 3))]:
        group = numbers.choices(pool, k=numbers.choice((1, 2, 3, 4, 4)))
        groups[name] = group[:1] * 5 if numbers.random() < 0.4 else group
    return groups


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory):
    """Comparisons, each with its groups, its rows and the number of its tests."""
    numbers, folder = random.Random(SEED), tmp_path_factory.mktemp("compared")
    pool = []
    for n in range(RUNS):
        run = DrawnRun(numbers, still=n < 2)
        pool.append((run, looked_at(folder / f"{n}.trace", run)))
    found = []
    for number in range(COMPARISONS):
        groups = drawn(numbers, pool if number else pool[:2])
        answer = compared(
            [seen for group in groups.values() for _, seen in group],
            {name: [seen for _, seen in group] for name, group in groups.items()},
        )
        frame = answer.rows.astype(object)
        rows = frame.where(pd.notna(frame), None).to_dict("records")
        made = {name: [run for run, _ in group] for name, group in groups.items()}
        found.append((made, rows, answer.tests))
    return found


def same(found, expected):
    if expected is None or found is None:
        return found is None and expected is None
    return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-12)


def test_each_measure_has_the_row_of_the_oracle(comparisons):
    reasons = set()
    for groups, listed, _ in comparisons:
        base = groups["base"]
        rows = {(row["topic"], row["measure"], row["group"]): row for row in listed}
        for measure in MEASURES:
            for name in list(groups)[1:]:
                expected = verdict(measure, base, groups[name], ("base", name))
                row = rows.get((*measure, name))
                if row is None:
                    told = [run.value(measure) for runs in groups.values() for run in runs]
                    assert not any(isinstance(value, float) and value for value in told), measure
                    continue
                said = (measure, name, row, expected)
                assert same(row["base_mean"], expected.base), said
                assert same(row["mean"], expected.mean), said
                assert same(row["ratio"], expected.ratio), said
                assert same(row["ratio_low"], expected.low), said
                assert same(row["ratio_high"], expected.high), said
                assert same(row["p"], expected.p), said
                assert (row["base_runs"], row["runs"]) == expected.runs, said
                if expected.whys:
                    assert any(why in row["why"] for why in expected.whys), said
                reasons |= expected.whys
    assert len(reasons) > 5


def test_the_verdict_follows_from_the_corrected_p(comparisons):
    seen = set()
    for _, rows, tests in comparisons:
        tested = [row for row in rows if row["p"] is not None]
        assert tests == len(tested)
        right = corrected([row["p"] for row in tested])
        for row, p in zip(tested, right, strict=True):
            assert same(row["p_corrected"], p), row
        for row in rows:
            if row["ratio"] is None:
                expected = "not measured"
            elif row["p"] is None:
                expected = "not told"
            else:
                expected = "changed" if row["p_corrected"] <= ALPHA else "inside the noise"
            assert row["verdict"] == expected, row
            seen.add(expected)
    assert len(seen) == 4


def test_rows_of_traces_that_lost_events_are_marked(comparisons):
    marked = set()
    for groups, rows, _ in comparisons:
        for row in rows:
            lossy = any(run.lossy for run in groups["base"] + groups[row["group"]])
            assert row["lossy"] == lossy
            marked.add(lossy)
    assert marked == {True, False}


@pytest.mark.parametrize("table", ["syscalls", "block", "page_faults", "reclaim", "dirty"])
def test_a_recording_without_a_table_differs_in_nothing_that_is_compared(tmp_path, waiting, table):
    """Neither what the table tells is compared, nor kinds that its events seem to be without it."""
    world, tables, whole = waiting
    with make_trace(
        tmp_path / "t", {k: v for k, v in tables.items() if k != table}, **world.manifest
    ) as trace:
        less = look(trace)
    rows = compared([whole, less], {"whole": [whole], "less": [less]}).rows
    ratios = dict(zip(rows["topic"] + ": " + rows["measure"], rows["ratio"], strict=True))
    known = {name: ratio for name, ratio in ratios.items() if pd.notna(ratio)}
    assert known == {name: pytest.approx(1) for name in known}
    assert {"critical path: run: own thread", "stages: train"} <= known.keys()


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    """A recording of jobs that wait for many things, its tables, and what is read of it."""
    world = World(3)
    pid = next(row["pid"] for row in world.tables["phases"] if row["name"] == "step")
    tables = world.tables | {"loss": world.gap, "dirty": []}
    tables.setdefault("block", [])
    slept = [row for row in tables["off_cpu"] if row["tid"] == pid and row["state"] == "D"][:9]
    for row in slept:  # the kernel puts it to sleep, since it has dirtied pages
        pause = {"ts": row["ts"], "pid": pid, "tid": pid, "event": "balance_dirty_pages"}
        tables["dirty"].append(pause | {"pause_ns": row["dur_ns"]})
    assert slept
    with make_trace(tmp_path_factory.mktemp("whole") / "t", tables, **world.manifest) as trace:
        return world, tables, look(trace)
