"""The tables of a report: functions that take a trace and return a data frame.

A table whose events were not recorded is absent from the report, not empty or 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from analysis.report.block import BLOCK_LATENCY, block_latency
from analysis.report.calls import SYSCALLS, syscalls
from analysis.report.faults import FAULT_CAUSES, PAGE_FAULTS, fault_causes, page_faults
from analysis.report.mergeable import Mergeable
from analysis.report.perf import call_chains, call_graphs, counters
from analysis.report.phases import PHASES, phases
from analysis.report.samples import samples
from analysis.report.step_times import STEP_TIMES, step_times
from analysis.report.summaries import SUMMARIES, summaries
from analysis.report.writeback import (
    FLUSHED_PAGES,
    INTERVALS,
    REASONS,
    flushed_pages,
    writeback_interval_quantiles,
    writeback_intervals,
    writeback_reasons,
)
from analysis.views.threads import make_threads, moment, owns
from probes.catalogue import PROBES
from tracer.store.trace import Trace

__all__ = [
    "MERGEABLE",
    "ROLES",
    "TABLES",
    "all_tables",
    "block_latency",
    "event_counts",
    "fault_causes",
    "flushed_pages",
    "loss",
    "page_faults",
    "phases",
    "records",
    "syscalls",
    "writeback_interval_quantiles",
    "writeback_intervals",
    "writeback_reasons",
]

ROLES = ("target", "child", "daemon", "flusher", "journal", "other")


def _events_of(trace: Trace) -> pd.DataFrame:
    trace.require("processes")
    make_threads(trace)
    recorded = trace.manifest["ftrace"].get("formats") or {}
    at = moment(trace)
    parts = []
    for probe in PROBES.values():
        if probe.table.name not in trace.tables or probe.name == "processes":
            continue
        # Each row of these tables counts as one event; a system call counts by its entry.
        label = {"syscalls": "'enter'", "page_faults": "if(user, 'user', 'kernel')"}
        source = label.get(probe.table.name, "event")
        found = trace.sql(
            "SELECT label, coalesce(t.role, 'other') AS role, sum(e.n)::BIGINT AS n FROM"
            f" (SELECT {source} AS label, tid, {at} AS ts, count(*) AS n"
            f' FROM "{probe.table.name}" GROUP BY ALL) e'
            f" LEFT JOIN threads t ON {owns('t', 'e')} GROUP BY ALL"
        )
        names = {}
        for event in probe.events:
            if event.label not in names or event.name in recorded:
                names[event.label] = event.name
        found.insert(0, "event", found["label"].map(names))
        parts.append(found[found["event"].notna()].drop(columns="label"))
        counted = set(found["event"])
        for one, name in names.items():
            if (probe.name, one) != ("syscalls", "exit") and name not in counted:
                # Null: the kernel of the recording lacked the event.
                none = 0 if name in recorded else None
                parts.append(pd.DataFrame([{"event": name, "role": "other", "n": none}]))
    frame = pd.concat(parts) if parts else pd.DataFrame(columns=["event", "role", "n"])
    return frame.astype({"n": "Int64"})


def _events(parts: pd.DataFrame) -> pd.DataFrame:
    wide = parts.groupby(["event", "role"])["n"].sum(min_count=1).unstack("role")
    wide = wide.reindex(index=[e for e in _EVENTS if e in wide.index], columns=ROLES)
    known = wide.notna().any(axis="columns")
    wide = wide.astype("Int64").fillna(0).where(known)
    wide["total"] = wide.sum(axis="columns", min_count=1)
    wide.columns.name = None
    return wide.reset_index()


_EVENTS = list(dict.fromkeys(event.name for probe in PROBES.values() for event in probe.events))

EVENT_COUNTS = Mergeable(("event", "role"), _events_of, _events)


def event_counts(trace: Trace) -> pd.DataFrame:
    """Returns events by the role of the current thread (Park & Bahn 2023, Table 5).

    Columns: event (SYSTEM:EVENT), one column per role, total; null for an event that the kernel
    of the recording lacked. Needs table processes.
    """
    return EVENT_COUNTS.of(trace)


def loss(trace: Trace) -> pd.DataFrame:
    """Returns the gaps.

    Columns: stream, cpu, from_s and to_s (since the start), count (null: unknown), cause.
    """
    trace.require("loss")
    start = int(trace.manifest["clock"]["start_ns"])
    return trace.sql(
        'SELECT stream, cpu, ("from"::HUGEINT - ?) / 1e9 AS from_s, '
        '("to"::HUGEINT - ?) / 1e9 AS to_s, '
        'count, cause FROM loss ORDER BY "from" NULLS FIRST',
        start,
        start,
    )


TABLES: dict[str, tuple[Callable[[Trace], pd.DataFrame], tuple[str, ...]]] = {
    "event_counts": (event_counts, ("processes",)),
    "syscalls": (syscalls, ("syscalls",)),
    "page_faults": (page_faults, ("page_faults", "processes")),
    "fault_causes": (fault_causes, ("page_faults", "processes")),
    "summaries": (summaries, ("summaries",)),
    "writeback_reasons": (writeback_reasons, ("writeback",)),
    "flushed_pages": (flushed_pages, ("block",)),
    "writeback_intervals": (writeback_intervals, ("writeback",)),
    "block_latency": (block_latency, ("block",)),
    "phases": (phases, ("phases",)),
    "step_times": (step_times, ("phases",)),
    "counters": (counters, ("counters",)),
    "call_chains": (call_chains, ("call_graphs",)),
    "call_graphs": (call_graphs, ("call_graphs",)),
    "samples": (samples, ("samples",)),
    "loss": (loss, ("loss",)),
}
"""Every table of the report, with the trace tables that it needs."""

MERGEABLE: dict[str, Mergeable] = {
    "event_counts": EVENT_COUNTS,
    "syscalls": SYSCALLS,
    "page_faults": PAGE_FAULTS,
    "fault_causes": FAULT_CAUSES,
    "summaries": SUMMARIES,
    "writeback_reasons": REASONS,
    "flushed_pages": FLUSHED_PAGES,
    "writeback_intervals": INTERVALS,
    "block_latency": BLOCK_LATENCY,
    "phases": PHASES,
    "step_times": STEP_TIMES,
}
"""The tables of `TABLES` that can be merged over traces: their parts are added up."""


def all_tables(trace: Trace) -> dict[str, pd.DataFrame]:
    """Returns every table that this trace has the data for."""
    return {
        name: make(trace)
        for name, (make, needs) in TABLES.items()
        if all(need in trace.tables for need in needs)
    }


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns a frame as plain rows, with None for missing values.

    Values are numbers, strings, booleans, and lists and objects of these. Any other value of a
    query (a date, bytes) becomes a string.
    """
    there = frame.astype(object).where(frame.notna(), None)
    return [
        {str(name): _plain(value) for name, value in row.items()}
        for row in there.to_dict(orient="records")
    ]


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic() | np.ndarray():
            return _plain(value.tolist())
        case list() | tuple():
            return [_plain(one) for one in value]
        case dict():
            return {str(name): _plain(one) for name, one in value.items()}
        case bytes() | bytearray():
            return value.decode("utf-8", "backslashreplace")
    return str(value)
