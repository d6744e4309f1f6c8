"""Statements that are parsed once run on any connection, and answers are looked up once."""

import duckdb

from tests.support.traces import make_trace
from tracer.store import parsed as parsing
from tracer.store.parsed import parsed, run


def test_a_statement_that_one_connection_parsed_runs_on_another_one():
    query = "SELECT a + ? AS sum FROM numbers"
    with duckdb.connect() as one, duckdb.connect() as other:
        for connection, number in ((one, 1), (other, 2)):
            connection.execute(f"CREATE TABLE numbers AS SELECT {number} AS a")
        assert parsed(one, query) is parsed(other, query)
        assert run(one, query, [10]).fetchall() == [(11,)]
        assert run(other, query, [20]).fetchall() == [(22,)]
        assert run(one, query, [30]).fetchall() == [(31,)]


def test_only_the_latest_statements_are_kept():
    with duckdb.connect() as connection:
        first = parsed(connection, "SELECT 'first'")
        for number in range(parsing._MOST):
            parsed(connection, f"SELECT {number}")
        assert parsed(connection, "SELECT 'first'") is not first
    assert len(parsing._latest) == parsing._MOST


def test_an_answer_is_looked_up_once_until_the_trace_is_closed(tmp_path):
    asked = []
    with make_trace(tmp_path / "t", {}) as trace:
        for _ in range(3):
            assert trace.once("how many", lambda: asked.append(1) or len(asked)) == 1
        trace.close()
        assert trace.once("how many", lambda: asked.append(1) or len(asked)) == 2
