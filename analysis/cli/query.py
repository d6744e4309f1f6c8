"""`tracer query`."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from tracer.cli.main import verb
from tracer.cli.opening import AsJson, TracePath, open_trace


def _examples() -> str:
    from rich.markup import escape

    from analysis.views.catalogue import VIEWS
    from tracer.store.trace import ALL_TABLES

    tables = [escape(f"{name}: {table.example}") for name, table in ALL_TABLES.items()]
    views = [escape(f"{name}: {view.example}") for name, view in VIEWS.items()]
    return "\n\n".join(
        [
            *("[bold]Tables, with an example each[/bold]", *tables),
            *("[bold]Views, with an example each[/bold]", *views),
        ]
    )


def _complete(incomplete: str) -> list[str]:
    """What the last word of a query may become: a table, a view, or a column of those named."""
    from analysis.views.catalogue import VIEWS
    from analysis.views.in_phase import IN_PHASE, SUFFIX
    from tracer.store.trace import ALL_TABLES

    columns = {name: table.columns for name, table in ALL_TABLES.items()}
    columns |= {name: view.columns for name, view in VIEWS.items()}
    words = re.findall(r"\w+", incomplete)
    named = {c.name for word in words for c in columns.get(word.removesuffix(SUFFIX), ())}
    begun = re.search(r"\w*$", incomplete)
    assert begun is not None
    before, word = incomplete[: begun.start()], begun.group()
    tables = {*columns, *(name + SUFFIX for name in IN_PHASE)}
    return [before + name for name in sorted(tables | named) if name.startswith(word)]


@verb(epilog=_examples)
def query(
    trace: TracePath,
    sql: Annotated[
        str,
        typer.Argument(
            metavar="SQL", help="A query; - reads it from stdin.", autocompletion=_complete
        ),
    ],
    json: AsJson = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Ask a trace in SQL (DuckDB). --json prints one list of row objects.

    The views below are there, too, made when they are asked for; and each table as
    TABLE_in_phase, with the columns phase, stage, epoch and step.
    """
    import duckdb

    from analysis.report.tables import records
    from analysis.views.catalogue import make_named
    from probes.errors import UsageError
    from tracer.store.trace import dump

    if json and csv:
        raise UsageError("--json and --csv do not go together", "give one of them")
    text = sys.stdin.read() if sql == "-" else sql
    if not text.strip():
        raise UsageError("the query is empty", "e.g. SELECT count(*) FROM syscalls")
    with open_trace(trace) as opened:
        make_named(opened, text)
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
