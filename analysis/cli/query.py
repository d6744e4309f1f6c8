"""`tracer query`."""

from __future__ import annotations

import io
import json as json_text
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.analysis.cli.many import Scheduler, opened_here, shown_reading
from tracer.cli.main import verb

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

    from tracer.probes.errors import UsageError
    from tracer.store.trace import Trace

_MOST_BYTES = 1 << 30
"""Largest result in bytes, or 1/16 of the available memory if that is less."""
_VECTORS = 50
"""Vectors of 2,048 rows that are fetched at once."""
_ROWS = 10_000
"""Rows that become text at once."""


def _examples() -> str:
    from rich.markup import escape

    from tracer.analysis.views.catalogue import VIEWS
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
    """Completes the last word of a query: a table, a view, or a column of those in the query."""
    from tracer.analysis.views.catalogue import VIEWS
    from tracer.analysis.views.in_phase import IN_PHASE, SUFFIX
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


def _print_columns(name: str, json: bool, csv: bool) -> None:
    from tracer.analysis.cli.columns import column_rows, described

    if not json and not csv:
        typer.echo(described(name))
        return
    rows = column_rows(name)
    if json:
        from tracer.store.trace import dump

        typer.echo(dump(rows))
        return
    import pandas as pd

    _print_csv(pd.DataFrame(rows))


@verb(epilog=_examples)
def query(
    trace: Annotated[
        str | None,
        typer.Argument(metavar="T", help="Trace, pack, folder of traces, URL.", show_default=False),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="SQL", help="Query; -: read it from stdin.", autocompletion=_complete
        ),
    ] = None,
    scheduler: Scheduler = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON list of rows.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Print the columns of a table or view, with units. Takes no trace and no query.",
        ),
    ] = None,
) -> None:
    """Query a trace with SQL (DuckDB). --json prints one list of row objects.

    A query can use the tables and the views below; a view is made when a query
    names it. TABLE_in_phase adds the columns phase, stage, epoch, pass and step
    to TABLE. TABLE_rows has the added column row, which orders events with the
    same time. Rows come in no order unless the query has ORDER BY.

    With a folder or a URL of several traces, the query runs on each trace. The
    first column of the result, trace, then names the trace:

      tracer query quick.study/runs "SELECT count(*) FROM syscalls"
    """
    from tracer.analysis.report.tables import records
    from tracer.analysis.report.together import TRACE, beside
    from tracer.analysis.scale.mapping import results
    from tracer.analysis.scale.sources import find_traces
    from tracer.probes.errors import UsageError

    if json and csv:
        raise UsageError("--json and --csv cannot be combined", "give one of them")
    if columns is not None:
        if trace is not None:
            raise UsageError("--columns takes no trace and no query", "leave out the others")
        _print_columns(columns, json, csv)
        return
    if trace is None or sql is None:
        what = "trace" if trace is None else "query"
        raise UsageError(f"no {what} is given", 'e.g. tracer query T "SELECT count(*) FROM block"')
    text = sys.stdin.read() if sql == "-" else sql
    if not text.strip():
        raise UsageError("the query is empty", "e.g. SELECT count(*) FROM syscalls")
    sources = find_traces([trace])
    if len(sources) > 1:
        with shown_reading() as done:
            each = results(partial(_answer, sql=text), sources, scheduler, done)
            names = [source.name for source in sources]
            frames = list(each)
        if any(TRACE in frame for frame in frames):
            raise UsageError(
                "a column of the query is called trace, like the column of the traces' names",
                "rename the column with AS",
            )
        frame = beside(zip(names, frames, strict=True))
    elif scheduler is not None:
        (frame,) = results(partial(_answer, sql=text), sources, scheduler)
    else:
        with opened_here(sources[0]) as opened:
            frame = _answer(opened, text)
    if json:
        _print_json(frame)
    elif csv:
        _print_csv(frame)
    else:
        from pandas.api.types import infer_dtype

        from tracer.cli.output import print_table, wide_console

        rows = [[_cell(value) for value in row.values()] for row in records(frame.head(1000))]
        numbers = set(frame.select_dtypes("number").columns)
        large = {name for name, column in frame.items() if infer_dtype(column) == "integer"}
        left = [c for c in frame.columns if c not in numbers | large]
        note = f"{len(frame) - 1000} more rows: --csv or --json" if len(frame) > 1000 else ""
        print_table(wide_console(), "", list(frame.columns), rows, left=left, note=note, exact=True)


