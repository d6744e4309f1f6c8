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
