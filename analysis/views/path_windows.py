"""Waits around steps, some neighbouring steps at a time: a recording may have millions of waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.views.chain_walk import SpansOfLanes, WaitsOfLanes
from tracer.analysis.views.stretches import Ints
from tracer.store.trace import Trace

_MOST = 1 << 19
_NEVER = 1 << 62

# `wait_rows` is in order of time, so a condition on it spares reading most of its blocks.
_ROWS = f"""
SELECT life - 1 AS lane, rowid AS number, ts AS "begin",
    coalesce(try_cast(ts::HUGEINT + dur_ns AS BIGINT), {_NEVER}) AS "end",
    if(kind IN {{followed}}, coalesce(by_life, 0), 0) AS "by",
    row, kind, detail, call, by_tid, by_life, certainty, owner
FROM wait_rows WHERE life IS NOT NULL AND ts >= {{since}} AND ts < {{until}}
"""

_LAST = """
FROM ({rows}) SEMI JOIN (SELECT max(number) AS number FROM ({rows}) GROUP BY lane) USING (number)
ORDER BY number
"""


@dataclass(frozen=True)
class Window:
    """Neighbouring spans, with all waits that may lie in their time."""

    first: int
    """Number of the first span."""
    spans: SpansOfLanes
    waits: WaitsOfLanes
    rows: pa.Table
    """Rows of the table `wait_rows`, which their column `number` counts, in order."""
    place: Ints
    """Place of each wait in `rows`."""


def windows(
    trace: Trace, spans: SpansOfLanes, followed: tuple[str, ...], most: int = _MOST
) -> Iterator[Window]:
    """Yields all spans, which are in order of their begins, in windows.

    At most `most` waits begin in a window; more if one span has more.

    A wait of a kind in `followed` is followed into the thread that it waits for, if that is a
    target's. A wait of unknown length lasts until the thread's next one at most. Other queries may
    run meanwhile. Needs the view waits.
    """
    threads = trace.arrow("SELECT begun, target IS NOT NULL AS followed FROM threads ORDER BY life")
    born = threads["begun"].to_numpy()
    targets = threads["followed"].to_numpy()
    borders = trace.arrow(f"SELECT ts FROM wait_rows WHERE rowid % {most} = 0 ORDER BY ts")
    group = np.searchsorted(borders["ts"].to_numpy(), spans.begin, "right")
    bounds = [*(np.flatnonzero(group[1:] != group[:-1]) + 1), len(group)] if len(group) else []
    rows = _ROWS.replace("{followed}", str(followed))
    held = trace.arrow(rows.format(since=0, until=0))
    upto = -_NEVER
    for first, last in zip([0, *bounds[:-1]], bounds, strict=False):
        some = spans.part(first, last)
        begin, end = int(some.begin[0]), int(some.end.max())
        if upto < begin:
            held = pa.concat_tables(
                [held, trace.arrow(_LAST.format(rows=rows.format(since=upto, until=begin)))]
            )
            upto = begin
        held = _reaching(held, begin, len(born))
        if upto < end:
            held = pa.concat_tables([held, trace.arrow(rows.format(since=upto, until=end))])
            upto = end
        held = held.combine_chunks()
        waits, place = _waits(held, born, targets)
        yield Window(int(first), some, waits, held, place)


def _reaching(rows: pa.Table, begin: int, lanes: int) -> pa.Table:
    """Returns the waits that may last until `begin`.

    A wait that began before reaches so far only if it is its thread's last one.
    """
    early = int(np.searchsorted(rows["begin"].to_numpy(), begin))
    last = np.full(lanes, -1)
    last[rows["lane"].to_numpy()[:early]] = np.arange(early)
    kept = np.sort(last[last >= 0])
    return rows.take(np.append(kept, np.arange(early, rows.num_rows)))


def _waits(rows: pa.Table, born: Ints, targets: NDArray[np.bool_]) -> tuple[WaitsOfLanes, Ints]:
    """Returns the waits in order of lanes, and their places in `rows`."""
    lane = rows["lane"].to_numpy()
    place = np.argsort(lane, kind="stable")
    lane = lane[place]
    began, ended, life = (rows[name].to_numpy()[place] for name in ("begin", "end", "by"))
    following = np.full(len(began), _NEVER)
    following[:-1] = np.where(lane[1:] == lane[:-1], began[1:], _NEVER)
    follows = (life > 0) & targets[np.maximum(life, 1) - 1]
    waits = WaitsOfLanes(
        np.searchsorted(lane, np.arange(len(born) + 1)),
        began,
        np.maximum(began, np.minimum(ended, following)),
        np.where(follows, life - 1, -1).astype(np.int32),
        born,
    )
    return waits, place