_INTERVAL = re.compile(r"(-?\d+ (years?|months?|days?) ?)*(-?\d+:\d\d:\d\d(\.\d+)?)?")
"""An interval as DuckDB writes it. A negative one begins as a formula does, and is none."""


def _cell(value: object) -> object:
    """Returns a value of a row of --json for a table: a list or object as the text in the JSON."""
    if not isinstance(value, list | dict):
        return value
    from tracer.store.trace import dump

    return dump(value)


def _parts(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yields the rows of a frame that become text at once; at least one part."""
    for start in range(0, max(len(frame), 1), _ROWS):
        yield frame.iloc[start : start + _ROWS]


def _print_json(frame: pd.DataFrame) -> None:
    """Prints one JSON list. Rows become text as they are printed, as those of CSV do."""
    from tracer.analysis.report.tables import records
    from tracer.store.trace import dump

    for number, rows in enumerate(_parts(frame)):
        sys.stdout.write((", " if number else "[") + dump(records(rows))[1:-1])
    sys.stdout.write("]\n")


def _print_csv(frame: pd.DataFrame) -> None:
    """Prints CSV. A text that would be a formula gets an apostrophe, as in `tracer export`.

    Lists and structures are JSON. On a terminal, characters that are not printable are escaped.
    Rows become text as they are printed: if nobody reads them any more, the rest does not.
    """
    import pandas as pd
    from pandas.api.types import is_numeric_dtype

    from tracer.analysis.exchange.tables_out import inert
    from tracer.analysis.report.tables import plain
    from tracer.probes.text import printable

    escaped = sys.stdout.isatty()

    def shown(value: object) -> object:
        cell = value if isinstance(value, str) else _cell(plain(value))
        if not isinstance(cell, str):
            return cell
        text = cell if _INTERVAL.fullmatch(cell) else inert(cell)
        return printable(text) if escaped else text

    for number, rows in enumerate(_parts(frame)):
        part = rows.rename(columns=shown)
        for place, kind in enumerate(part.dtypes):
            if not is_numeric_dtype(kind):
                column = part.iloc[:, place]
                there = column.astype(object).where(column.notna(), None)
                part.isetitem(place, pd.array([shown(value) for value in there], dtype=object))
        part.to_csv(_Lines(), index=False, header=number == 0, lineterminator="\r\n")


class _Lines(io.TextIOBase):
    """Standard output for rows that end in CR LF: each is printed with LF alone.

    The end of a row decides which texts are quoted: with LF alone, a text with a CR would not be,
    and what follows the CR would be another row.
    """

    def write(self, row: str, /) -> int:
        return sys.stdout.write(row.removesuffix("\r\n") + "\n")


_LARGE = re.compile(r"U?HUGEINT|DECIMAL\(\d+,0\)")
"""Types of integers, such as a sum, of which a data frame gets the nearest float."""
_TIMES = re.compile(r"DATE|INTERVAL|TIME\b.*|TIMESTAMP.*")
"""Types of which a data frame does not get all values as they are: midnight is added to a date."""
_NESTED = re.compile(r"(STRUCT|MAP|UNION)\(.*|.*\]", re.DOTALL)
_INEXACT = re.compile(r"HUGEINT|DECIMAL|DATE|INTERVAL|TIME")
"""Such types within lists and structures: a data frame gets floats, or texts of Python's."""
_VIEW = "tracer_query"


def _kinds(db: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> list[tuple[str, str]]:
    """Returns the columns of a query, and their types; none if DuckDB cannot tell before it runs"""
    import duckdb

    try:
        found = db.execute("DESCRIBE " + statement.query).fetchall()
    except duckdb.Error:
        return []  # the query is EXPLAIN, or fails itself
    return [(str(name), str(kind)) for name, kind, *_ in found]


def _fetched(db: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> pd.DataFrame:
    """Returns the result of a query; raises UsageError if it is too large.

    Integers are exact. Dates, times and intervals are texts, as DuckDB writes them; so are those in
    lists and structures.
    """
    kinds = _kinds(db, statement)
    taken = [_taken(f"#{place}", kind) for place, (_, kind) in enumerate(kinds, 1)]
    if not any("VARCHAR" in column for column in taken):
        return _whole(db.execute(statement))
    columns = ", ".join(
        column + ' AS "{}"'.format(name.replace('"', '""'))
        for column, (name, _) in zip(taken, kinds, strict=True)
    )
    # A view takes the query as it is, also if it ends in a semicolon or a comment.
    db.execute(f"CREATE OR REPLACE TEMP VIEW {_VIEW} AS {statement.query}")
    frame = _whole(db.execute(f"SELECT {columns} FROM {_VIEW}"))
    db.execute(f"DROP VIEW {_VIEW}")
    for place, (_, kind) in enumerate(kinds):
        if _LARGE.fullmatch(kind):
            frame.isetitem(place, _integers(frame.iloc[:, place]))
        elif taken[place].startswith("to_json"):
            values = frame.iloc[:, place].map(json_text.loads, na_action="ignore")
            frame.isetitem(place, values.array)
    return frame


def _taken(column: str, kind: str) -> str:
    """Returns SQL for a column: as text if a data frame would not get its values as they are."""
    if _NESTED.fullmatch(kind):
        return f"to_json({column})::VARCHAR" if _INEXACT.search(kind) else column
    return f"{column}::VARCHAR" if _LARGE.fullmatch(kind) or _TIMES.fullmatch(kind) else column


def _integers(texts: pd.Series[str]) -> pd.api.extensions.ExtensionArray:
    """Returns texts of integers as integers, of 64 bits if these are enough."""
    import pandas as pd

    found = [None if text is None or text != text else int(text) for text in texts]
    fits = all(number is None or abs(number) < 1 << 63 for number in found)
    return pd.array(found, dtype="Int64" if fits else object)


def _whole(cursor: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """Returns the result of a query that has started; raises UsageError if it is too large.

    DuckDB limits its own memory, but not that of the data frame, nor that of the printed text,
    which takes about ten times as much.
    """
    import pandas as pd
    import psutil

    from tracer.probes.errors import UsageError

    most = min(_MOST_BYTES, psutil.virtual_memory().available // 16)
    parts = [cursor.fetch_df_chunk(_VECTORS)]
    held = 0
    while len(parts[-1]):
        held += int(parts[-1].memory_usage(deep=True).sum())
        if held > most:
            raise UsageError(
                f"the result of the query takes more than {most >> 20} MiB",
                "ask for less: count or sum in SQL, or LIMIT it",
            )
        parts.append(cursor.fetch_df_chunk(_VECTORS))
    return pd.concat(parts[:-1], ignore_index=True) if len(parts) > 2 else parts[0]


def _answer(trace: Trace, sql: str) -> pd.DataFrame:
    """Runs a user's query on a trace and returns the result."""
    import duckdb

    from tracer.analysis.views.catalogue import make_named
    from tracer.store.asking import reading
    from tracer.store.interrupt import interruptible

    try:
        statement = reading(trace.connection, sql)
        make_named(trace, sql)
        return interruptible(trace.connection, lambda db: _fetched(db, statement))
    except duckdb.CatalogException as error:
        if named := re.search(r"Table with name (\w+) does not exist", str(error)):
            raise _unknown(trace, named[1].lower()) from None
        raise _failed(trace, error) from None
    except duckdb.Error as error:
        raise _failed(trace, error) from None


def _failed(trace: Trace, error: Exception) -> UsageError:
    from tracer.probes.errors import UsageError

    said = trace.said(error)
    columns = "see the columns of a table: tracer query --columns NAME"
    examples = "see the examples: tracer query --help"
    return UsageError(
        f"the query failed: {said}", columns if said.startswith("Binder") else examples
    )


def _unknown(trace: Trace, name: str) -> UsageError:
    """Returns the error for a table that is not there. BadTrace if the trace might have it."""
    from tracer.analysis.cli.columns import unknown_table
    from tracer.analysis.views.catalogue import needed
    from tracer.probes.errors import UsageError
    from tracer.store.trace import ALL_TABLES

    if name in ALL_TABLES:
        trace.require(name)
    if (needs := needed(name)) is not None:
        trace.require(*needs)
        return UsageError(
            f"the view {name} is not in the catalogue that the query names",
            f"name it alone: FROM {name}",
        )
    return unknown_table(name, trace.tables)
