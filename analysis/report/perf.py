"""Report tables from data that perf recorded: counters, and call graphs of events."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.report.table import Column, ReportTable
from tracer.analysis.views.call_graphs import call_chains as call_chains_view
from tracer.analysis.views.call_graphs import path
from tracer.store.trace import Trace

_MOST_STACKS = 50


def counters(trace: Trace) -> pd.DataFrame:
    """Returns `perf stat` counts in each target's context (Park & Bahn 2023, Table 5).

    `COUNTERS` has the columns.
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

    `CALL_CHAINS` has the columns.
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

    `CALL_GRAPHS` has the columns.
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


COUNTERS = ReportTable(
    "counters",
    "Counters of each target (perf stat)",
    (
        Column("event", "what was counted"),
        Column("target", "in whose context"),
        Column("value", "null: not counted, or not supported by this machine"),
        Column("unit", "its unit"),
        Column("state", "why there is no value"),
        Column("running_share", "of the time in which it should count; perf scales the value up"),
    ),
    needs=("counters",),
    make=counters,
)
CALL_CHAINS = ReportTable(
    "call_chains",
    "Call paths to an event (--callgraph)",
    (
        Column("event", "kernel event", "event", text=True),
        Column("chain", "what the path is for", "chain", text=True),
        Column("count", "events", "n"),
        Column("share", "of all counts of the event", "share"),
        Column("comm", "most frequent name of the thread", "thread", text=True),
        Column("stacks", "distinct stacks", "stacks"),
        Column("path", "kernel functions of the most frequent stack, from the chain's own"),
    ),
    needs=("call_graphs",),
    make=call_chains,
)
CALL_GRAPHS = ReportTable(
    "call_graphs",
    f"The {_MOST_STACKS} most frequent stacks of an event (--callgraph)",
    (
        Column("event", "kernel event"),
        Column("chain", "what the path is for"),
        Column("count", "events"),
        Column("share", "of all counts of the event"),
        Column("stack", "root first, functions joined by ; (kernel functions end in _[k])"),
    ),
    needs=("call_graphs",),
    make=call_graphs,
)
