"""Rows that are added to a table: all of them, in their order."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tests.support.traces import make_trace

GROUP = 122_880
"""Rows of a row group of DuckDB."""


@pytest.mark.parametrize("count", [0, 1, GROUP - 1, GROUP, GROUP + 1, 2 * GROUP, 3 * GROUP + 17])
def test_rows_in_parts_are_all_added_in_their_order(tmp_path, count):
    draw = random.Random(count)
    cuts = sorted({0, count, *(draw.randint(0, count) for _ in range(9))})

    def parts(trace):
        yield pa.table({"n": pa.array([], pa.int64())})
        for begin, end in pairwise(cuts):
            trace.rows("SELECT 1")  # other queries may run meanwhile
            yield pa.table({"n": np.arange(begin, end)})

    with make_trace(tmp_path / "t", {}) as trace:
        trace.execute("CREATE TEMP TABLE numbers (n BIGINT)")
        trace.append("numbers", parts(trace))
        assert (trace.arrow("FROM numbers")["n"].to_numpy() == np.arange(count)).all()
        assert trace.rows("SELECT count(*) FROM numbers") == [(count,)]
