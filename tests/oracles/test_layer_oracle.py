"""Page accesses, an LRU layer and the paper's formula agree with the naive ones."""

import math
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.drawing import batches
from tests.oracles.layer import improvement, lru, pages_of
from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tracer.analysis.flushlayer.curves.every_capacity import curve, improvements
from tracer.analysis.flushlayer.devices.device import catalogue
from tracer.analysis.flushlayer.one_capacity import simulate
from tracer.analysis.flushlayer.trace.accesses import Accesses, page_writebacks

pytestmark = pytest.mark.slow

DISKS = 25
"""Cases in a trace, each on two disks of its own; all of them write at the same time."""


def events_of(case: int, numbers: random.Random) -> list[dict]:
    """Bios on two disks, of which many have one time; some cases have none, or a single one."""
    now, events = 0, []
    for _ in range(numbers.choice([0, 1, 5, 20, 20, 40])):
        now += numbers.choice([0, 0, 0, 1, 3])
        rwbs = numbers.choice(["W", "W", "WS", "WM", "FWFS", "WFS", "R", "D", "FWS", "FF"])
        length = (
            0
            if rwbs in ("FWS", "FF") and numbers.random() < 0.8
            else numbers.choice([1, 7, 8, 8, 9, 16, 40])
        )
        sector = 8 * numbers.randrange(6) + numbers.choice([0, 0, 0, 1, 7])
        event = {"ts": now, "event": "bio_queue", "pid": 7, "tid": 7, "comm": "job", "rwbs": rwbs}
        event |= {"dev": f"8:{16 * (2 * case + numbers.randrange(2))}"}
        if numbers.random() < 0.2:
            event["event"] = numbers.choice(["issue", "complete", "backmerge"])
        events.append(event | {"sector": sector, "nr_sector": length})
    return events


def numbered(pages: list) -> list[int]:
    """Dense numbers for pages, by when each first came."""
    numbers: dict = {}
    return [numbers.setdefault(page, len(numbers)) for page in pages]


def same(found: float | None, expected: float | None) -> bool:
    if found is None or math.isnan(found):
        return expected is None
    return expected is not None and found == pytest.approx(expected, abs=1e-12)


def test_the_page_accesses_of_a_trace_are_those_of_the_oracle():
    for cases in batches(DISKS):
        drawn = [events_of(case, numbers) for case, numbers in enumerate(cases)]
        block = sorted((event for events in drawn for event in events), key=lambda e: e["ts"])
        disks = [{"dev": f"8:{16 * n}", "name": f"sd{n}"} for n in range(2 * DISKS)]
        one = f"8:{16 * cases[0].randrange(2 * DISKS)}"
        with (
            tempfile.TemporaryDirectory(dir=PLACE) as folder,
            make_trace(Path(folder) / "t", {"block": block}, disks=disks) as trace,
        ):
            for accesses, pages in (
                (page_writebacks(trace), pages_of(block)),
                (page_writebacks(trace, [one]), [p for p in pages_of(block) if p[0] == one]),
            ):
                assert list(accesses.page) == numbered(pages)
                assert accesses.unique == len(set(pages))


def test_lru_and_the_improvement_are_those_of_the_oracle():
    medium, disk = catalogue()["pcm-paper"], catalogue()["hdd-paper"]
    times = medium.write_ns, disk.write_ns
    for (numbers,) in batches(1):
        pages = numbered(pages_of(events_of(0, numbers)))
        unique, writes = len(set(pages)), len(pages)
        accesses = Accesses(np.array(pages, np.int32), unique, {}, {}, 0)
        whole = improvements(curve("lru", accesses.page, unique), *times)
        assert list(whole.capacity_pages) == list(range(unique + 1))
        for row in whole.itertuples():
            disk_writes, left = lru(pages, row.capacity_pages)
            into = writes if row.capacity_pages else 0
            gain = improvement(writes, into, disk_writes, *times)
            drained = improvement(writes, into, disk_writes + left, *times)
            result = simulate(accesses, row.capacity_pages, medium, disk)
            assert (result.requests, result.unique_pages) == (writes, unique)
            assert (result.disk_writes, result.resident_pages) == (disk_writes, left)
            assert (row.disk_writes, row.resident) == (disk_writes, left)
            for found in (result, row):
                assert same(found.improvement, gain)
                assert same(found.improvement_with_drain, drained)
