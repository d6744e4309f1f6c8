"""The table of kernel activity by phase, epoch or step."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.report.table import PASS, Column, ReportTable
from tracer.analysis.views.in_phase import in_phase
from tracer.analysis.views.phases.epoch_passes import has_passes
from tracer.analysis.views.threads import make_threads, of_targets, of_threads
from tracer.analysis.views.writing.whose import MINE, everybody_because
from tracer.probes.errors import UsageError
from tracer.store.trace import Trace

BY = {"phase": ("stage", "phase"), "epoch": ("epoch",), "step": ("epoch", "step")}
"""The values of --by, and the columns that each groups by."""

_PARTS = (
    ("syscalls", {"calls": "count(*)", "call_s": "sum(dur_ns) / 1e9"}, "true"),
    (
        "page_faults",
        {
            "faults": "count(*)",
            "major_faults": "CASE WHEN bool_or(kind != 'unknown') THEN "
            "count(*) FILTER (kind = 'major') END",
        },
        "true",
    ),
    (
        "dirty",
        {"stalls": "count(*)", "stall_s": "sum(pause_ns) / 1e9"},
        "pause_ns > 0",
    ),
    (
        "flushes",
        {
            "flushes": "count(*) FILTER (mine)",
            "flushed_pages": "sum(pages) FILTER (mine)",
            "other_pages": "sum(pages) FILTER (NOT mine)",
        },
        "NOT own AND NOT below",
    ),
)
"""Each table, the metrics computed from it, and the condition of the rows that count."""


def keys_of(by: str) -> tuple[str, ...]:
    """Returns the columns to group by; raises UsageError for an unknown `by`."""
    if by not in BY:
        raise UsageError(f"a report cannot be grouped by {by!r}", f"give one of {', '.join(BY)}")
    return BY[by]


def by_phase(trace: Trace, by: str) -> pd.DataFrame:
    """Returns kernel activity grouped by `by`: phase, epoch or step.

    `BY_PHASE` has the columns; of stage, phase, epoch, pass and step the table has those of `by`,
    and the pass only if a process begins its epochs anew. Null: not recorded.
    `tracer.analysis.views.in_phase` assigns rows to phases. The recorder's own files do not count,
    nor do the copies of pages on devices below others.

    Needs table phases. Raises UsageError for an unknown `by`.
    """
    keys = keys_of(by)
    trace.require("phases")
    known = {"flushes": "block"}
    present = [part for part in _PARTS if known.get(part[0], part[0]) in trace.tables]
    make_threads(trace)
    told = not everybody_because(trace, all_writers=False)
    metrics = [name for _, counted, _ in present for name in counted]
    first = ""
    if "epoch" in keys and has_passes(trace):
        at = keys.index("epoch") + 1
        keys, first = (*keys[:at], "pass", *keys[at:]), "pass, "
    named = ", ".join(keys)
    selects = []
    for table, counted, those in present:
        columns = ", ".join(f"{counted.get(name, 'NULL')} AS {name}" for name in metrics)
        view = in_phase(trace, table)
        if table == "dirty":
            view = of_threads(view, of_targets(trace))
        elif table == "flushes":
            mine = f"coalesce(whose IN {MINE}, false)" if told else "true"
            view = f"(SELECT *, {mine} AS mine FROM {view})"
        selects.append(f"SELECT {named}, {columns} FROM {view} WHERE {those} GROUP BY ALL")
    sums = ", ".join(f"max({name}) AS {name}" for name in metrics)
    order = "coalesce(calls, 0) DESC" if by == "phase" and "calls" in metrics else first + named
    if not selects:
        return pd.DataFrame(
            columns=[*keys, *(name for _, counted, _ in _PARTS for name in counted)]
        )
    rows = " UNION ALL ".join(selects)
    frame = trace.sql(
        f"SELECT * FROM (SELECT {named}, {sums} FROM ({rows}) GROUP BY {named})"
        f" ORDER BY {order}, {named}"
    )
    for table, counted, _ in _PARTS:
        for name in counted:
            if table not in {part[0] for part in present} or (name == "other_pages" and not told):
                frame[name] = None
            elif name not in ("call_s", "stall_s", "major_faults"):
                frame[name] = frame[name].fillna(0).astype("int64")
    return frame


BY_PHASE = ReportTable(
    "by_phase",
    "Kernel activity by phase, epoch or step (--by)",
    (
        Column("stage", "outer phase", "stage", text=True),
        Column("phase", "inner phase", "phase", text=True),
        Column("epoch", "epoch; null: outside of any", "epoch"),
        PASS,
        Column("step", "step; null: outside of any", "step"),
        Column("calls", "system calls of the targets, by the time of entry", "calls"),
        Column("call_s", "time in these calls", "call s"),
        Column("faults", "page faults", "faults"),
        Column("major_faults", "for pages that had to be read; null: not known", "major"),
        Column("stalls", "sleeps of targets that had dirtied pages"),
        Column("stall_s", "time in these sleeps", "stall s"),
        Column("flushes", "page runs written that targets dirtied, in the phase of the dirtier"),
        Column("flushed_pages", "pages in them", "flushed"),
        Column(
            "other_pages",
            "pages written meanwhile that other programs dirtied, or nobody knows who; null: the"
            " trace does not tell whose pages are, and `flushed_pages` has all",
        ),
    ),
    needs=("phases",),
    note="A dash: not recorded, or outside of any phase. Flushed: pages that targets dirtied (all"
    " pages, if the trace does not tell whose they are); `other_pages` of --json has the others.",
)
"""Made by the report's option --by."""
