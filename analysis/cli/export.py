"""`tracer export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.main import one_of, say, verb, written_path
from tracer.cli.opening import TracePath, open_trace


def _lists() -> dict[str, str]:
    from tracer.analysis.exchange.exporting import FORMATS

    return {"formats": one_of(FORMATS)}


@verb(lists=_lists)
def export(
    trace: TracePath,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            parser=written_path("an export is a file or a folder"),
            metavar="PATH",
            help="File to write; for csv and parquet, a folder.",
        ),
    ],
    format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format to write: {formats}.")
    ] = "perfetto",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    start: Annotated[
        float | None,
        typer.Option(
            "--from",
            metavar="SECONDS",
            help="Leave out events that end before this time since the start of the recording.",
        ),
    ] = None,
    end: Annotated[
        float | None,
        typer.Option(
            "--to",
            metavar="SECONDS",
            help="Leave out events that begin after this time since the start of the recording.",
        ),
    ] = None,
) -> None:
    """Write a trace for other tools: Perfetto's UI, chrome://tracing, spreadsheets, pandas.

    perfetto and chrome show phases, calls, faults, requests, write-backs, samples
    and losses over time. folded has the time in us that threads waited, by
    function of Python and of the kernel if the trace was recorded with --stacks,
    for speedscope.app and flamegraph.pl. csv and parquet write one file per
    table, also for requests, flushes and steps. In a CSV, a name that a
    spreadsheet would take for a formula (=...) gets a leading apostrophe.

    [bold]Examples[/bold]

      tracer export run.trace -o run.pftrace

      tracer export run.trace --format chrome -o run.json.gz --from 10 --to 12

      tracer export run.trace --format folded -o waits.folded

      tracer export run.trace --format parquet -o tables
    """
    from tracer.analysis.exchange.exporting import export as export_trace
    from tracer.store.files import explained

    with open_trace(trace) as opened, explained(output):
        said = export_trace(opened, format, output, force, start, end)
    say(f"{output}: " + ", ".join(f"{n} {what}" for what, n in said.items()))
