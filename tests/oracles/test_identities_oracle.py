"""Page identities and the flush layer's curve agree with a file system that knows its files."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.drawing import batches
from tests.oracles.layer import improvement, lru
from tests.oracles.written_files import FileSystem, identified
from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tracer.analysis.flushlayer.devices.device import catalogue
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks
from tracer.analysis.studies.flush_layer import layer_curve

pytestmark = pytest.mark.slow

DISKS = 50
"""Cases in a trace, each on a file system of its own; all of them are written at the same time."""


def numbered(pages):
    numbers = {}
    return [numbers.setdefault(page, len(numbers)) for page in pages]


def traces():
    for cases in batches(DISKS):
        drawn = [FileSystem(n, numbers) for n, numbers in enumerate(cases)]
        tables = {}
        for name in drawn[0].tables:
            rows = [row for one in drawn for row in one.tables[name]]
            tables[name] = sorted(rows, key=lambda row: row.get("ts", 0))
        systems = [{"dev": one.dev, "block_bytes": 4096} for one in drawn]
        with (
            tempfile.TemporaryDirectory(dir=PLACE) as folder,
            make_trace(Path(folder) / "t", tables, file_systems=systems) as trace,
        ):
            yield trace, drawn


def test_pages_are_those_of_the_oracle_by_every_identity():
    seen = dict.fromkeys(Identity, 0)
    for trace, drawn in traces():
        for identity in Identity:
            found = page_writebacks(trace, identity=identity)
            assert found.bios is not None
            devices = np.array(found.bios.names["device"])[found.bios.device]
            of_pages = devices[found.bios.of_pages()]
            lost = 0
            for one in drawn:
                own = found.page[of_pages == one.dev]
                pages, fell_back = identified(one.written, identity)
                assert numbered(own.tolist()) == numbered(pages), (one.dev, identity)
                lost += fell_back
                seen[identity] += len(set(own.tolist()))
            mapping = found.by_mapping
            assert mapping.get("not mapped", 0) + mapping.get("path not known", 0) == lost
    # The cases tell the identities apart.
    assert seen["block"] != seen["file"] > seen["path"] > seen["index"]


def test_the_curve_is_that_of_the_oracle():
    medium, disk = catalogue()["pcm-paper"], catalogue()["hdd-paper"]
    times = medium.write_ns, disk.write_ns
    for trace, drawn in traces():
        for one in drawn[:: DISKS // 5]:
            curve = layer_curve(trace, one.dev)
            for identity in Identity:
                for writes, of in (
                    ("all", one.written),
                    ("files", [w for w in one.written if not w.metadata]),
                ):
                    pages, _ = identified(of, identity)
                    rows = curve[(curve["identity"] == identity) & (curve["writes"] == writes)]
                    assert bool(len(rows)) == bool(pages)
                    for row in rows.itertuples():
                        assert (row.written, row.distinct) == (len(pages), len(set(pages)))
                        disk_writes, left = lru(pages, row.capacity_pages)
                        into = len(pages) if row.capacity_pages else 0
                        gain = improvement(len(pages), into, disk_writes, *times)
                        drained = improvement(len(pages), into, disk_writes + left, *times)
                        assert row.improvement == pytest.approx(gain, abs=1e-12)
                        assert row.improvement_with_drain == pytest.approx(drained, abs=1e-12)
