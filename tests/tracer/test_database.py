"""DuckDB gets as many threads as a trace has work for."""

import os

import pytest

from tests.support.traces import make_trace
from tracer.store.database import MOST_THREADS, ROW_GROUP, threads_for

CPUS = min(MOST_THREADS, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    "rows, cpus, expected",
    [
        ([], None, 1),
        ([5, ROW_GROUP], None, 1),
        ([5, ROW_GROUP + 1], None, CPUS),
        ([ROW_GROUP + 1], 1, 1),
        ([ROW_GROUP + 1], 3, 3),
        ([ROW_GROUP + 1], 1000, MOST_THREADS),
    ],
)
def test_a_table_of_several_row_groups_has_several_threads(rows, cpus, expected):
    assert threads_for(rows, cpus) == expected


def test_a_small_trace_is_asked_with_one_thread(tmp_path):
    with make_trace(tmp_path / "x.trace", {"syscalls": [{"tid": 7}]}) as trace:
        assert trace.rows("SELECT current_setting('threads')") == [(1,)]
