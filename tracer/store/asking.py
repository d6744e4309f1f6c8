"""SQL of a user's: one statement that reads the tables of a trace, and nothing else.

DuckDB's settings keep a query from every other file and from the network (`Trace.connection`). The
files of the tables it may open, also to write: so what a query does is looked at before it runs, in
the tree that DuckDB itself parses it into.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from probes.errors import UsageError

if TYPE_CHECKING:
    import duckdb

_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
"""Parts of a query that read. Others may stand in a WITH: INSERT, DELETE, COPY."""

_FUNCTIONS = frozenset(
    (
        *("generate_series", "range", "repeat", "repeat_row", "unnest"),
        *("histogram", "histogram_values", "json_each", "json_tree", "summary"),
        *("duckdb_columns", "duckdb_functions", "duckdb_keywords", "duckdb_settings"),
        *("duckdb_tables", "duckdb_types", "duckdb_views", "pragma_show", "pragma_table_info"),
    )
)
"""Functions that may stand for a table. Others read files, run text as SQL or take addresses."""

_EXPLAIN = re.compile(r"\s*EXPLAIN(\s+ANALYZE)?\s*(\([^()]*\))?", re.IGNORECASE)
_NO_FILE = re.compile(r"[^./\\:]*")
"""A name that DuckDB does not take for that of a file."""
_TABLES = "name a table or a view of the trace"
_MEND = "ask by SELECT, FROM, WITH, VALUES, DESCRIBE, SUMMARIZE or EXPLAIN of one of these"


def reading(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The one statement of a query, which only reads; `connection` parses it.

    Raises UsageError for what would do more, or reads something else than tables; duckdb.Error for
    what is no SQL.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise UsageError(f"the query has {len(statements)} statements", "ask one at a time")
    (statement,) = statements
    text = sql
    if statement.type.name == "EXPLAIN":
        text = _EXPLAIN.sub("", sql, count=1)  # of what it explains: ANALYZE runs it, too
    for part in _parts(connection, text):
        kind = part.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _NODES:
            raise UsageError("the query would change something", _MEND)
        if kind == "BASE_TABLE" and not _NO_FILE.fullmatch(str(part.get("table_name", ""))):
            raise UsageError("a query cannot read files", _TABLES)
        if kind == "TABLE_FUNCTION":
            name = str(part["function"].get("function_name", "")).lower()
            if name not in _FUNCTIONS:
                raise UsageError(f"a query cannot read by {name}()", _TABLES)
    return statement


def _parts(connection: duckdb.DuckDBPyConnection, text: str) -> Iterator[dict[str, Any]]:
    """The parts of a query's tree; UsageError where it is none of one query that reads."""
    (told,) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0]
    try:
        tree = json.loads(told)
    except RecursionError:
        raise UsageError("the query is nested too deep", "ask in steps, by WITH") from None
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
