"""`tracer query`."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Annotated

import typer

from tracer.cli.main import verb
from tracer.cli.opening import AsJson, TracePath, open_trace


def _examples() -> str:
    from rich.markup import escape

    from tracer.store.trace import ALL_TABLES

    lines = [escape(f"{name}: {table.example}") for name, table in ALL_TABLES.items()]
    return "[bold]Tables, with an example each[/bold]\n\n" + "\n\n".join(lines)


@verb(epilog=_examples)
def query(
    trace: TracePath,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A query; - reads it from stdin.")],
    json: AsJson = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Ask a trace in SQL (DuckDB). --json prints one list of row objects.

    The views requests, flushes and steps are there, too; and each table as TABLE_in_phase,
    with the columns phase, stage, epoch and step.
    """
    import duckdb

    from analysis.report.tables import records
    from analysis.views.flushes import flushes
    from analysis.views.in_phase import SUFFIX, in_phase
    from analysis.views.requests import requests
    from analysis.views.steps import steps
    from probes.errors import UsageError
    from tracer.store.trace import dump

    if json and csv:
        raise UsageError("--json and --csv do not go together", "give one of them")
    text = sys.stdin.read() if sql == "-" else sql
    if not text.strip():
        raise UsageError("the query is empty", "e.g. SELECT count(*) FROM syscalls")
    with open_trace(trace) as opened:
        if "block" in opened.tables:
            for name, make in (("requests", requests), ("flushes", flushes)):
                if name in text.lower():
                    make(opened)
        if "phases" in opened.tables:
            if "steps" in text.lower():
                steps(opened)
            for table in re.findall(rf"(\w+){SUFFIX}\b", text.lower()):
                with contextlib.suppress(KeyError):
                    in_phase(opened, table)
        try:
            frame = opened.connection.execute(text).df()
        except duckdb.Error as error:
            line = " ".join(str(error).split())[:300]
            raise UsageError(
                f"the query failed: {line}", f"tables here: {', '.join(opened.tables)}"
            ) from None
    if json:
        typer.echo(dump(records(frame)))
    elif csv:
        frame.to_csv(sys.stdout, index=False)
    else:
        from tracer.cli.output import print_table, wide_console

        rows = [list(row.values()) for row in records(frame.head(1000))]
        numbers = set(frame.select_dtypes("number").columns)
        left = [c for c in frame.columns if c not in numbers]
        note = f"{len(frame) - 1000} more rows: --csv or --json" if len(frame) > 1000 else ""
        print_table(wide_console(), "", list(frame.columns), rows, left=left, note=note, exact=True)
