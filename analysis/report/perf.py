"""Report tables from data that perf recorded: counters, and call graphs of events."""

from __future__ import annotations

import pandas as pd

from analysis.views.call_graphs import call_chains as call_chains_view
from analysis.views.call_graphs import path
from tracer.store.trace import Trace

_MOST_STACKS = 50


def counters(trace: Trace) -> pd.DataFrame:
    """Returns `perf stat` counts in each target's context (Park & Bahn 2023, Table 5).

    Columns: event, target, value (null: not counted, or not supported by this machine), unit,
    state, running_share (share of the enabled time in which the counter ran; perf scales the
    value up if it is below 1).
    """
    trace.require("counters")
    return trace.sql(
        """
        SELECT event, target, value, unit, state, running_ns / nullif(enabled_ns, 0)
            AS running_share
        FROM counters
        """
    )


def call_chains(trace: Trace) -> pd.DataFrame:
    """Returns call paths to each `--callgraph` event, most frequent first
    (Park & Bahn 2023, Table 6).

    Columns: event, chain, count, share (of all counts of the event), comm (the most
    frequent thread name), stacks (distinct), path (kernel functions of the most frequent stack,
    starting at the function that identifies the chain).
    """
    view = call_chains_view(trace)
    frame = trace.sql(
        f"""
        WITH names AS (
            SELECT event, chain, comm, sum(count) AS n FROM {view} GROUP BY ALL
        ), stacks AS (
            SELECT event, chain, stack, sum(count) AS n FROM {view} GROUP BY ALL
        )
        SELECT s.event, s.chain, least(sum(s.n), 9223372036854775807)::BIGINT AS count,
            sum(s.n) / sum(sum(s.n)) OVER (PARTITION BY s.event) AS share,
            (SELECT arg_max(comm, (n, comm)) FROM names
             WHERE names.event = s.event AND names.chain = s.chain) AS comm,
            count(*) AS stacks, arg_max(stack, (n, stack)) AS stack
        FROM stacks s GROUP BY s.event, s.chain ORDER BY s.event, count DESC, s.chain
        """
    )
    pairs = zip(frame.pop("stack"), frame["chain"], strict=True)
    frame["path"] = [path(stack, chain) for stack, chain in pairs]
    return frame


def call_graphs(trace: Trace) -> pd.DataFrame:
    """Returns the fifty most frequent stacks of each event, over all threads.

    Columns: event, chain, count, share (of all counts of the event), stack (root first, functions
    joined by ;, kernel functions end in _[k]).
    """
    view = call_chains_view(trace)
    return trace.sql(
        f"""
        SELECT event, chain, least(sum(count), 9223372036854775807)::BIGINT AS count,
            sum(share) AS share, stack
        FROM {view} v GROUP BY event, chain, stack
        QUALIFY row_number() OVER (PARTITION BY event ORDER BY sum(v.count) DESC, stack)
            <= {_MOST_STACKS}
        ORDER BY event, count DESC, stack
        """
    )
