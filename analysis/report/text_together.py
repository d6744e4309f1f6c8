"""The report of many traces for a terminal, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from tracer.analysis.findings.finding import Finding
from tracer.analysis.report.lost import gaps_of
from tracer.analysis.report.text import print_findings, print_tables, target_line
from tracer.analysis.report.together import TRACE, Together
from tracer.cli.output import console, print_table, safe

_MOST_TRACES = 30
_LEFT_TO_JSON = ("samples",)
"""Tables that are too long for a report of many traces."""


def print_together(
    found: Together, findings: Sequence[tuple[str, Finding]], left_out: int = 0
) -> None:
    """Prints the traces, losses, notes, findings, and the tables over all traces.

    `left_out`: number of other findings.
    """
    out = console()
    lossy = _gaps(found)
    rows = []
    for name, facts in list(found.traces.items())[:_MOST_TRACES]:
        targets = ", ".join(target_line(target) for target in facts["targets"])
        state = "complete" if facts["complete"] else "incomplete"
        lost = facts["loss"].get("events")
        if not lost and (facts["without_events"] or lossy[name] != 0):
            lost = None
        rows.append([name, targets, facts["duration_s"], lost, state])
    more = len(found.traces) - _MOST_TRACES
    print_table(
        out,
        f"{len(found.traces)} traces",
        [TRACE, "target", "s", "lost", "state"],
        rows,
        left=(TRACE, "target", "state"),
        note=f"{more} more with --json." if more > 0 else "",
    )
    if many := sum(1 for gaps in lossy.values() if gaps):
        out.print(
            f"Events were lost in {many} of them: numbers from these traces are too low.",
            style="red",
        )
    logged = [name for name, facts in found.traces.items() if not facts["without_events"]]
    if unknown := sum(1 for name in logged if lossy[name] is None):
        out.print(f"It is not known whether events were lost in {unknown} of them.")
    elif logged and not many:
        out.print("0 events lost.")
    for note in found.notes:
        out.print(safe(f"Note: {note}."))
    if any(key in found.tables for key in _LEFT_TO_JSON):
        out.print("--json has the samples of each trace.")
    out.print()
    print_findings([f"{name}: {one.sentence}" for name, one in findings], left_out)
    print_tables({key: made for key, made in found.tables.items() if key not in _LEFT_TO_JSON})


def _gaps(found: Together) -> dict[str, int | None]:
    """Returns the number of gaps of each trace that lack events; None: not known."""
    frame = found.tables.get("loss")
    having = found.of.get("loss", found.traces) if frame is not None else ()
    return {
        name: gaps_of(
            facts["loss"],
            frame[frame[TRACE] == name] if frame is not None and name in having else None,
        )
        for name, facts in found.traces.items()
    }
