"""`tracer query`: how a query may name tables and views."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.cli.query import _answer
from tracer.analysis.views.catalogue import VIEWS, answer, needed
from tracer.analysis.views.in_phase import IN_PHASE
from tracer.probes.errors import BadTrace, UsageError

CALL = {"ts": 5, "tid": 7, "nr": 0, "name": "read"}


@pytest.fixture
def trace(tmp_path):
    """A trace with one call and one phase, without processes and block requests."""
    with make_trace(tmp_path / "t", {"syscalls": [CALL], "phases": [{"name": "step"}]}) as made:
        yield made


@pytest.mark.parametrize(
    "query",
    [
        "FROM calls",
        'FROM "calls"',
        "FROM CALLS",
        'FROM "Calls"',
        "FROM main.calls",
        'FROM "main"."Calls"',
        "FROM Syscalls_In_Phase",
        'FROM main."SYSCALLS_in_phase"',
        "FROM syscalls",
        'FROM memory.main."Syscalls"',
        "FROM calls -- requests, memory.main.requests, block_in_phase",
        "FROM calls /* requests */ WHERE name <> 'requests' AND name <> 'FROM block_in_phase'",
        "WITH requests AS (FROM calls) FROM requests",
        "FROM calls requests",
        "SELECT 1 AS requests FROM calls",
        "SELECT COLUMNS('^ts$') FROM calls -- requests, block_in_phase",
        "SELECT COLUMNS('^ts$') FROM \"CALLS\" WHERE name <> 'block_in_phase'",
    ],
)
def test_a_view_is_found_by_its_name_each_time(trace, query):
    for _ in range(2):
        assert len(_answer(trace, query)) == len(answer(trace, query)) == 1


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("FROM memory.main.calls", "calls"),
        ("FROM memory.calls", "calls"),
        ('SELECT count(*) FROM "memory"."main"."CALLS" LIMIT 1', "calls"),
        ("EXPLAIN FROM memory.main.syscalls_in_phase", "syscalls_in_phase"),
    ],
)
def test_a_view_in_a_catalogue_is_refused_with_the_name_to_use(trace, query, name):
    for _ in range(2):
        with pytest.raises(UsageError) as refused:
            _answer(trace, query)
        assert str(refused.value) == (
            f"the view {name} is not in the catalogue that the query names;"
            f" name it alone: FROM {name}"
        )


@pytest.mark.parametrize(
    "query",
    [
        "FROM requests",
        'FROM memory.main."Requests"',
        "SHOW requests",
        "SELECT COLUMNS('^ts$') FROM requests",
        "SELECT COLUMNS('^ts$') FROM block_in_phase",
    ],
)
def test_a_view_without_its_table_names_the_table(trace, query):
    with pytest.raises(BadTrace, match="has no table block; record it"):
        _answer(trace, query)


def test_a_name_of_nothing_in_a_schema_gets_the_most_similar_name(trace):
    with pytest.raises(UsageError, match="no table or view 'cals'; did you mean calls"):
        _answer(trace, "FROM main.cals")


def test_views_need_the_tables_that_they_require(trace):
    for name in (*VIEWS, *(f"{table}_in_phase" for table in IN_PHASE)):
        missing = [table for table in needed(name) if table not in trace.tables]
        if missing:
            with pytest.raises(BadTrace, match=rf"no tables? ({'|'.join(missing)})[;,]"):
                answer(trace, f"FROM {name}")
        else:
            answer(trace, f"FROM {name}")
    assert needed("syscalls") is needed("syscalls_rows") is needed("threads_in_phase") is None
