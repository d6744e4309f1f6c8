"""Waits around steps, some neighbouring steps at a time: a recording may have millions of waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.views.cuts import Cuts
from tracer.analysis.views.stretches import Ints
from tracer.analysis.views.threads import of_targets
from tracer.analysis.views.waiting.chain_walk import SpansOfLanes, WaitsOfLanes
from tracer.store.trace import Trace

_MOST = 1 << 18
_NEVER = 1 << 62

# `wait_rows` is nearly in order of time, so a condition on it spares reading most of its blocks.
_ROWS = f"""
SELECT life::INTEGER - 1 AS lane, ts AS "begin",
    coalesce(try_cast(ts::HUGEINT + dur_ns AS BIGINT), {_NEVER}) AS "end",
    if(kind IN {{followed}}, coalesce(by_life, 0), 0)::INTEGER AS "by",
    row, kind, detail, call, by_tid, by_life, certainty, owner
FROM wait_rows WHERE life IS NOT NULL AND ts >= {{since}} AND ts < {{until}}
"""


@dataclass(frozen=True)
class Window:
    """Neighbouring spans, with all waits that may lie in their time."""

    first: int
    """Number of the first span."""
    spans: SpansOfLanes
    waits: WaitsOfLanes
    rows: pa.Table
    """Rows of the table `wait_rows`, one for each of `waits`."""


def windows(
    trace: Trace, spans: SpansOfLanes, followed: tuple[str, ...], marks: Cuts, most: int = _MOST
) -> Iterator[Window]:
    """Yields all spans, which are in order of their begins, in windows.

    About `most` waits begin in a window; more if one span has more.

    A wait of a kind in `followed` is followed into the thread that it waits for, if that is a
    target's. A wait of unknown length lasts until the thread's next one, or the next one of its
    `marks`, at most: a thread that marks a phase runs. Other queries may run meanwhile. Needs the
    view waits.
    """
    threads = trace.arrow(
        f"SELECT coalesce(started, begun) AS born, {of_targets(trace)} AS followed FROM threads"
        " ORDER BY life"
    )
    born = threads["born"].to_numpy()
    targets = threads["followed"].to_numpy()
    found = trace.arrow(f"SELECT ts FROM wait_parts WHERE rowid % {most} = 0 ORDER BY ts")
    borders = found["ts"].to_numpy()
    group = np.searchsorted(borders, spans.begin, "right")
    bounds = [*(np.flatnonzero(group[1:] != group[:-1]) + 1), len(group)] if len(group) else []
    query = _ROWS.replace("{followed}", str(followed))
    rows = trace.arrow(query.format(since=0, until=0))
    upto = -_NEVER
    for first, last in zip([0, *bounds[:-1]], bounds, strict=False):
        some = spans.part(first, last)
        begin, end = int(some.begin[0]), int(some.end.max())
        rows = _reaching(rows, min(upto, begin))
        for edge in (*borders[(borders > upto) & (borders < begin)], begin, end):
            if edge > upto:
                more = query.format(since=upto, until=edge)
                rows = _in_order(pa.concat_tables([rows, trace.arrow(more)]))
                upto = int(edge)
            if edge <= begin:
                rows = _reaching(rows, int(edge))
        yield Window(int(first), some, _waits(rows, born, targets, marks), rows)


def _in_order(rows: pa.Table) -> pa.Table:
    """Returns rows in order of lanes, and of time in each lane."""
    row, begin, lane = (rows[name].to_numpy() for name in ("row", "begin", "lane"))
    short = lane.astype(np.min_scalar_type(int(lane.max(initial=0))))  # sorts in one pass
    return rows.combine_chunks().take(pa.array(np.lexsort((row, begin, short))))


def _reaching(rows: pa.Table, begin: int) -> pa.Table:
    """Returns the waits that may last until `begin`.

    A wait that began before reaches so far only if it is its thread's last one.
    """
    lane, began = (rows[name].to_numpy() for name in ("lane", "begin"))
    reaches = np.ones(len(lane), np.bool_)
    reaches[:-1] = (lane[1:] != lane[:-1]) | (began[1:] >= begin)
    return rows.filter(pa.array(reaches | (began >= begin)))


def _waits(rows: pa.Table, born: Ints, targets: NDArray[np.bool_], marks: Cuts) -> WaitsOfLanes:
    lane, began, ended, life = (rows[name].to_numpy() for name in ("lane", "begin", "end", "by"))
    following = np.full(len(began), _NEVER)
    following[:-1] = np.where(lane[1:] == lane[:-1], began[1:], _NEVER)
    unknown = np.flatnonzero(ended == _NEVER)
    until = marks.following(lane[unknown].astype(np.int64), began[unknown], _NEVER)
    following[unknown] = np.minimum(following[unknown], until)
    follows = (life > 0) & targets[np.maximum(life, 1) - 1]
    return WaitsOfLanes(
        np.searchsorted(lane, np.arange(len(born) + 1)),
        began,
        np.maximum(began, np.minimum(ended, following)),
        np.where(follows, life - 1, -1).astype(np.int32),
        born,
    )
