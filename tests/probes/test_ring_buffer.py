"""Pages made by hand decode into exactly the events that were put in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pages import HEADER_PAGE, PAGE, Page, enter, payload
from tracer.probes.backends.event_format import CommonFields, parse_page
from tracer.probes.backends.ftrace.page_stream import PageStream
from tracer.probes.backends.timeline import Timeline

LAYOUT = parse_page(HEADER_PAGE)
COMMON = CommonFields(0, 1)


@pytest.fixture
def decode(tmp_path):
    """Decode pages of each CPU; returns (events, timeline)."""

    def run(*streams):
        files = []
        for cpu, pages in enumerate(streams):
            path = tmp_path / f"cpu{cpu}.raw"
            path.write_bytes(b"".join(p if isinstance(p, bytes) else p.bytes() for p in pages))
            files.append(PageStream(f"cpu{cpu}", cpu, path, LAYOUT, COMMON))
        timeline = Timeline(files)
        events = []
        for batch in timeline.batches():
            for i in range(len(batch)):
                start = batch.offset[i]
                raw = batch.payload[start : start + batch.length[i]].tobytes()
                events.append((int(batch.ts[i]), int(batch.cpu[i]), int(batch.tid[i]), raw))
        for file in files:
            file.close()
        return events, timeline

    return run


def test_times_add_up(decode):
    page = Page(1000).event(1000, enter(7, 1)).event(1500, enter(8, 2)).event(1501, enter(7, 3))
    events, _ = decode([page])
    assert [(ts, tid) for ts, _, tid, _ in events] == [(1000, 7), (1500, 8), (1501, 7)]
    assert events[0][3] == enter(7, 1)


def test_a_time_extend_carries_the_high_bits(decode):
    late = 1000 + (1 << 40) + 12345
    events, _ = decode([Page(1000).event(1000, enter(7, 1)).event(late, enter(7, 2))])
    assert [e[0] for e in events] == [1000, late]


def test_an_absolute_time_keeps_the_five_highest_bits(decode):
    start = (3 << 59) + 1000
    page = (
        Page(start)
        .event(start, enter(7, 1))
        .absolute(start + 5000)
        .event(start + 5001, enter(7, 2))
    )
    events, _ = decode([page])
    assert [e[0] for e in events] == [start, start + 5001]


def test_long_events_have_a_length_word(decode):
    body = payload(9, 5, bytes(range(200)))
    events, _ = decode([Page(0).event(10, body).event(11, enter(5, 1))])
    assert events[0][3][:208] == body
    assert events[1][0] == 11


def test_discarded_events_are_passed_over(decode):
    page = Page(0).event(10, enter(1, 1)).discarded(40).event(20, enter(1, 2))
    events, timeline = decode([page])
    assert [e[0] for e in events] == [10, 20]
    assert timeline.damaged == 0


def test_cpus_are_merged_in_time_order(decode):
    a = [Page(0).event(5, enter(1, 1)).event(50, enter(1, 2)), Page(60).event(60, enter(1, 3))]
    b = [Page(1).event(7, enter(2, 1)).event(55, enter(2, 2)).event(900, enter(2, 3))]
    events, _ = decode(a, b)
    assert [(e[0], e[1]) for e in events] == [(5, 0), (7, 1), (50, 0), (55, 1), (60, 0), (900, 1)]


def test_batches_of_any_size_give_the_same_events(decode, monkeypatch):
    rng = np.random.default_rng(23)
    streams = []
    for cpu in range(3):
        now, pages = 0, []
        for _ in range(40):
            page = Page(now)
            for _ in range(int(rng.integers(0, 9))):
                now += int(rng.integers(0, 5000))
                page.event(now, enter(cpu, now % 400))
            pages.append(page)
        streams.append(pages)
    whole, _ = decode(*streams)
    monkeypatch.setattr("tracer.probes.backends.timeline._BATCH_BYTES", 3 * PAGE)
    pieces, timeline = decode(*streams)
    assert len(whole) > 300
    assert sorted(pieces) == sorted(whole)
    assert [e[0] for e in pieces] == sorted(e[0] for e in whole)
    assert timeline.events == len(whole)


def test_lost_events_are_a_gap_with_count_and_place(decode):
    pages = [
        Page(100).event(150, enter(1, 1)),
        Page(900).missed(17).event(950, enter(1, 2)),
        Page(2000).missed(None).event(2001, enter(1, 3)),
    ]
    events, timeline = decode(pages)
    assert len(events) == 3
    assert [(g.start, g.end, g.count) for g in timeline.gaps] == [(100, 900, 17), (900, 2000, None)]


def test_a_damaged_page_is_a_gap_and_the_others_are_read(decode):
    good = Page(0).event(10, enter(1, 1))
    wild = (20).to_bytes(8, "little") + (4000).to_bytes(8, "little") + b"\x05\x00\x00\x00" * 1020
    beyond = (30).to_bytes(8, "little") + (9999).to_bytes(8, "little") + bytes(4080)
    last = Page(40).event(50, enter(1, 2))
    events, timeline = decode([good, wild, beyond, last])
    assert events[0][0] == 10
    assert events[-1][0] == 50
    assert timeline.damaged >= 1
    assert {g.cause for g in timeline.gaps} == {"damaged page"}


def test_a_torn_last_page_is_left_out(decode, tmp_path):
    pages = [Page(0).event(10, enter(1, 1)), Page(20).event(30, enter(1, 2)).bytes()[:100]]
    events, timeline = decode(pages)
    assert [e[0] for e in events] == [10]
    assert timeline.streams[0].torn_bytes == 100


def test_no_streams_give_no_events(decode):
    assert decode()[0] == []
    assert decode([])[0] == []


def test_the_reader_looks_ahead_no_further_than_it_decodes_next(tmp_path):
    """One CPU's pages are all older than the other's: no batch needs both, and order holds."""
    count, most = 5003, 1 << 20
    streams = []
    for cpu in range(2):
        path = tmp_path / f"cpu{cpu}.raw"
        starts = range(cpu * count, (cpu + 1) * count)
        path.write_bytes(b"".join(Page(at).event(at, enter(7, 1)).bytes() for at in starts))
        streams.append(PageStream(f"cpu{cpu}", cpu, path, LAYOUT, COMMON))
    for stream in streams:
        starts, sizes = stream.ahead(most)
        assert (len(starts), int(sizes.sum())) == (most // PAGE + 1, most + PAGE)
    timeline = Timeline(streams)
    batches = list(timeline.batches())
    assert len(batches) == -(-2 * count * PAGE // (8 << 20))
    assert np.concatenate([batch.ts for batch in batches]).tolist() == list(range(2 * count))
    assert timeline.units_read == timeline.units == 2 * count
    assert [len(stream.ahead(most)[0]) for stream in streams] == [0, 0]
    for stream in streams:
        stream.close()


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_any_bytes_decode_without_reading_beyond_the_page(tmp_path_factory, seed, count):
    noise = np.random.default_rng(seed).bytes(count * PAGE)
    pages = [noise[at : at + PAGE] for at in range(0, len(noise), PAGE)]
    path = tmp_path_factory.mktemp("noise") / "cpu0.raw"
    # A sane commit word, so that the noise reaches the event loop.
    path.write_bytes(b"".join(p[:8] + (4080).to_bytes(8, "little") + p[16:] for p in pages))
    stream = PageStream("cpu0", 0, path, LAYOUT, COMMON)
    for batch in Timeline([stream]).batches():
        assert (batch.offset >= 0).all()
        assert (batch.offset + batch.length <= batch.payload.size).all()
        assert (batch.length >= 8).all()
    stream.close()
