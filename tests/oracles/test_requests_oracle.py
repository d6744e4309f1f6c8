"""The view `requests` and the naive one agree on streams of events drawn at random."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.oracles.block_layer import Disk
from tests.oracles.drawing import seeds
from tests.oracles.requests import requests_of
from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tracer.analysis.views.disks.requests import REQUESTS, requests

pytestmark = pytest.mark.slow

"""Streams that are compared, each on a disk of its own."""
DISKS = 20
"""Streams in a trace."""
SECOND = 10**9

commands = st.lists(st.integers(0, (1 << 16) - 1), min_size=30, max_size=40)
"""Commands to a disk; 0 does nothing. Lists without a least length are mostly short."""


def rows_of_view(block, loss, disks):
    with (
        tempfile.TemporaryDirectory(dir=PLACE) as folder,
        make_trace(Path(folder) / "t", {"block": block, "loss": loss}, disks=disks) as trace,
    ):
        requests(trace)
        cursor = trace.connection.execute("SELECT * FROM requests")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def in_order(rows):
    names = [column.name for column in REQUESTS.columns]
    return sorted([tuple(row[name] for name in names) for row in rows], key=repr)


def compare(streams, play):
    block, loss, disks, disk_of = [], [], [], {}
    for number, stream in enumerate(streams):
        dev, part = f"8:{16 * number}", f"8:{16 * number + 1}"
        disk = Disk(dev, part, number * SECOND)
        for command in stream:
            if command:
                play(disk, command)
        block += disk.events
        loss += disk.gaps
        disks += [
            {"dev": dev, "name": f"sd{number}"},
            {"dev": part, "name": f"sd{number}p1", "partition_of": dev},
        ]
        disk_of[part] = dev
    found = in_order(rows_of_view(block, loss, disks))
    assert found == in_order(requests_of(block, loss, disk_of))


streams = st.lists(commands, min_size=DISKS, max_size=DISKS)
enough = settings(
    max_examples=len(seeds(4)),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@enough
@given(streams)
def test_the_requests_of_a_block_layer_are_those_of_the_oracle(drawn):
    compare(drawn, Disk.do)


@settings(enough, max_examples=len(seeds(2)))
@given(streams)
def test_the_requests_of_any_events_are_those_of_the_oracle(drawn):
    compare(drawn, Disk.nonsense)


def test_a_table_without_events_has_no_requests():
    compare([[]], Disk.do)
