"""Parts of tables add up: over one trace they are its own, over two of a kind all counts double."""

from pathlib import Path

import pandas as pd
import pytest

from tracer.analysis.report.tables import MERGED, TABLES
from tracer.store.trace import Trace

FIXTURE = Path(__file__).resolve().parents[3] / "fixtures" / "lenet.trace"
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


def test_pages_of_the_targets_are_not_known_if_those_of_one_trace_are_not(trace):
    table = MERGED["flushed_pages"]
    parts = table.parts(trace)
    machine = parts.assign(target_pages=None)
    machine = machine[machine["reason"] != "sync"].astype(parts.dtypes)
    for order in ([parts, machine], [machine, parts]):
        found = table.finish(table.together(order)).set_index(["reason", "certainty"])
        alone = table.finish(parts).set_index(["reason", "certainty"])
        unknown = found["target_pages"].isna()
        assert unknown.any() and not unknown.all()
        assert set(unknown.index[unknown]) == set(
            zip(machine["reason"], machine["certainty"], strict=True)
        )
        known = found["target_pages"].dropna()
        pd.testing.assert_series_equal(known, alone["target_pages"][known.index])


def test_time_on_critical_paths_is_that_of_the_traces_with_steps():
    table = MERGED["waits"]
    row = {"target": "job", "kind": "sync", "whose": "kernel", "blamed": "jbd2", "unended": 0}
    with_steps = pd.DataFrame([row | {"n": 2, "ns": 5e9, "path_ns": 3e9}])
    without = pd.DataFrame([row | {"n": 1, "ns": 1e9, "path_ns": None}])
    frames = [one.astype({"path_ns": "Float64"}) for one in (with_steps, without)]
    (found,) = table.finish(table.together(frames)).to_dict("records")
    assert (found["waits"], found["total_s"], found["path_s"]) == (3, 6, 3)
