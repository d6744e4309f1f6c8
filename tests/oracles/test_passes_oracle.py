"""The view `passes` finds the wakes that a flusher made, and a naive program the times between."""

import itertools
import statistics

import pytest

from tests.oracles.drawing import batches, rows_of_view
from tests.oracles.flusher import Flusher
from tests.support.traces import make_trace
from tracer.analysis.report.writeback import writeback_intervals, writeback_reasons
from tracer.analysis.views.writing.passes import PASSES

pytestmark = pytest.mark.slow

CASES_OF_A_TRACE = 20
STEPS = 150
APART = 100_000
"""The first time of a case after that of the one before."""


def drawn(batch):
    """Returns several flushers, one after the other, each with threads of its own."""
    return [Flusher(numbers, STEPS, APART * n) for n, numbers in enumerate(batch)]


def starts_of(case):
    return [
        (row, wake)
        for row, wake in zip(case.rows, case.wakes, strict=True)
        if row["event"] == "start"
    ]


def ends_of(case):
    """Returns the end of each pass of a flusher by its first row: the next row of its wake."""
    rows = list(zip(case.rows, case.wakes, strict=True))
    return {
        n: next((later["ts"] for later, of in rows[n + 1 :] if of == wake), None)
        for n, (row, wake) in enumerate(rows)
        if row["event"] == "start"
    }


@pytest.mark.parametrize("batch", batches(CASES_OF_A_TRACE), ids=lambda b: "")
def test_each_pass_is_of_the_wake_that_made_it(batch):
    cases = drawn(batch)
    found = rows_of_view(PASSES, {"writeback": [row for case in cases for row in case.rows]})
    expected = [
        (number, row, wake) for number, case in enumerate(cases) for row, wake in starts_of(case)
    ]
    assert len(found) == len(expected)
    wakes = {}
    for got, (number, row, wake) in zip(found, expected, strict=True):
        assert (got["ts"], got["tid"], got["bdi"], got["reason"]) == tuple(
            row[name] for name in ("ts", "tid", "bdi", "reason")
        )
        assert got["begins"] == ((number, wake) not in wakes)
        assert wakes.setdefault((number, wake), got["wake"]) == got["wake"]
    assert len(set(wakes.values())) == len(wakes)
    assert [got["end"] for got in found] == [e for case in cases for e in ends_of(case).values()]


def naive_times(starts, chosen):
    """Returns the times between the first passes of wakes, by reason, of each device."""
    first = {}
    for row, wake in starts:
        for reason in ("all", row["reason"]):
            first.setdefault((reason, wake), (row["ts"], row["bdi"]))
    found = {}
    for bdi in chosen:
        for reason in {key[0] for key in first}:
            times = [ts for (r, _), (ts, of) in first.items() if r == reason and of == bdi]
            times.sort()
            gaps = [b - a for a, b in itertools.pairwise(times)]
            found.setdefault(reason, []).extend(gaps)
    return {reason: gaps for reason, gaps in found.items() if gaps}


@pytest.mark.parametrize("dev", [None, "7:0"])
def test_times_between_wakes_are_those_of_a_naive_program(tmp_path, dev):
    for number, (numbers,) in enumerate(batches(1, 10)):
        case = Flusher(numbers, STEPS)
        with make_trace(tmp_path / str(number), {"writeback": case.rows}) as trace:
            every = writeback_intervals(trace, dev)
            reasons = writeback_reasons(trace, dev).set_index("reason")
        starts = starts_of(case)
        expected = naive_times(starts, ["8:0", "7:0"] if dev is None else [dev])
        found = every[every["between"] == "wakes"].set_index("reason")
        assert dict(found["intervals"]) == {reason: len(gaps) for reason, gaps in expected.items()}
        for reason, gaps in expected.items():
            assert found["mean_s"][reason] * 1e9 == pytest.approx(statistics.mean(gaps))
        own = [(row, wake) for row, wake in starts if dev in (None, row["bdi"])]
        for reason in {row["reason"] for row, _ in own}:
            of_reason = [wake for row, wake in own if row["reason"] == reason]
            assert reasons["writebacks"][reason] == len(of_reason)
            assert reasons["wakes"][reason] == len(set(of_reason))


@pytest.mark.parametrize("batch", batches(1, 20), ids=lambda b: "")
def test_a_loss_parts_a_wake_and_never_joins_two(batch):
    (numbers,) = batch
    case = Flusher(numbers, STEPS)
    since, until = sorted(numbers.sample(range(case.now), 2))
    kept = [
        (row, wake)
        for row, wake in zip(case.rows, case.wakes, strict=True)
        if not since <= row["ts"] <= until
    ]
    loss = {"stream": "machine.cpu0", "cpu": 0, "from": since, "to": until, "count": None}
    tables = {"writeback": [row for row, _ in kept], "loss": [loss]}
    found = rows_of_view(PASSES, tables)
    starts = [(row, wake) for row, wake in kept if row["event"] == "start"]
    assert len(found) == len(starts)
    ends = [
        None if end is None or (ts <= until and since <= end) else end
        for n, end in ends_of(case).items()
        if not since <= (ts := case.rows[n]["ts"]) <= until
    ]
    assert [got["end"] for got in found] == ends
    truth, made = {}, {}
    for row, wake in zip(case.rows, case.wakes, strict=True):
        made.setdefault(wake, []).append(row["ts"])
    before = {}
    for got, (row, wake) in zip(found, starts, strict=True):
        assert got["lost"] == (until if row["ts"] >= since else None)
        if got["wake"] is not None:  # the only end of a wake may be lost
            assert truth.setdefault(got["wake"], wake) == wake
            if max(made[wake]) < since:
                assert before.setdefault(wake, got["wake"]) == got["wake"]
