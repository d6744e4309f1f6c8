"""`tracer compare` compares what both groups tell, and calls it what the documentation says."""

from __future__ import annotations

import math
import random

import pandas as pd
import pytest

from tests.oracles.compared_runs import ALPHA, NOTHING, TOLD, DrawnRun, corrected, verdict
from tests.oracles.data_waits import World
from tests.oracles.drawing import SEED, first_with, seeds
from tests.support.traces import make_trace
from tracer.analysis.compare.comparison import compared, look

pytestmark = pytest.mark.slow

COMPARISONS = len(seeds(20))
RUNS = 6
MEASURES = [measure for those in TOLD.values() for measure in those]
KINDS = {
    *("a trace has no table", "a trace has no event", NOTHING, "0 in", "it is 0 in this group"),
    *("one run has no spread", "too few runs", "lossy", "lossless"),
}
"""Reasons why nothing can be told of a measure, without names of groups and tables; traces."""


def looked_at(folder, run):
    """Returns what a comparison reads of a run."""
    with make_trace(folder, run.tables, **run.manifest) as trace:
        return look(trace)


def drawn_runs(numbers):
    """Returns a pool of runs. The events of the first two are not drawn."""
    return [DrawnRun(numbers, still=n < 2) for n in range(RUNS)]


def drawn(numbers, pool):
    """Returns the groups of a comparison, by name: runs of the pool, some of them repeated."""
    groups = {}
    for name in ("base", "other", "third")[: numbers.choice((2, 2, 3))]:
        group = numbers.choices(pool, k=numbers.choice((1, 2, 3, 4, 4)))
        groups[name] = group[:1] * 5 if numbers.random() < 0.4 else group
    return groups


def kinds_of(groups):
    """Returns the kinds that a comparison of these groups has."""
    base, *others = groups.items()
    whys, kinds = set(), set()
    for name, group in others:
        kinds.add("lossy" if any(run.lossy for run in base[1] + group) else "lossless")
        for measure in MEASURES:
            whys |= verdict(measure, base[1], group, (base[0], name)).whys
    whole = {why.partition(": ")[2] or why for why in whys}
    return kinds | {kind for kind in KINDS for why in whole if why.startswith(kind)}


def another(numbers, kinds):
    """Draws the groups of a comparison that has one of these kinds."""
    return first_with(
        lambda groups: kinds & kinds_of(groups), lambda _: drawn(numbers, drawn_runs(numbers)), SEED
    )


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory):
    """Comparisons, each with its groups, its rows and the number of its tests.

    Beyond the usual number, there are some of each kind that none of these has.
    """
    numbers, folder = random.Random(SEED), tmp_path_factory.mktemp("compared")
    pool = drawn_runs(numbers)
    made = [drawn(numbers, pool if number else pool[:2]) for number in range(COMPARISONS)]
    missing = KINDS.difference(*map(kinds_of, made))
    while missing:
        others = another(numbers, missing)
        made.append(others)
        missing -= kinds_of(others)
    runs = {id(run): run for groups in made for group in groups.values() for run in group}
    seen = {key: looked_at(folder / f"{key}.trace", run) for key, run in runs.items()}
    found = []
    for groups in made:
        looks = {name: [seen[id(run)] for run in group] for name, group in groups.items()}
        answer = compared([look for group in looks.values() for look in group], looks)
        frame = answer.rows.astype(object)
        rows = frame.where(pd.notna(frame), None).to_dict("records")
        found.append((groups, rows, answer.tests))
    return found


def same(found, expected):
    if expected is None or found is None:
        return found is None and expected is None
    return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-12)


def test_each_measure_has_the_row_of_the_oracle(comparisons):
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
    for groups, rows, _ in comparisons:
        for row in rows:
            lossy = any(run.lossy for run in groups["base"] + groups[row["group"]])
            assert row["lossy"] == lossy


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
