"""Probes declare what they mean: every column can be filled, every example runs."""

import pytest

from tests.support.traces import make_trace
from tracer.probes.catalogue import PROBES, TABLES
from tracer.probes.schema import Type
from tracer.store.trace import ALL_TABLES


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_an_event_fills_only_columns_of_its_table(probe):
    columns = {column.name for column in probe.table.columns}
    for event in probe.events:
        assert set(event.columns) <= columns


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_columns_are_documented_and_times_have_units(table):
    for column in table.columns:
        assert column.doc
        if column.name in ("ts", "start", "end") or column.name.endswith("_ns"):
            assert (column.type, column.unit) == (Type.INT64, "ns")


def test_every_example_query_runs(tmp_path):
    with make_trace(tmp_path / "t", {name: [] for name in TABLES}) as trace:
        for table in ALL_TABLES.values():
            assert trace.sql(table.example) is not None
