"""`tracer import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_trace(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to import.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR.trace", help="Trace to make.")
    ],
    format: Annotated[str, typer.Option("--format", help="What the file is: csv.")] = "csv",
) -> None:
    """Make a trace from another tool's file, for reports and what-ifs.

    csv has the columns ts_ns,dev,page,pages,op with op R, W or F and pages of 4096 bytes,
    sorted by time.

    [bold]Example[/bold]

      tracer import writes.csv -o writes.trace --format csv
    """
    from analysis.exchange.csv_pages import import_csv
    from probes.errors import UsageError

    if format != "csv":
        raise UsageError(f"there is no format {format!r}", "known: csv")
    rows = import_csv(source, output)
    typer.echo(f"{output}: {rows} operations", err=True)
