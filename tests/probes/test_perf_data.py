"""Streams of perf record: in time order, with what they lost, whatever they hold."""

import os
import struct

import pytest

from tests.support.perf_stream import DUMMY, PerfStream
from tracer.probes.backends.perf_tools.perf_data import SAMPLE, PerfData
from tracer.probes.errors import BadTrace
from tracer.probes.loss import Gap


def opened(stream, tmp_path):
    return PerfData(stream.write(tmp_path / "perf.data"))


def read(stream, tmp_path):
    """(event, time) of each sample, and the gaps."""
    data = opened(stream, tmp_path)
    samples = [(data.events[r.event], r.time) for r in data.records() if r.type == SAMPLE]
    data.close()
    return samples, data.gaps


def stream_of_one():
    return (
        PerfStream()
        .event("block:block_rq_insert", 7, 8)
        .event("dummy:HG", 9, 10, sample_type=DUMMY)
        .cpus(i7=0, i8=1, i9=0, i10=1)
    )


def test_samples_of_several_cpus_come_in_time_order(tmp_path):
    stream = stream_of_one()
    for time in (10, 30, 50):
        stream.sample(time, [], cpu=0)
    for time in (20, 40, 60):
        stream.sample(time, [], cpu=1, identity=8)
    stream.round().sample(45, [], cpu=1, identity=8).sample(70, [], cpu=0).round()
    samples, gaps = read(stream, tmp_path)
    assert [time for _, time in samples] == [10, 20, 30, 40, 45, 50, 60, 70]
    assert gaps == []


def test_settled_records_are_handed_out_before_the_file_ends(tmp_path):
    stream = stream_of_one()
    for time in range(1, 24):
        stream.sample(time, []).round()
    data = opened(stream, tmp_path)
    samples = data.records()
    assert next(samples).time == 1
    assert data.bytes_read < data.bytes / 2
    assert len(list(samples)) == 22
    data.close()


def test_events_are_told_apart_by_their_ids_and_the_dummy_is_none(tmp_path):
    # A software event has no raw data, and here no period: its chain lies elsewhere.
    stream = PerfStream().event("dummy:HG", 9, sample_type=DUMMY)
    stream.event("block:block_rq_insert", 7).event("page-faults", 5, sample_type=DUMMY | 1 << 8)
    stream.sample(1, [11]).sample(2, [12], identity=5).sample(3, [13], identity=4242)
    samples, _ = read(stream, tmp_path)
    assert samples == [("block:block_rq_insert", 1), ("page-faults", 2)]


def test_bytes_after_tracing_data_are_not_taken_for_records(tmp_path):
    evil = PerfStream().sample(666, []).data[16:]
    stream = stream_of_one().record(66, struct.pack("<II", len(evil), 0))
    stream.data += evil
    stream.sample(1, [])
    assert read(stream, tmp_path) == ([("block:block_rq_insert", 1)], [])


def test_tracing_data_longer_than_a_chunk(tmp_path):
    stream = stream_of_one().record(66, struct.pack("<II", 9 << 20, 0))
    stream.data += b"\0" * (9 << 20)
    stream.sample(1, [])
    assert read(stream, tmp_path)[0] == [("block:block_rq_insert", 1)]


@pytest.mark.parametrize("cut", [1, 7, 8, 20, 60])
def test_a_torn_stream_is_read_up_to_its_last_whole_record(tmp_path, cut):
    stream = stream_of_one().sample(1, []).sample(2, [])
    stream.data = stream.data[:-cut]
    samples, gaps = read(stream, tmp_path)
    assert samples == [("block:block_rq_insert", 1)]
    assert gaps == [Gap("callgraph", 0, 1, None, None, "torn perf data")]


def test_a_record_that_cannot_be_ends_the_reading(tmp_path):
    stream = stream_of_one().sample(1, [])
    stream.data += struct.pack("<IHH", 9, 0, 7)
    stream.sample(2, [])
    samples, gaps = read(stream, tmp_path)
    assert samples == [("block:block_rq_insert", 1)]
    assert [gap.cause for gap in gaps] == ["damaged perf data"]


def test_a_loss_lies_between_the_samples_around_it(tmp_path):
    stream = stream_of_one().sample(10, [], cpu=1, identity=8).sample(12, [], cpu=0)
    stream.lost(50, 23, cpu=1).sample(60, [], cpu=1, identity=8)
    assert read(stream, tmp_path)[1] == [Gap("callgraph", 1, 10, 50, 23, "buffer overrun")]


def test_losses_add_up_to_what_the_kernel_counted_of_the_event(tmp_path):
    """Counts that have times include names of threads; exact counts have no times."""
    stream = stream_of_one().sample(10, []).lost(50, 23).sample(60, []).lost(90, 20)
    stream.lost_samples(7, 41).lost_samples(9, 2).lost_samples(8, 5)
    assert read(stream, tmp_path)[1] == [
        Gap("callgraph", 0, 10, 50, 23, "buffer overrun"),
        Gap("callgraph", 0, 60, 90, 18, "buffer overrun"),
        Gap("callgraph", 1, None, None, 5, "buffer overrun"),
    ]


def test_lost_names_of_threads_are_no_lost_events(tmp_path):
    stream = stream_of_one().sample(10, []).lost(50, 3).lost_samples(9, 3)
    assert read(stream, tmp_path)[1] == []


def test_a_stream_that_ended_before_it_began(tmp_path):
    for size in (0, 5, 15, 16):
        stream = PerfStream()
        stream.data = stream.data[:size]
        assert read(stream, tmp_path) == ([], [])


@pytest.mark.parametrize("head", [b"PERFILE2" + struct.pack("<Q", 104), b"#!/bin/sh\n" * 2])
def test_a_file_that_is_not_a_stream_is_refused(tmp_path, head):
    (tmp_path / "perf.data").write_bytes(head.ljust(200, b"\0"))
    with pytest.raises(BadTrace, match="no stream of perf record"):
        PerfData(tmp_path / "perf.data")


def test_links_and_pipes_are_refused(tmp_path):
    stream_of_one().write(tmp_path / "there")
    (tmp_path / "link").symlink_to("there")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "gone"):
        with pytest.raises(BadTrace):
            PerfData(tmp_path / name)
