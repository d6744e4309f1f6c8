"""Parts of tables add up: over one trace they are its own, over two of a kind all counts double."""

from pathlib import Path

import pandas as pd
import pytest

from tracer.analysis.report.tables import MERGED, TABLES
from tracer.store.trace import Trace

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "lenet.trace"
COUNTS = ("calls", "errors", "faults", "bios", "pages", "requests", "bytes", "writebacks", "count")
COUNTS += ("steps", "total", "total_s", "call_s", "intervals", "unfinished", "minor")
AS_ONE = ("p50_us", "max_us", "mean_us", "ratio", "percent", "share", "service_max_ms", "mean_ms")


WITHOUT = ("summaries", "waits", "reads_by_epoch", "reads_by_file", "evictions")
"""Tables that the fixture lacks; their own tests merge them."""


@pytest.fixture(scope="module")
def trace():
    with Trace(FIXTURE) as opened:
        yield opened


@pytest.mark.parametrize("name", [name for name in MERGED if name not in WITHOUT])
def test_merging_one_trace_changes_nothing_and_two_copies_double_the_counts(trace, name):
    table = MERGED[name]
    alone = TABLES[name].of(trace)
    assert len(alone)
    parts = table.parts(trace)
    assert not parts.duplicated(list(table.keys)).any()
    pd.testing.assert_frame_equal(
        table.finish(table.together([parts])), alone, check_dtype=False, rtol=1e-9
    )
    twice = table.finish(table.together([parts, parts]))
    keys = [key for key in ("event", *table.keys) if key in alone]
    both = alone.merge(twice, on=keys, suffixes=("", "_twice"))
    assert len(both) == len(alone) == len(twice)
    checked = 0
    for columns, factor in ((COUNTS, 2), (AS_ONE, 1)):
        for column in columns:
            if column in alone and column not in keys:
                one, two = both[column].astype(float), both[f"{column}_twice"].astype(float)
                pd.testing.assert_series_equal(one * factor, two, check_names=False, rtol=1e-2)
                checked += 1
    assert checked
