"""DuckDB gets as many threads as a trace has work for."""

import pytest

from tests.support.traces import make_trace
from tracer.store.database import MOST_THREADS, ROW_GROUP, integer_type, threads_for


@pytest.mark.parametrize(
    "rows, cpus, expected",
    [
        ([], 4, 1),
        ([5, ROW_GROUP], 4, 1),
        ([5, ROW_GROUP + 1], 4, 4),
        ([ROW_GROUP + 1], 1, 1),
        ([ROW_GROUP + 1], 1000, MOST_THREADS),
    ],
)
def test_a_table_of_several_row_groups_has_several_threads(rows, cpus, expected):
    assert threads_for(rows, cpus) == expected


@pytest.mark.parametrize("most", [0, (1 << 15) - 1, 1 << 15, (1 << 31) - 1, 1 << 31, 1 << 40])
def test_the_type_of_a_number_holds_it(tmp_path, most):
    with make_trace(tmp_path / "x.trace", {"syscalls": [{"tid": 7}]}) as trace:
        assert trace.rows(f"SELECT {most}::BIGINT::{integer_type(most)}") == [(most,)]


def test_a_small_trace_is_asked_with_one_thread(tmp_path):
    with make_trace(tmp_path / "x.trace", {"syscalls": [{"tid": 7}]}) as trace:
        assert trace.rows("SELECT current_setting('threads')") == [(1,)]
