"""Waits around steps, some neighbouring steps at a time: a recording may have millions of waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracer.analysis.views.chain_walk import SpansOfLanes, WaitsOfLanes
from tracer.analysis.views.stretches import Ints
from tracer.store.trace import Trace

_MOST = 1 << 19
_NEVER = 1 << 62

_ROWS = f"""
SELECT life - 1 AS lane, rowid AS number, ts AS "begin",
    coalesce(try_cast(ts::HUGEINT + dur_ns AS BIGINT), {_NEVER}) AS "end",
    if(kind IN {{followed}}, coalesce(by_life, 0), 0) AS by_life
FROM wait_rows WHERE life IS NOT NULL AND ts >= {{since}} AND ts < {{until}}
"""

# A wait that began before a window reaches into it only if it is its thread's last one.
_BEFORE = """
SELECT lane, max(number) AS number, arg_max("begin", number) AS "begin",
    arg_max("end", number) AS "end", arg_max(by_life, number) AS by_life
FROM (FROM path_before UNION ALL {rows}) GROUP BY lane
"""

_WAITS = "FROM (FROM path_before UNION ALL {rows}) ORDER BY lane, number"


@dataclass(frozen=True)
class Window:
    """Neighbouring spans, with all waits that may lie in their time."""

    first: int
    """Number of the first span."""
    spans: SpansOfLanes
    waits: WaitsOfLanes
    number: Ints
    """Row of each wait in the table `wait_rows`."""


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
    before = trace.arrow(f"{rows.format(since=0, until=0)} LIMIT 0")
    since = -_NEVER
    for first, last in zip([0, *bounds[:-1]], bounds, strict=False):
        some = spans.part(first, last)
        begin, end = int(some.begin[0]), int(some.end.max())
        with trace.lent("path_before", before):
            before = trace.arrow(_BEFORE.format(rows=rows.format(since=since, until=begin)))
        with trace.lent("path_before", before):
            found = trace.arrow(_WAITS.format(rows=rows.format(since=begin, until=end)))
        lane, began, ended, life = (
            found[name].to_numpy() for name in ("lane", "begin", "end", "by_life")
        )
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
        yield Window(int(first), some, waits, found["number"].to_numpy())
        since = begin
