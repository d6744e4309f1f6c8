"""`tracer report`."""

from __future__ import annotations

import typer

from tracer.cli.opening import AsJson, TracePath, open_trace


def report(trace: TracePath, json: AsJson = False) -> None:
    """Show what the kernel did: calls, faults, write-backs, requests, phases, losses.

    [bold]Examples[/bold]

      tracer report run.trace

      tracer report run.trace --json | jq .tables.writeback_reasons
    """
    from analysis.report.tables import all_tables, records
    from analysis.views.devices import notes as devices_notes

    with open_trace(trace) as opened:
        tables = all_tables(opened)
        manifest = opened.manifest
        written = set(tables["block_latency"]["dev"]) if "block_latency" in tables else set()
        notes = devices_notes(manifest, written)
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
