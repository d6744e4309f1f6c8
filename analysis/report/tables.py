"""The tables of a report: functions that take a trace and return a data frame.

A table whose events were not recorded is absent from the report, not empty or 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracer.analysis.report.block import BLOCK_LATENCY, block_latency
from tracer.analysis.report.by_phase import BY_PHASE
from tracer.analysis.report.calls import SYSCALLS, syscalls
from tracer.analysis.report.faults import FAULT_CAUSES, PAGE_FAULTS, fault_causes, page_faults
from tracer.analysis.report.perf import (
    CALL_CHAINS,
    CALL_GRAPHS,
    COUNTERS,
)
from tracer.analysis.report.phases import PHASES, phases
from tracer.analysis.report.reads import EVICTIONS, READS_BY_EPOCH, READS_BY_FILE
from tracer.analysis.report.samples import SAMPLES
from tracer.analysis.report.step_times import STEP_TIMES
from tracer.analysis.report.summaries import SUMMARIES
from tracer.analysis.report.table import Column, MergedTable, ReportTable
from tracer.analysis.report.waits import WAITS
from tracer.analysis.report.writeback import (
    FLUSHED_PAGES,
    INTERVALS,
    REASONS,
    flushed_pages,
    writeback_interval_quantiles,
    writeback_intervals,
    writeback_reasons,
)
from tracer.analysis.views.threads import make_threads, moment, owns
from tracer.probes.catalogue import PROBES
from tracer.store.trace import Trace

__all__ = [
    "DECLARED",
    "MERGED",
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
    "plain",
    "records",
    "syscalls",
    "writeback_interval_quantiles",
    "writeback_intervals",
    "writeback_reasons",
]

ROLES = ("target", "child", "daemon", "flusher", "journal", "other")


_LABELS = {"page_faults": "if(user, 'user', 'kernel')"}
"""SQL for the event of a row, for tables without a column `event`."""
_SOLE_LABELS = {"syscalls": "enter", "off_cpu": "switch"}
"""The event that a row counts as, for tables whose rows are made of several events."""


def _events_of(trace: Trace) -> pd.DataFrame:
    trace.require("processes")
    make_threads(trace)
    recorded = trace.manifest["capture"].get("formats") or {}
    at = moment(trace)
    parts = []
    for probe in PROBES.values():
        if probe.table.name not in trace.tables or probe.name == "processes":
            continue
        sole = _SOLE_LABELS.get(probe.table.name)
        source = f"'{sole}'" if sole else _LABELS.get(probe.table.name, "event")
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
            if sole in (None, one) and name not in counted:
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

EVENT_COUNTS = MergedTable(
    "event_counts",
    "Events by role of the current thread",
    (
        Column("event", "SYSTEM:EVENT", "event", text=True),
        *(Column(role, f"events while a thread of role {role} ran", role) for role in ROLES),
        Column("total", "all of them; null: the kernel of the recording lacked the event"),
    ),
    needs=("processes",),
    keys=("event", "role"),
    parts=_events_of,
    finish=_events,
)


def event_counts(trace: Trace) -> pd.DataFrame:
    """Returns events by the role of the current thread (Park & Bahn 2023, Table 5).

    `EVENT_COUNTS` has the columns. Needs table processes.
    """
    return EVENT_COUNTS.of(trace)


def loss(trace: Trace) -> pd.DataFrame:
    """Returns the gaps. `LOSS` has the columns."""
    trace.require("loss")
    start = int(trace.manifest["clock"]["start_ns"])
    return trace.sql(
        'SELECT stream, cpu, ("from"::HUGEINT - ?) / 1e9 AS from_s, '
        '("to"::HUGEINT - ?) / 1e9 AS to_s, '
        'count, cause FROM loss ORDER BY "from" NULLS FIRST',
        start,
        start,
    )


LOSS = ReportTable(
    "loss",
    "Losses",
    (
        Column("stream", "which events", "stream", text=True),
        Column("cpu", "CPU; null: all"),
        Column("from_s", "begin of the gap, since the start", "from s"),
        Column("to_s", "end of the gap, since the start", "to s"),
        Column("count", "lost events; null: not known, or none", "events"),
        Column("cause", "why", "cause", text=True),
    ),
    needs=("loss",),
    make=loss,
    note="Counts of lost events over these times are too low. Losses of files, symbols, maps, "
    "descriptors, stacks and samples lack no event.",
)
ENERGY = ReportTable(
    "energy",
    "Energy",
    (
        Column("source", "gpu, jetson, rapl, or total (without parts of others)", "source", True),
        Column("instance", "GPU, rail or domain", "instance", text=True),
        Column("part", "contained in another row", "part"),
        Column("method", "a counter, or power x interval"),
        Column("samples", "how many"),
        Column("duration_s", "from the first sample to the last", "s"),
        Column("longest_s", "longest time between two samples"),
        Column("energy_j", "energy", "J"),
        Column("mean_w", "mean power", "W"),
        Column("baseload_w", "mean power of the idle machine"),
        Column("baseload_j", "energy of the idle machine in the run's time", "baseload J"),
        Column("increment_j", "energy beyond it", "increment J"),
        Column("baseload_share", "baseload J divided by J", "share"),
    ),
    needs=("samples",),
    note="Part: contained in another row. Share: baseload J divided by J; the baseload is scaled to"
    " the run's time.",
)
"""Made if the recording has power, or with the report's option --baseload."""

DECLARED: dict[str, ReportTable] = {
    table.name: table
    for table in (
        *(EVENT_COUNTS, SYSCALLS, PAGE_FAULTS, FAULT_CAUSES, SUMMARIES),
        *(REASONS, FLUSHED_PAGES, INTERVALS, BLOCK_LATENCY),
        *(
            PHASES,
            STEP_TIMES,
            BY_PHASE,
            WAITS,
            READS_BY_EPOCH,
            READS_BY_FILE,
            EVICTIONS,
            COUNTERS,
            CALL_CHAINS,
            CALL_GRAPHS,
            SAMPLES,
            ENERGY,
            LOSS,
        ),
    )
}
"""Every table that a report can have, in its order."""

TABLES = {name: table for name, table in DECLARED.items() if table not in (BY_PHASE, ENERGY)}
"""The tables that every report has if the trace has what they need."""

MERGED = {name: table for name, table in TABLES.items() if isinstance(table, MergedTable)}
"""The tables whose parts can be added up over traces."""


def all_tables(trace: Trace) -> dict[str, pd.DataFrame]:
    """Returns every table that this trace has the data for."""
    return {name: table.of(trace) for name, table in TABLES.items() if table.is_possible(trace)}


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns a frame as plain rows, with None for missing values.

    Values are as `plain` returns them.
    """
    there = frame.astype(object).where(frame.notna(), None)
    return [
        {str(name): plain(value) for name, value in row.items()}
        for row in there.to_dict(orient="records")
    ]


def plain(value: Any) -> Any:
    """Returns a value as number, string, boolean, None, or a list or object of these.

    Any other value of a query (a date, bytes) becomes a string.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic() | np.ndarray():
            return plain(value.tolist())
        case list() | tuple():
            return [plain(one) for one in value]
        case dict():
            return {str(name): plain(one) for name, one in value.items()}
        case bytes() | bytearray():
            return value.decode("utf-8", "backslashreplace")
    return str(value)
