"""A report for a terminal, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.table import Table

from analysis.findings.finding import Finding
from analysis.report.sample_text import print_samples
from analysis.report.tables import records
from analysis.report.together import TRACE
from tracer.cli.output import console, print_table, safe, show
from tracer.sizes import show_size
from tracer.store.own_cost import cost_said

_MOST_ROWS = 15
_MOST_PATHS = 4

_COLUMNS: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "syscalls": (
        "System calls of the targets, by time",
        {
            "name": "call",
            "calls": "calls",
            "errors": "errors",
            "total_s": "total s",
            "mean_us": "mean us",
            "p99_us": "p99 us",
        },
        ("call",),
    ),
    "page_faults": (
        "Page faults by process",
        {
            "pid": "pid",
            "comm": "name",
            "role": "role",
            "faults": "faults",
            "minor": "minor",
            "major": "major",
            "neither": "neither",
            "reads": "read",
            "writes": "write",
            "execs": "exec",
        },
        ("name", "role"),
    ),
    "fault_causes": (
        "Page faults by task, file and function",
        {
            "comm": "task",
            "file": "file",
            "symbol": "function",
            "faults": "faults",
            "major": "major",
            "percent": "%",
        },
        ("task", "file", "function"),
    ),
    "summaries": (
        "Counted in the kernel (--summary)",
        {
            "kind": "kind",
            "name": "name",
            "dev": "dev",
            "count": "n",
            "errors": "errors",
            "total_s": "total s",
            "mean_us": "mean us",
            "mib": "MiB",
        },
        ("kind", "name", "dev"),
    ),
    "writeback_reasons": (
        "Write-backs by reason (writeback_start)",
        {"reason": "reason", "writebacks": "write-backs", "ratio": "ratio"},
        ("reason",),
    ),
    "flushed_pages": (
        "Pages written to devices, by reason",
        {
            "reason": "reason",
            "certainty": "certainty",
            "bios": "bios",
            "pages": "pages",
            "ratio": "ratio",
            "target_pages": "targets'",
            "own_pages": "own",
        },
        ("reason", "certainty"),
    ),
    "writeback_intervals": (
        "Intervals between write-back starts on one device, s",
        {
            "reason": "reason",
            "intervals": "n",
            "mean_s": "mean",
            "std_s": "std",
            "p50_s": "p50",
            "p90_s": "p90",
            "p99_s": "p99",
            "max_s": "max",
        },
        ("reason",),
    ),
    "block_latency": (
        "Block requests: latency in ms, queued to issued and issued to completed",
        {
            "dev": "dev",
            "operation": "op",
            "requests": "requests",
            "mib": "MiB",
            "queue_p50_ms": "queue p50",
            "queue_p99_ms": "p99",
            "service_p50_ms": "service p50",
            "service_p99_ms": "p99",
        },
        ("dev", "op"),
    ),
    "phases": (
        "Phases, and kernel activity during them",
        {
            "name": "phase",
            "count": "n",
            "steps": "steps",
            "total_s": "total s",
            "mean_ms": "mean ms",
            "calls": "calls",
            "faults": "faults",
            "written_pages": "written",
        },
        ("phase",),
    ),
    "step_times": (
        "Time of steps, by part",
        {
            "stage": "stage",
            "part": "part",
            "steps": "steps",
            "mean_ms": "mean ms",
            "p50_ms": "p50 ms",
            "p99_ms": "p99 ms",
            "share": "share",
        },
        ("stage", "part"),
    ),
    "by_phase": (
        "Kernel activity by phase, epoch or step (--by)",
        {
            "stage": "stage",
            "phase": "phase",
            "epoch": "epoch",
            "step": "step",
            "calls": "calls",
            "call_s": "call s",
            "faults": "faults",
            "major_faults": "major",
            "stall_s": "stall s",
            "flushed_pages": "flushed",
        },
        ("stage", "phase"),
    ),
    "call_chains": (
        "Call paths to an event (--callgraph)",
        {
            "event": "event",
            "chain": "chain",
            "count": "n",
            "share": "share",
            "comm": "thread",
            "stacks": "stacks",
        },
        ("event", "chain", "thread"),
    ),
    "energy": (
        "Energy",
        {
            "source": "source",
            "instance": "instance",
            "part": "part",
            "duration_s": "s",
            "energy_j": "J",
            "mean_w": "W",
            "baseload_j": "baseload J",
            "increment_j": "increment J",
            "baseload_share": "share",
        },
        ("source", "instance"),
    ),
    "loss": (
        "Events lost",
        {
            "stream": "stream",
            "from_s": "from s",
            "to_s": "to s",
            "count": "events",
            "cause": "cause",
        },
        ("stream", "cause"),
    ),
}

_NOTES = {
    "energy": "part: contained in another row. share: baseload J divided by J; "
    "the baseload is scaled to the run's time.",
    "page_faults": "neither: the fault failed, or its kind is not known. A dash: not known.",
    "flushed_pages": "pages: of the whole machine; targets': dirtied by targets, alone or with "
    "others; own: the tracer's. certainty: exact (from kernel events) or inferred (from system "
    "calls).",
    "step_times": "compute: forward, backward and optimizer. gpu: measured with CUDA events, "
    "in parallel to the CPU.",
    "phases": "calls, faults: of the phase's own thread; written: pages of the whole machine, "
    "without the tracer's own.",
}


def print_report(
    name: str,
    facts: Mapping[str, Any],
    tables: dict[str, pd.DataFrame],
    notes: list[str],
    findings: Sequence[Finding] = (),
) -> None:
    """Prints losses, notes, findings and every table.

    `facts`: facts of the manifest (`Gathered.facts`).
    """
    out = console()
    out.print(safe(name), style="bold")
    for target in facts["targets"]:
        out.print(safe(target_line(target)))
    duration = facts["duration_s"]
    out.print(f"{show(duration)} s, " + ("complete" if facts["complete"] else "incomplete"))
    loss = tables.get("loss")
    if loss is not None and len(loss):
        out.print(
            f"{facts['loss'].get('events')} events lost in {len(loss)} gaps: "
            "numbers over the gaps are too low.",
            style="red",
        )
    else:
        out.print("0 events lost.")
    cost = facts["own_cost"]
    if cost:
        written = cost.get("bytes_written")
        parts = [*cost_said(cost), *([] if written is None else [f"{show_size(written)} written"])]
        out.print(f"The tracer itself: {'; '.join(parts)}.")
    for note in notes:
        out.print(safe(f"Note: {note}."))
    out.print()
    print_findings([one.sentence for one in findings])
    print_tables(tables)


def target_line(target: Mapping[str, Any]) -> str:
    """Returns the role, name and command of a target in one line."""
    line = " ".join(target.get("command") or [])
    return f"{target.get('role')} {target.get('name')}: {line}"[:160]


def print_tables(tables: Mapping[str, pd.DataFrame]) -> None:
    """Prints every table. A table that lists several traces starts with the trace's name."""
    out = console()
    if "event_counts" in tables:
        _print_counts(tables["event_counts"])
    if "counters" in tables:
        _print_counters(tables["counters"])
    if "samples" in tables:
        print_samples(out, tables["samples"])
    for key, (title, columns, left) in _COLUMNS.items():
        frame = tables.get(key)
        if frame is None or (key == "loss" and frame.empty):
            continue
        if frame.empty:
            out.print(f"{title}: none.\n")
            continue
        if key == "block_latency":
            frame = frame.assign(mib=frame["bytes"] / (1 << 20))
        rows = records(frame)
        note = _NOTES.get(key, "")
        if len(rows) > _MOST_ROWS:
            note = f"{len(rows) - _MOST_ROWS} more rows with --json. {note}"
        columns = {TRACE: TRACE, **columns}
        columns = {column: shown for column, shown in columns.items() if column in rows[0]}
        print_table(
            out,
            title,
            list(columns.values()),
            [[row[c] for c in columns] for row in rows[:_MOST_ROWS]],
            (TRACE, *left),
            note,
        )
        if key == "call_chains":
            _print_paths(rows[:_MOST_PATHS])


def print_findings(sentences: Sequence[str]) -> None:
    """Prints the findings as a numbered list, in the given order."""
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
    out.print("--json has the SQL query of each number.", style="italic")
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
        "Counters of each target (perf stat)",
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
    roles = [c for c in frame.columns[1:] if any(row[c] for row in rows)]
    print_table(
        console(),
        "Events by role of the current thread",
        ["event", *roles],
        [[row["event"].split(":")[-1], *[row[r] for r in roles]] for row in rows],
        left=("event",),
    )
