"""Writes smaller than a page: each touches a page, and what is transferred are its own bytes."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.support.bios import bios
from tests.support.traces import make_trace
from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.answers import timed as answers
from tracer.analysis.flushlayer.answers.question import Capacity, Question
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.destage import Destage
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.analysis.flushlayer.trace.recorded import recorded_requests
from tracer.probes.errors import BadTrace

DEV, JOB, SECOND, JOURNAL = "254:0", 7, 8, 60
HDD = devices.find_device("hdd-paper", "disk")
PCM = devices.find_device("pcm-paper", "nvm")
MS = 1_000_000


def bio(ts, sector, sectors, rwbs="WS", tid=JOB):
    return {"ts": ts, "tid": tid, "pid": tid, "event": "bio_queue", "dev": DEV, "sector": sector,
            "nr_sector": sectors, "rwbs": rwbs}  # fmt: skip


@pytest.fixture
def asked(tmp_path):
    def make(*block, **more):
        trace = make_trace(tmp_path / "t", {"block": list(block), **more})
        accesses = page_writebacks(trace, reads=True, flushes_too=True)
        return trace, accesses, recorded_requests(trace, accesses)

    return make


def test_a_bio_of_512_bytes_touches_one_page_and_one_across_a_boundary_two(asked):
    _, accesses, _ = asked(bio(1, 0, 1), bio(2, 3, 1), bio(3, 7, 2), bio(4, 8, 8))
    assert accesses.page.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("replay", ["open", "closed"])
def test_without_a_layer_the_disk_is_written_the_true_bytes(asked, replay):
    _, _, requests = asked(bio(1, 0, 1), bio(20 * MS, 7, 2), bio(40 * MS, 8, 8))
    outcome = simulate(requests, Disk(HDD), None, replay)
    assert outcome.disks[0].bytes_written == 512 * (1 + 2 + 8)


def test_the_layer_takes_and_hands_on_the_true_bytes(asked):
    # Page 0: sectors 0 and 3, dirty from 0 to 3; page 2 makes room for nobody until page 4 comes.
    _, _, requests = asked(
        bio(1, 0, 1), bio(20 * MS, 3, 1), bio(40 * MS, 16, 8), bio(60 * MS, 33, 2)
    )
    outcome = simulate(requests, Disk(HDD), Layer(1, PCM), "open")
    assert outcome.medium.bytes_written == 512 * (1 + 1 + 8 + 2)
    assert outcome.disks[0].bytes_written == 512 * (4 + 8)
    [layer] = outcome.layers
    assert (layer.written, layer.overwritten, layer.destaged, layer.resident) == (4, 1, 2, 1)


PARTS = [(first, count) for first in range(8) for count in range(1, 9 - first)]
"""The sectors of a page that a write of less than two pages can cover."""


def test_a_write_around_the_layer_leaves_the_dirty_sectors_that_it_does_not_replace(asked):
    pairs = list(itertools.product(PARTS, PARTS))
    dirty = [bio(n, 8 * n + first, count) for n, ((first, count), _) in enumerate(pairs)]
    past = [bio(MS + n, 8 * n + first, count, "W") for n, (_, (first, count)) in enumerate(pairs)]
    # As many pages as the layer has drive all others out.
    last = [bio(2 * MS + n, 8 * (len(pairs) + n), 8) for n in range(len(pairs))]
    _, _, requests = asked(*dirty, *past, *last)
    left = [
        {*range(one, one + ones)} - {*range(other, other + others)}
        for (one, ones), (other, others) in pairs
    ]
    outcome = simulate(requests, Disk(HDD), Layer(len(pairs), PCM, buffer="sync-only"), "open")
    [layer] = outcome.layers
    assert layer.overwritten == sum(not sectors for sectors in left)
    assert layer.destaged == sum(bool(sectors) for sectors in left)
    assert layer.resident == len(pairs)
    # From the first sector that is left to the last one.
    spans = [max(sectors) - min(sectors) + 1 for sectors in left if sectors]
    assert outcome.disks[0].bytes_written == 512 * (sum(n for _, (_, n) in pairs) + sum(spans))


@pytest.mark.parametrize(
    ("first", "count", "replaced"), [(0, 8, 1), (2, 3, 1), (4, 4, 0), (3, 1, 0)]
)
def test_a_write_of_a_file_page_that_has_moved_replaces_the_same_sectors(first, count, replaced):
    written = bios([(0, "write", 0, 1), (20 * MS, "write", 5, 1)], waited=[True, False])
    requests = dataclasses.replace(
        written, sector=np.array([2, 40 + first]), sectors=np.array([3, count]),
        page=np.zeros(2, np.int32), unique=1,
    )  # fmt: skip
    [layer] = simulate(requests, Disk(HDD), Layer(4, PCM, buffer="sync-only")).layers
    assert (layer.overwritten, layer.resident) == (replaced, 1 - replaced)


def test_a_read_of_512_bytes_reads_512_bytes(asked):
    _, _, requests = asked(bio(1, 0, 8), bio(20 * MS, 2, 1, "R"), bio(40 * MS, 64, 1, "R"))
    outcome = simulate(requests, Disk(HDD), Layer(4, PCM), "open")
    assert (outcome.medium.bytes_read, outcome.disks[0].bytes_read) == (512, 512)


def test_pages_that_are_not_those_of_the_sectors_are_refused(asked):
    _, _, requests = asked(bio(1, 0, 8))
    with pytest.raises(BadTrace, match="number of pages does not fit its sectors"):
        dataclasses.replace(requests, sectors=requests.sectors * 100)


def test_writes_without_a_tenant_have_a_part_of_a_divided_layer(asked):
    def target(tid, name):
        return {"pid": tid, "tid": tid, "role": "target", "target": name}

    trace, accesses, _ = asked(
        bio(1, 0, 8), bio(20 * MS, 80, 8, tid=SECOND), bio(40 * MS, 800, 8, "WSM", JOURNAL),
        bio(60 * MS, 800, 8, "WSM", JOURNAL),
        processes=[target(JOB, "a"), target(SECOND, "b"),
                   {"pid": JOURNAL, "tid": JOURNAL, "role": "journal"}],
        file_writes=[
            {"ts": 0, "tid": JOB, "event": "direct_start", "dev": DEV, "ino": 11},
            {"ts": 19 * MS, "tid": SECOND, "event": "direct_start", "dev": DEV, "ino": 12},
        ],
    )  # fmt: skip
    question = Question(PCM, HDD, Capacity(pages=3))
    facts = answers.answer(question, trace, accesses, Destage(), partitioned=True)
    assert [(part["tenant"], part["capacity"], part["written"]) for part in facts["layers"]] == [
        ("a", 1, 1), ("b", 1, 1), ("other", 1, 2),
    ]  # fmt: skip
    assert facts["disk_pages"] == 0  # nothing went past the layer
    assert any("3 equal parts, for a, b, other" in said for said in facts["assumptions"])
    assert {"a", "b", "other"} == {
        row["name"] for row in facts["improvement"] if row["by"] == "tenant"
    }
    for pages, told in (
        (2, "3 parts, for a, b, other: the first 2 have 1 page each, the others 0"),
        (7, "3 parts, for a, b, other: the first has 3 pages, the others 2"),
        (8, "3 parts, for a, b, other: the first 2 have 3 pages each, the others 2"),
    ):
        question = Question(PCM, HDD, Capacity(pages=pages))
        uneven = answers.answer(question, trace, accesses, Destage(), partitioned=True)
        more = [part["capacity"] for part in uneven["layers"]]
        assert sum(more) == pages and more == sorted(more, reverse=True)
        assert any(told in said for said in uneven["assumptions"])
    question = Question(PCM, HDD, Capacity(pages=3))
    whole = answers.answer(question, trace, accesses, Destage())
    assert [part["tenant"] for part in whole["layers"]] == [None]
