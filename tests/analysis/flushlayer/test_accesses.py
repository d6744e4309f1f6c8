"""The accesses that count as write-backs of pages."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.trace.accesses import page_writebacks
from tracer.probes.errors import BadTrace


def bio(ts, sector, nr_sector, rwbs="W", dev="254:0", tid=1):
    return {
        "ts": ts,
        "tid": tid,
        "event": "bio_queue",
        "dev": dev,
        "sector": sector,
        "nr_sector": nr_sector,
        "rwbs": rwbs,
    }


def test_a_bio_of_n_pages_is_n_write_backs(tmp_path):
    events = [bio(1, 0, 24), bio(2, 8, 8), bio(3, 0, 8, dev="7:0"), bio(4, 16, 8, "R")]
    with make_trace(tmp_path / "t", {"block": events}) as trace:
        found = page_writebacks(trace)
        only = page_writebacks(trace, ["7:0"])
    assert found.page.tolist() == [0, 1, 2, 1, 3]
    assert found.unique == 4
    assert found.by_device == {"254:0": 4, "7:0": 1}
    assert (len(only), only.unique) == (1, 1)


def test_the_recorders_own_files_are_left_out(tmp_path):
    tables = {
        "block": [bio(5, 0, 8, tid=50), bio(15, 80, 16, tid=50)],
        "writeback": [{"ts": 1, "tid": 50, "event": "start", "reason": "sync"}],
        "inode_writeback": [
            {"ts": 2, "tid": 50, "event": "start", "dev": "254:0", "ino": 11},
            {"ts": 12, "tid": 50, "event": "start", "dev": "254:0", "ino": 12},
        ],
    }
    with make_trace(tmp_path / "t", tables, own_files={"254:0": [12]}) as trace:
        found = page_writebacks(trace)
    assert (len(found), found.own, found.by_reason) == (1, 2, {"sync": 1})


def test_a_trace_that_claims_too_much_is_refused(tmp_path):
    events = [bio(1, 0, 1 << 40)]
    with (
        make_trace(tmp_path / "t", {"block": events}) as trace,
        pytest.raises(BadTrace, match="has a bio with more than"),
    ):
        page_writebacks(trace)


def test_sectors_at_the_end_of_the_number_range(tmp_path):
    events = [bio(1, (1 << 64) - 8, 8), bio(2, (1 << 63), 8), bio(3, (1 << 64) - 8, 8)]
    with make_trace(tmp_path / "t", {"block": events}) as trace:
        assert page_writebacks(trace).page.tolist() == [0, 1, 0]


def test_reads_and_flushes_leave_pages_at_the_end_of_the_number_range_apart(tmp_path):
    far = [(1 << 64) - 8, 1 << 63, (1 << 63) + 8]
    events = [bio(ts, sector, 8) for ts, sector in enumerate(far)]
    events += [bio(10 + ts, sector, 8, "R") for ts, sector in enumerate([*far, (1 << 63) + 16])]
    events += [bio(20, 0, 0, "FF"), bio(21, None, 8, "R")]
    with make_trace(tmp_path / "t", {"block": events}) as trace:
        found = page_writebacks(trace, reads=True, flushes_too=True)
        assert found.page.tolist() == [0, 1, 2, 0, 1, 2, 3]
        assert found.bios.sector.tolist() == [*far, *far, (1 << 63) + 16, 0]
        assert page_writebacks(trace, flushes_too=True).page.tolist() == [0, 1, 2]
        assert page_writebacks(trace, reads=True).page.tolist() == [0, 1, 2, 0, 1, 2, 3]
