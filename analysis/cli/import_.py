"""`tracer import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.main import say, verb


def _formats() -> str:
    from analysis.exchange.formats import FORMATS

    lines = [f"{one.name}: {one.doc}" for one in FORMATS.values()]
    return "[bold]Formats[/bold]\n\n" + "\n\n".join(lines)


@verb(epilog=_formats)
def import_trace(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to import.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR.trace", help="Trace to make.")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="What the file is; guessed where it shows."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the trace -o.")] = False,
) -> None:
    """Make a trace from another tool's file, for reports and what-ifs.

    What the file does not tell is null; tracer info says what was assumed and what was
    not understood.

    [bold]Examples[/bold]

      perf script > run.txt && tracer import run.txt -o run.trace

      tracer import trace.dat -o run.trace

      tracer import sda.blktrace.0 -o run.trace

      tracer import hm_0.csv -o hm_0.trace --format msr-csv
    """
    from analysis.exchange.formats import import_file
    from tracer.store import manifest as manifests
    from tracer.store.files import as_invoking_user

    with as_invoking_user():
        name = import_file(source, output, format, force)
        manifest = manifests.read(output)
    rows = ", ".join(f"{facts['rows']} {table}" for table, facts in manifest["tables"].items())
    say(f"{output}: {name}: {rows}")
    for what, count in manifest.get("imported", {}).get("not_understood", {}).items():
        say(f"not in a table: {what}: {count}")
