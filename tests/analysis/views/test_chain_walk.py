"""The walk along chains of waits, against a program that asks for each nanosecond."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tracer.analysis.views.waiting.chain_walk import NO_WAIT, SpansOfLanes, WaitsOfLanes, pieces_of

END = 60
Wait = tuple[int, int, int, int]
"""lane, begin, end, lane that it waits for or -1"""


def walked(waits, born, spans, cuts=(), most=7):
    waits = sorted(waits)
    columns = [np.array(c, np.int64) for c in zip(*waits, strict=True)] or [
        np.empty(0, np.int64)
    ] * 4
    lane, begin, end, by = columns
    spans = [np.array(c, np.int64) for c in zip(*spans, strict=True)]
    of, times = [np.array(c, np.int64) for c in zip(*sorted(cuts), strict=True)] or [
        np.empty(0, np.int64)
    ] * 2
    first, cut = (np.searchsorted(lanes, np.arange(len(born) + 1)) for lanes in (lane, of))
    machine = WaitsOfLanes(first, begin, end, by.astype(np.int32), np.array(born, np.int64))
    groups = list(pieces_of(machine, SpansOfLanes(*spans), (cut, times), most))
    for group in groups:
        assert len(group.span) <= most or len(set(group.span)) == 1
    return [
        (int(s), int(b), int(e), int(at), None if w == NO_WAIT else waits[w])
        for found in groups
        for s, b, e, at, w in zip(
            found.span, found.begin, found.end, found.lane, found.wait, strict=True
        )
    ]


def at(moment: int, lane: int, waits: list[Wait], born: list[int], most: int = 64):
    """The thread and the wait that a moment of a lane depends on."""
    last = None
    for _ in range(most):
        if last is not None and moment < born[lane]:
            return last
        wait = next((w for w in waits if w[0] == lane and w[1] <= moment < w[2]), None)
        if wait is None:
            return lane, None
        last = (lane, wait)
        if wait[3] < 0:
            return last
        lane = wait[3]
    return last


def a_machine(draw: random.Random):
    lanes = draw.randint(1, 5)
    waits = []
    for lane in range(lanes):
        now = draw.randint(-5, 10)
        while now < END:
            end = now + draw.randint(1, 12)
            waits.append((lane, now, end, draw.choice([-1, *range(lanes)])))
            now = end + draw.choice([0, 0, 1, 5])
    born = [draw.choice([-100, -100, draw.randint(0, END)]) for _ in range(lanes)]
    return lanes, waits, born


@pytest.mark.parametrize("seed", range(200))
def test_every_nanosecond_is_that_of_the_thread_it_depends_on(seed):
    draw = random.Random(seed)
    lanes, waits, born = a_machine(draw)
    spans = []
    for _ in range(draw.randint(1, 4)):
        start = draw.randint(-3, END)
        spans.append((draw.randrange(lanes), start, start + draw.randint(0, 30)))
    found = walked(waits, born, spans)
    for number, (lane, start, end) in enumerate(spans):
        pieces = [piece[1:] for piece in found if piece[0] == number]
        assert sum(e - b for b, e, *_ in pieces) == end - start
        assert [b for b, *_ in pieces] == [start, *[e for _, e, *_ in pieces]][: len(pieces)]
        for begin, stop, of, wait in pieces:
            assert begin < stop
            for moment in range(begin, stop):
                assert (of, wait) == at(moment, lane, waits, born)


def test_a_chain_goes_on_in_the_thread_that_is_waited_for():
    waits = [(0, 10, 50, 1), (1, 5, 20, -1), (1, 30, 40, 2), (2, 0, 35, -1)]
    assert walked(waits, [0, 0, 0], [(0, 0, 60)]) == [
        (0, 0, 10, 0, None),
        (0, 10, 20, 1, (1, 5, 20, -1)),
        (0, 20, 30, 1, None),
        (0, 30, 35, 2, (2, 0, 35, -1)),
        (0, 35, 40, 2, None),
        (0, 40, 50, 1, None),
        (0, 50, 60, 0, None),
    ]


def test_running_pieces_are_cut_at_given_times():
    waits = [(0, 10, 20, 1)]
    found = walked(waits, [0, 0], [(0, 0, 30)], cuts=[(0, 0), (0, 5), (0, 12), (1, 15), (0, 30)])
    assert [(b, e, lane) for _, b, e, lane, _ in found] == [
        (0, 5, 0), (5, 10, 0), (10, 15, 1), (15, 20, 1), (20, 30, 0),
    ]  # fmt: skip


def test_threads_that_wait_for_each_other_end():
    waits = [(0, 0, 50, 1), (1, 0, 50, 0)]
    found = walked(waits, [0, 0], [(0, 0, 60)])
    assert [(b, e) for _, b, e, *_ in found] == [(0, 50), (50, 60)]


def test_no_span_and_no_thread():
    assert walked([(0, 0, 5, -1)], [0], [(3, 0, 10), (-1, 0, 10), (0, 5, 5)]) == []
