"""`tracer explain` and `waits` tell of requests and waits whose end was not recorded."""

from __future__ import annotations

import random

import pytest

from tests.oracles.drawing import first_with, rows_of_view, seeds
from tests.oracles.unfinished_requests import MANIFEST, TARGETS, Recording, Waiting
from tests.support.traces import make_trace
from tracer.analysis.explain.explanation import explain
from tracer.analysis.views.waiting.waits import WAITS

pytestmark = pytest.mark.slow

RECORDINGS, WAITINGS = seeds(2), seeds(6)
STEPS, MOST = 30, 5


def drawn(seed):
    """Draws a recording. Losses cut some requests of the first one; others last to its end."""

    def has_both(made):
        cut = [made.ended(one) < made.end for one in made.requests if one.until is None]
        return seed != RECORDINGS[0] or min(cut.count(True), cut.count(False)) > 2

    return first_with(
        has_both, lambda n: Recording(n, STEPS, random.Random(n).choice((4, 6))), seed
    )


def meanwhile(folder, made):
    """Returns what the explanation says about each wait, by its begin."""
    clock = {"name": "mono", "start_ns": 0, "end_ns": made.end}
    with make_trace(folder, made.tables, targets=TARGETS, clock=clock, disks=MANIFEST) as trace:
        slowest = explain(trace, slowest=99).slowest
    return {
        part["ts"]: {
            (one["dev"], one["operation"], one["comm"]): (one["requests"], one["bytes"])
            for one in part["meanwhile"]
        }
        for step in slowest
        for part in step.segments
        if part["kind"] == "disk"
    }


@pytest.mark.parametrize("seed", RECORDINGS)
def test_a_request_without_an_end_counts_until_a_loss_or_the_end(tmp_path, seed):
    """The explanation has the five largest parts."""
    made = drawn(seed)
    found = meanwhile(tmp_path / "t", made)
    assert found.keys() == {begin for begin, _, _ in made.waits}
    for begin, end, disk in made.waits:
        served = made.served(begin, end, disk)
        assert found[begin].items() <= served.items(), (begin, served)
        assert len(found[begin]) == min(len(served), MOST)
        least = min(size for _, size in found[begin].values())
        assert all(served[key][1] <= least for key in served.keys() - found[begin].keys())


@pytest.mark.parametrize("seed", WAITINGS)
def test_a_wait_without_an_end_has_its_cause_and_no_length(seed):
    made = Waiting(seed)
    clock = {"name": "mono", "start_ns": 0, "end_ns": made.end}
    rows = rows_of_view(WAITS, made.tables, targets=TARGETS, clock=clock, disks=MANIFEST)
    found = sorted((row["tid"], row["ts"], row["dur_ns"] or -1, row["kind"]) for row in rows)
    expected = sorted((one.tid, one.ts, one.dur_ns or -1, one.kind) for one in made.waits)
    assert found == expected
    details = {(row["tid"], row["ts"]): row["detail"] for row in rows if row["kind"] == "disk"}
    assert details == {(w.tid, w.ts): w.detail for w in made.waits if w.kind == "disk"}
