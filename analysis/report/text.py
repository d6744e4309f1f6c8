"""A report for a terminal, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.table import Table

from tracer.analysis.findings.finding import Finding
from tracer.analysis.report.lost import gaps_of, of_events
from tracer.analysis.report.perf import COUNTERS
from tracer.analysis.report.sample_text import print_samples
from tracer.analysis.report.table import Column
from tracer.analysis.report.tables import DECLARED, EVENT_COUNTS, records
from tracer.analysis.report.together import TRACE
from tracer.cli.output import console, print_table, safe, show
from tracer.digits import counted
from tracer.probes.text import shortened
from tracer.sizes import show_size
from tracer.store.own_cost import cost_said

_MOST_ROWS = 15
_MOST_PATHS = 4
_MOST_CHARACTERS = 160
"""Most characters of the line of a target."""
_BY_HAND = ("event_counts", "counters", "samples")
"""Tables that the terminal shows in another form."""


def print_report(
    name: str,
    facts: Mapping[str, Any],
    tables: dict[str, pd.DataFrame],
    notes: list[str],
    findings: Sequence[Finding] = (),
    left_out: int = 0,
) -> None:
    """Prints losses, notes, findings and every table.

    `facts`: facts of the manifest (`Gathered.facts`). `left_out`: number of other findings.
    """
    out = console()
    out.print(safe(name), style="bold")
    for target in facts["targets"]:
        out.print(safe(target_line(target)))
    duration = facts["duration_s"]
    out.print(f"{show(duration)} s, " + ("complete" if facts["complete"] else "incomplete"))
    loss = tables.get("loss")
    gaps, lost = gaps_of(facts["loss"], loss), facts["loss"].get("events")
    if gaps or lost:
        many = show(lost) if lost else "An unknown number of"
        out.print(
            f"{many} {_noun('event', lost)} lost in {show(gaps)} {_noun('gap', gaps)}:"
            " numbers over the gaps are too low.",
            style="red",
        )
        if loss is None:
            out.print("The table of losses is missing: the times of the gaps are not known.")
    elif not facts["without_events"]:
        known = "It is not known whether events were lost." if gaps is None else "0 events lost."
        out.print(known)
    if loss is not None and len(loss) > len(of_events(loss)):
        out.print("Some names, stacks or samples are missing: see the last table.")
    cost = facts["own_cost"]
    if cost:
        written = cost.get("bytes_written")
        parts = [*cost_said(cost), *([] if written is None else [f"{show_size(written)} written"])]
        out.print(f"The tracer itself: {'; '.join(parts)}.")
    for note in notes:
        out.print(safe(f"Note: {note}."))
    out.print()
    print_findings([one.sentence for one in findings], left_out)
    print_tables(tables)


def _noun(noun: str, number: int | None) -> str:
    return noun if number == 1 else f"{noun}s"


def target_line(target: Mapping[str, Any]) -> str:
    """Returns the role, the name and, if it is known, the command of a target in one line."""
    line = " ".join(target.get("command") or [])
    called = f"{target.get('role')} {target.get('name')}"
    return shortened(f"{called}: {line}" if line else called, _MOST_CHARACTERS)


def print_tables(tables: Mapping[str, pd.DataFrame]) -> None:
    """Prints every table. A table that lists several traces starts with the trace's name."""
    out = console()
    if "event_counts" in tables:
        _print_counts(tables["event_counts"])
    if "counters" in tables:
        _print_counters(tables["counters"])
    if "samples" in tables:
        print_samples(out, tables["samples"])
    for key, table in DECLARED.items():
        frame = tables.get(key)
        if frame is None or key in _BY_HAND or (key == "loss" and frame.empty):
            continue
        columns = [column for column in table.columns if column.heading and column.name in frame]
        if any(column.rare for column in columns):
            columns = [column for column in columns if not column.gives_way]
        if not columns:
            continue
        if frame.empty:
            out.print(f"{table.title}: none.\n")
            continue
        rows = records(frame)
        note = table.note
        if len(rows) > _MOST_ROWS:
            note = f"{counted(len(rows) - _MOST_ROWS, 'more row')} with --json. {note}"
        if TRACE in frame:
            columns = [Column(TRACE, "", TRACE, text=True), *columns]
        print_table(
            out,
            table.title,
            [column.heading for column in columns],
            [[_shown(row[column.name], column) for column in columns] for row in rows[:_MOST_ROWS]],
            [column.heading for column in columns if column.text],
            note,
        )
        if key == "call_chains":
            _print_paths(rows[:_MOST_PATHS])


def _shown(value: Any, column: Column) -> Any:
    return value if value is None or column.factor == 1 else value * column.factor


def print_findings(sentences: Sequence[str], left_out: int = 0) -> None:
    """Prints the findings as a numbered list, in the given order, and how many are left out."""
    if not sentences:
        return
    out = console()
    out.print("Findings", style="bold")
    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_column(justify="right", no_wrap=True)
    made.add_column(overflow="fold")
    for number, sentence in enumerate(sentences, 1):
        made.add_row(f"{number}.", safe(sentence))
    out.print(made)
    more = f"{left_out} more with --findings {len(sentences) + left_out}. " if left_out else ""
    out.print(f"{more}--json has the SQL query of each number.", style="italic")
    out.print()


def _print_counters(frame: pd.DataFrame) -> None:
    """Prints counters, one column per target. A missing value is replaced by its state."""
    targets = list(dict.fromkeys(frame["target"]))
    keys = [key for key in (TRACE, "event", "unit") if key in frame]
    cells: dict[tuple[str, ...], dict[str, str | int]] = {}
    for row in records(frame):
        shown = row["state"] if row["value"] is None else row["value"]
        cells.setdefault(tuple(row[key] for key in keys), {})[row["target"]] = shown
    print_table(
        console(),
        COUNTERS.title,
        [*keys, *targets],
        [[*of_row, *map(of.get, targets)] for of_row, of in cells.items()],
        left=keys,
    )


def _print_paths(rows: list[dict[str, Any]]) -> None:
    """Prints the most frequent kernel path of each chain, from its identifying function."""
    out = console()
    for row in rows:
        out.print(safe(f"{row['event'].split(':')[-1]}, {row['chain']}:"), style="italic")
        out.print(safe(f"    {row['path'] or 'no kernel function'}"))
    out.print()


def _print_counts(frame: pd.DataFrame) -> None:
    """Prints events by role, without roles that have no events."""
    rows = [row for row in records(frame) if row["total"]]
    if not rows:
        return
    roles = [c for c in frame.columns[1:] if any(row[c] for row in rows)]
    print_table(
        console(),
        EVENT_COUNTS.title,
        ["event", *roles],
        [[row["event"].split(":")[-1], *[row[r] for r in roles]] for row in rows],
        left=("event",),
    )
