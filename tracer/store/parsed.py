"""Our SQL statements, parsed once: DuckDB 2 takes about as long to parse one as to plan it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracer.probes.errors import UsageError

if TYPE_CHECKING:
    import duckdb

_MOST = 1024
_LONGEST = 1 << 14
"""Most characters of a statement that is kept: longer ones list what one trace has."""
_latest: dict[str, duckdb.Statement] = {}
"""Statements by their text, the latest last."""
_changing = threading.Lock()


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """Returns a statement for any connection to run, once or several times.

    `connection` parses it unless it was parsed lately. Raises duckdb.Error if it is invalid, and
    UsageError if it is not one statement.
    """
    with _changing:
        statement = _latest.pop(sql, None)
        if statement is None:
            statements = connection.extract_statements(sql)
            if len(statements) != 1:
                raise UsageError(f"the query has {len(statements)} statements", "ask one at a time")
            (statement,) = statements
        if len(sql) <= _LONGEST:
            _latest[sql] = statement
        while len(_latest) > _MOST:
            del _latest[next(iter(_latest))]
    return statement


def run(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any] = ()
) -> duckdb.DuckDBPyConnection:
    """Runs a statement on `connection`, which then has its result. Raises duckdb.Error."""
    return connection.execute(parsed(connection, sql), parameters)
