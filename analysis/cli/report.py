"""`tracer report`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.opening import AsJson, TracePath, open_trace


def report(
    trace: TracePath,
    baseload: Annotated[
        Path | None,
        typer.Option(
            "--baseload", metavar="B", help="Trace of the idle machine, to split energy by."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="WHAT", help="Group by phase, epoch or step, too."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what the kernel did: calls, faults, write-backs, requests, phases, losses.

    Samples and energy, too. --baseload takes what the machine would have used
    anyway, recorded by tracer record --baseload, from the energy of the run.

    [bold]Examples[/bold]

      tracer report run.trace

      tracer report run.trace --baseload idle.trace

      tracer report run.trace --by phase

      tracer report run.trace --json | jq .tables.writeback_reasons
    """
    from analysis.report.by_phase import by_phase
    from analysis.report.tables import all_tables, records
    from analysis.views.devices import notes as devices_notes
    from analysis.views.energy import energy, why_none

    with open_trace(trace) as opened:
        tables = all_tables(opened)
        if by is not None:
            tables["by_phase"] = by_phase(opened, by)
        manifest = opened.manifest
        written = set(tables["block_latency"]["dev"]) if "block_latency" in tables else set()
        notes = devices_notes(manifest, written)
        if baseload is not None or "samples" in opened.tables:
            with contextlib.ExitStack() as stack:
                idle = stack.enter_context(open_trace(baseload)) if baseload is not None else None
                found = energy(opened, idle)
            if len(found):
                tables["energy"] = found
            else:
                notes.append(why_none(opened))
    if json:
        from tracer.store.manifest import duration_s
        from tracer.store.trace import dump

        typer.echo(
            dump(
                {
                    "trace": str(trace),
                    "complete": manifest["complete"],
                    "duration_s": duration_s(manifest),
                    "targets": manifest["targets"],
                    "loss": manifest["loss"],
                    "own_cost": manifest["own_cost"],
                    "vm": manifest["vm"],
                    "notes": notes,
                    "tables": {name: records(frame) for name, frame in tables.items()},
                }
            )
        )
        return
    from analysis.report.text import print_report

    print_report(str(trace), manifest, tables, notes)
