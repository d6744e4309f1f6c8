"""The system calls that some moments lie in or before, out of a table of any length."""

from __future__ import annotations

from tracer.store.trace import Trace

LATEST = (1 << 63) - 1


def make_calls_before(trace: Trace, moments: str, name: str) -> None:
    """Make the table NAME: the last system call of a thread before each of its `moments`.

    `moments` is a query for tid and ts. Columns: ts (entered), tid, call, returned (ns, the latest
    time there is for a call that did not). An ASOF join with it finds what one with syscalls
    would, but for a few calls at most as many as moments, whatever the trace's length.

    Needs table syscalls, which may be empty.
    """
    _cut(trace, moments, name)
    # Of calls between the same two moments only the last can be the last before the second.
    trace.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE "{name}" AS
        SELECT tid, max(ts) AS ts, arg_max(name, ts) AS call,
            greatest(
                least(max(ts) + coalesce(arg_max_null(dur_ns, ts), {LATEST})::HUGEINT, {LATEST}),
                -{LATEST}
            )::BIGINT AS returned
        FROM syscalls JOIN "{name} lanes" USING (tid)
        GROUP BY tid, {name}_moment(lane, ts)
        """
    )
    trace.execute(f'DROP TABLE "{name} lanes"')


def make_calls_after(trace: Trace, moments: str, name: str) -> None:
    """Make the table NAME: when a thread of `moments` was certainly at something else again.

    `moments` is a query for tid and ts. Columns: tid, ts, next (ns): the thread's next system call
    after ts, or the next moment of its own where that comes first. null: there is neither.

    Needs table syscalls, which may be empty.
    """
    _cut(trace, moments, name)
    trace.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE "{name}" AS
        WITH numbered AS (
            SELECT tid, ts, row_number() OVER (ORDER BY lane, ts) - 1 AS number
            FROM (SELECT DISTINCT tid, lane, ts FROM ({moments}) JOIN "{name} lanes" USING (tid)
                WHERE ts IS NOT NULL)
        ), calls AS (
            SELECT {name}_moment(lane, ts) AS number, min(ts) AS ts
            FROM syscalls JOIN "{name} lanes" USING (tid) GROUP BY 1
        )
        SELECT m.tid, m.ts,
            least(c.ts, lead(m.ts) OVER (PARTITION BY m.tid ORDER BY m.ts)) AS next
        FROM numbered m LEFT JOIN calls c USING (number)
        """
    )
    trace.execute(f'DROP TABLE "{name} lanes"')


def _cut(trace: Trace, moments: str, name: str) -> None:
    """Number the threads of `moments` ("NAME lanes"), and tell the last moment before a time."""
    from analysis.views.cuts import Cuts, define

    trace.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE "{name} lanes" AS
        SELECT tid, row_number() OVER (ORDER BY tid) - 1 AS lane
        FROM (SELECT DISTINCT tid FROM ({moments}))
        """
    )
    cuts = trace.arrow(
        f"""
        SELECT DISTINCT lane, ts FROM ({moments}) JOIN "{name} lanes" USING (tid)
        WHERE ts IS NOT NULL ORDER BY lane, ts
        """
    )
    define(
        trace, f"{name}_moment", Cuts(cuts["lane"].to_numpy(), cuts["ts"].to_numpy()), before=True
    )
