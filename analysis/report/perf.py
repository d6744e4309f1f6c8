"""Report tables from data that perf recorded: counters, and call graphs of events."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.report.table import Column, ReportTable
from tracer.analysis.views.call_graphs import call_chains as call_chains_view
from tracer.analysis.views.call_graphs import path
from tracer.store.trace import Trace

_MOST_STACKS = 50
_MOST = (1 << 63) - 1
"""The largest count: the sums of a hostile trace may be larger."""
_DEV = "device, MAJOR:MINOR; null: the event names none"


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
    """Returns call paths to each `--callgraph` event on each device, most frequent first
    (Park & Bahn 2023, Table 6).

    `CALL_CHAINS` has the columns.
    """
    return summed(trace, call_chains_view(trace))


def summed(trace: Trace, rows: str) -> pd.DataFrame:
    """Returns the call paths of `rows`, rows of the view `call_chains`, with its columns."""
    frame = trace.sql(
        f"""
        WITH kept AS (SELECT * FROM {rows}), names AS (
            SELECT event, dev, chain, comm, sum(count) AS n FROM kept GROUP BY ALL
        ), named AS (
            SELECT event, dev, chain, arg_max(comm, (n, comm)) AS comm FROM names GROUP BY ALL
        ), stacks AS (
            SELECT event, dev, chain, stack, sum(count) AS n,
                CASE WHEN count(operation) > 0
                    THEN coalesce(sum(count) FILTER (operation = 'write'), 0) END AS writes
            FROM kept GROUP BY ALL
        ), chains AS (
            SELECT event, dev, chain, sum(n) AS n, sum(writes) AS writes, count(*) AS stacks,
                arg_max(stack, (n, stack)) AS stack
            FROM stacks GROUP BY ALL
        )
        SELECT c.event, c.dev, c.chain, least(n, {_MOST})::BIGINT AS count,
            n / sum(n) OVER of_device AS share,
            CASE WHEN writes IS NOT NULL THEN least(writes, {_MOST})::BIGINT END AS writes,
            writes / nullif(sum(writes) OVER of_device, 0) AS write_share, comm, stacks, stack
        FROM chains c JOIN named m
            ON c.event = m.event AND c.dev IS NOT DISTINCT FROM m.dev AND c.chain = m.chain
        WINDOW of_device AS (PARTITION BY c.event, c.dev)
        ORDER BY c.event, c.dev, count DESC, c.chain
        """
    )
    pairs = zip(frame.pop("stack"), frame["chain"], strict=True)
    frame["path"] = [path(stack, chain) for stack, chain in pairs]
    return frame


def call_graphs(trace: Trace) -> pd.DataFrame:
    """Returns the fifty most frequent stacks of each event on each device, over all threads.

    `CALL_GRAPHS` has the columns.
    """
    view = call_chains_view(trace)
    return trace.sql(
        f"""
        SELECT event, dev, chain, least(sum(count), {_MOST})::BIGINT AS count,
            sum(share) AS share, stack
        FROM {view} v GROUP BY event, dev, chain, stack
        QUALIFY row_number() OVER (PARTITION BY event, dev ORDER BY sum(v.count) DESC, stack)
            <= {_MOST_STACKS}
        ORDER BY event, dev, count DESC, stack
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
        Column("dev", _DEV, "dev", text=True),
        Column("chain", "what the path is for", "chain", text=True),
        Column("count", "events", "n"),
        Column("share", "of all counts of the event on the device", "share"),
        Column("writes", "those of write requests; null: the event names no operation"),
        Column("write_share", "of all writes of the event on the device", "of writes"),
        Column("comm", "most frequent name of the thread", "thread", text=True),
        Column("stacks", "distinct stacks"),
        Column("path", "kernel functions of the most frequent stack, from the chain's own"),
    ),
    needs=("call_graphs",),
    make=call_chains,
)
CALL_GRAPHS = ReportTable(
    "call_graphs",
    f"The {_MOST_STACKS} most frequent stacks of an event on a device (--callgraph)",
    (
        Column("event", "kernel event"),
        Column("dev", _DEV),
        Column("chain", "what the path is for"),
        Column("count", "events"),
        Column("share", "of all counts of the event"),
        Column("stack", "root first, functions joined by ; (kernel functions end in _[k])"),
    ),
    needs=("call_graphs",),
    make=call_graphs,
)
