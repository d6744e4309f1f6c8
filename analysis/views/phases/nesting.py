"""Nested phases of a thread: the innermost phase at each time, and the steps within each phase.

Spans are arrays of equal length, ordered by lane (a thread's number), start, and latest end first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled, read_only

Ints = NDArray[np.int64]
Shorts = NDArray[np.int32]

NEVER = 2**63 - 1
DEEPEST = 64
"""Number of enclosing phases, the innermost ones, that `numbers_within` considers for a span."""


def cut(lane: Ints, start: Ints, end: Ints, stage: Shorts) -> tuple[Shorts, Ints, Shorts, Shorts]:
    """Cuts each lane's time where its innermost span changes.

    `stage` is a span's own stage, or -1. Returns four arrays: lane and ts of each cut, the span
    that is innermost from then on (-1: none) and its stage (its own, or that of the nearest span
    around it with a stage). The end of a span that never ends is `NEVER`.
    """
    room = 2 * len(lane)
    out_lane, out_span, out_stage = (np.empty(room, np.int32) for _ in range(3))
    out_ts = np.empty(room, np.int64)
    cuts = _cut(
        read_only(lane), read_only(start), read_only(end), read_only(stage),
        out_lane, out_ts, out_span, out_stage,
    )  # fmt: skip
    return out_lane[:cuts], out_ts[:cuts], out_span[:cuts], out_stage[:cuts]


@compiled
def _cut(
    lane: Ints,
    start: Ints,
    end: Ints,
    stage: Shorts,
    out_lane: Shorts,
    out_ts: Ints,
    out_span: Shorts,
    out_stage: Shorts,
) -> int:
    stack = np.empty(len(lane), np.int64)
    within = np.empty(len(lane), np.int32)  # the stage that a span is in
    depth = cuts = 0
    for span in range(len(lane) + 1):
        last = span == len(lane)
        new_lane = last or (span > 0 and lane[span] != lane[span - 1])
        now = np.int64(NEVER - 1) if new_lane else start[span]
        while depth and end[stack[depth - 1]] <= now:
            ended = end[stack[depth - 1]]
            of = lane[stack[depth - 1]]
            # A span around it may have ended before it.
            while depth and end[stack[depth - 1]] <= ended:
                depth -= 1
            inner = stack[depth - 1] if depth else -1
            if not (cuts and out_lane[cuts - 1] == of and out_ts[cuts - 1] == ended):
                cuts += 1
            out_lane[cuts - 1], out_ts[cuts - 1] = of, ended
            out_span[cuts - 1] = inner
            out_stage[cuts - 1] = within[inner] if inner >= 0 else -1
        if last:
            break
        if new_lane:
            depth = 0
        within[span] = stage[span]
        if stage[span] < 0 and depth:
            within[span] = within[stack[depth - 1]]
        stack[depth] = span
        depth += 1
        if not (cuts and out_lane[cuts - 1] == lane[span] and out_ts[cuts - 1] == start[span]):
            cuts += 1
        out_lane[cuts - 1], out_ts[cuts - 1] = lane[span], start[span]
        out_span[cuts - 1], out_stage[cuts - 1] = span, within[span]
    return cuts


def directly_around(lane: Ints, end: Ints) -> Shorts:
    """Returns the span directly around each span: the last one before it that ends no earlier.

    -1: no span of its lane is around it. Spans that overlap without nesting do not count.
    """
    around = np.empty(len(lane), np.int32)
    _directly_around(read_only(lane), read_only(end), around)
    return around


@compiled
def _directly_around(lane: Ints, end: Ints, around: Shorts) -> None:
    stack = np.empty(len(lane), np.int64)
    depth = 0
    for span in range(len(lane)):
        if span and lane[span] != lane[span - 1]:
            depth = 0
        # A span that ends earlier is around no later one that this span is not around, too.
        while depth and end[stack[depth - 1]] < end[span]:
            depth -= 1
        around[span] = stack[depth - 1] if depth else -1
        stack[depth] = span
        depth += 1


def numbers_within(lane: Ints, start: Ints, end: Ints, name: Ints, number: Ints) -> Ints:
    """Returns the numbers that occur in phases of each name, or in phases nested within them.

    `number` is a code for a span's epoch and step; -1: it has neither. Returns rows of lane, name
    and number. Each combination occurs at least once; immediate repetitions are left out.
    """
    names = int(name.max()) + 1 if len(name) else 0
    rows = np.empty((0, 3), np.int64)
    for _ in ("counted", "written"):
        last = np.full((names, 2), -1, np.int64)
        found = _numbers(lane, start, end, name, number, last, rows)
        if found > len(rows):
            rows = np.empty((found, 3), np.int64)
    return rows


@compiled
def _numbers(
    lane: Ints, start: Ints, end: Ints, name: Ints, number: Ints, last: Ints, rows: Ints
) -> int:
    stack = np.empty(len(lane), np.int64)
    depth = found = 0
    for span in range(len(lane)):
        if span and lane[span] != lane[span - 1]:
            depth = 0
        while depth and end[stack[depth - 1]] <= start[span]:
            depth -= 1
        stack[depth] = span
        depth += 1
        if number[span] < 0:
            continue
        for level in range(max(0, depth - DEEPEST), depth):
            around = stack[level]
            if end[around] <= start[span] and around != span:
                continue
            if last[name[around], 0] == number[span] and last[name[around], 1] == lane[span]:
                continue
            last[name[around], 0], last[name[around], 1] = number[span], lane[span]
            if found < len(rows):
                rows[found, 0], rows[found, 1], rows[found, 2] = (
                    lane[span],
                    name[around],
                    number[span],
                )
            found += 1
    return found
