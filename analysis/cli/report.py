"""`tracer report`."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.opening import AsJson, TracePath, open_trace

_SHOWN = 10
"""Findings, where nobody says how many."""


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
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page that opens offline; -: stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    findings: Annotated[
        int | None,
        typer.Option(
            "--findings", metavar="N", min=0, help="So many findings; 10, or all of JSON."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what the kernel did: findings, calls, faults, write-backs, requests, losses.

    Findings come first, what weighs most at the top: sentences with a number.
    The query that gives the number is in --json, for tracer query.

    Samples and energy, too. --baseload takes what the machine would have used
    anyway, recorded by tracer record --baseload, from the energy of the run.

    --html writes all of it as one page, with a timeline that zooms, heat maps
    of write-backs, and tables that sort. It needs nothing but a browser.

    [bold]Examples[/bold]

      tracer report run.trace

      tracer report run.trace --baseload idle.trace

      tracer report run.trace --by phase

      tracer report run.trace --html run.html

      tracer report run.trace --json | jq .tables.writeback_reasons

      tracer report run.trace --json | jq -r '.findings[0].query'
    """
    from analysis.cli.report_page import check_output, write_report_page
    from analysis.findings.catalogue import findings as all_findings
    from analysis.report.by_phase import by_phase
    from analysis.report.tables import all_tables, records
    from analysis.views.devices import notes as devices_notes
    from analysis.views.energy import energy, why_none

    if html is not None:
        check_output(html, force, json)
    with open_trace(trace) as opened:
        found_here = all_findings(opened)[:findings] if findings != 0 else []
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
        if html is not None:
            write_report_page(opened, tables, notes, found_here, html)
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
                    "findings": [asdict(one) for one in found_here],
                    "tables": {name: records(frame) for name, frame in tables.items()},
                }
            )
        )
    if json or html is not None:
        return
    from analysis.report.text import print_report

    shown = found_here[:_SHOWN] if findings is None else found_here
    print_report(str(trace), manifest, tables, notes, shown)
