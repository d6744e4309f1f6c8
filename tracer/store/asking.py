"""A user's SQL: one statement that reads the tables of a trace, and nothing else.

DuckDB's settings keep a query from all other files and from the network (`Trace.connection`). But
it may open the tables' own files, even for writing. So each query is checked before it runs, in the
syntax tree that DuckDB itself parses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tracer.probes.errors import UsageError

if TYPE_CHECKING:
    import duckdb

_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
"""Parts of a query that only read. A WITH may also contain INSERT, DELETE or COPY."""

_FUNCTIONS = frozenset(
    (
        *("generate_series", "range", "repeat", "repeat_row", "unnest"),
        *("histogram", "histogram_values", "json_each", "json_tree", "summary"),
        *("duckdb_columns", "duckdb_functions", "duckdb_keywords", "duckdb_settings"),
        *("duckdb_tables", "duckdb_types", "duckdb_views", "pragma_show", "pragma_table_info"),
    )
)
"""Table functions that are allowed. Others read files, run text as SQL or take addresses."""

_EXPLAIN = re.compile(r"\s*EXPLAIN(\s+ANALYZE)?\s*(\([^()]*\))?", re.IGNORECASE)
_NO_FILE = re.compile(r"[^./\\:]*")
"""A name that DuckDB does not interpret as a file name."""
_TABLES = "name a table or a view of the trace"
_MEND = "use SELECT, FROM, WITH, VALUES, DESCRIBE, SUMMARIZE, or EXPLAIN with one of these"

_ABSENT = re.compile(r"Table with name (\w+) does not exist")
_NAMES = (
    "tracer query --help lists tables and views, --columns NAME their columns; in Python,"
    " tracer.analysis.views.catalogue.answer(trace, query) makes the views that a query names"
)


def refused(said: str) -> UsageError:
    """Returns the error for a query that DuckDB refuses, with its message `said`."""
    return UsageError(f"the query failed: {said}", _NAMES)


def absent_tables(said: str) -> set[str]:
    """Returns the table that does not exist according to a message of DuckDB, if it names one."""
    return {name.lower() for name in _ABSENT.findall(said)}


def reading(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """Returns the one statement of a query that only reads; `connection` parses it.

    Raises UsageError for a statement that does more or reads anything but tables; duckdb.Error for
    invalid SQL.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise UsageError(f"the query has {len(statements)} statements", "ask one at a time")
    (statement,) = statements
    text = sql
    if statement.type.name == "EXPLAIN":
        text = _EXPLAIN.sub("", sql, count=1)  # check the explained query: ANALYZE runs it
    for part in _parts(connection, text):
        kind = part.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _NODES:
            raise UsageError("the query would change something", _MEND)
        if kind == "BASE_TABLE" and not _NO_FILE.fullmatch(str(part.get("table_name", ""))):
            raise UsageError("a query cannot read files", _TABLES)
        if kind == "TABLE_FUNCTION":
            name = str(part["function"].get("function_name", "")).lower()
            if name not in _FUNCTIONS:
                raise UsageError(f"a query cannot call {name}()", _TABLES)
    return statement


def _parts(connection: duckdb.DuckDBPyConnection, text: str) -> Iterator[dict[str, Any]]:
    """Yields the parts of a query's tree. UsageError if it is not one query that only reads."""
    (told,) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0]
    try:
        tree = json.loads(told)
    except RecursionError:
        raise UsageError(
            "the query is nested too deeply", "split it into steps with WITH"
        ) from None
    if tree["error"] or len(tree["statements"]) != 1:
        raise UsageError("the query would do more than read", _MEND)
    left: list[Any] = [tree["statements"]]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left += part.values()
        elif isinstance(part, list):
            left += part
