"""Events of one time keep the order in which they were recorded."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks

PAGES = 2_000
ROUNDS = 3


def bio(ts, page):
    return {
        "ts": ts,
        "event": "bio_queue",
        "dev": "8:0",
        "sector": 8 * page,
        "nr_sector": 8,
        "rwbs": "W",
    }


@pytest.mark.parametrize("identity", Identity)
def test_pages_written_in_turn_at_one_time_are_accessed_in_turn(tmp_path, identity):
    events = [bio(1000 * turn, page) for turn in range(ROUNDS) for page in range(PAGES)]
    with make_trace(tmp_path / "t", {"block": events}) as trace:
        accesses = page_writebacks(trace, identity=identity)
    assert accesses.page.tolist() == [*range(PAGES)] * ROUNDS


def test_reads_and_flushes_are_among_writes_where_they_were_recorded(tmp_path):
    events = []
    for page in range(PAGES):
        events += [bio(7, page), {**bio(7, page), "rwbs": "R"}]
        events.append({**bio(7, 0), "nr_sector": 0, "rwbs": "FWS"})
    with make_trace(tmp_path / "t", {"block": events}) as trace:
        bios = page_writebacks(trace, reads=True, flushes_too=True).bios
    kinds = zip(bios.write.tolist(), bios.pages.tolist(), bios.sector.tolist(), strict=True)
    expected = [
        kind
        for page in range(PAGES)
        for kind in ((True, 1, 8 * page), (False, 1, 8 * page), (True, 0, 0))
    ]
    assert list(kinds) == expected
