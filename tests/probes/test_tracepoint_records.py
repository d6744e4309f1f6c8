"""perf's samples of tracepoints, by hand: events, losses, and records that do not hold together."""

import struct

import numpy as np
import pytest

from tracer.probes.backends.event_format import CommonFields
from tracer.probes.backends.perf_events.tracepoints import decoder

SAMPLE, LOST, COMM = 9, 2, 3
DECODE = decoder(CommonFields(0, 1))


def record(kind, body):
    body += bytes(-len(body) % 8)
    return struct.pack("<IHH", kind, 0, 8 + len(body)) + body


def trailer(ts, cpu=0):
    return struct.pack("<iiQII", 1, 1, ts, cpu, 0)


def sample(ts, cpu, event, tid, payload, raw_size=None):
    raw = struct.pack("<HBBi", event, 0, 0, tid) + payload
    raw += bytes(-(len(raw) + 4) % 8)
    size = len(raw) if raw_size is None else raw_size
    return record(SAMPLE, struct.pack("<iiQIII", 99, tid, ts, cpu, 0, size) + raw)


def decode(*records):
    return DECODE(np.frombuffer(b"".join(records), np.uint8))


def test_an_event_has_its_type_its_thread_and_its_own_bytes():
    batch, damaged, losses = decode(
        sample(100, 1, 23, 7, b"abcdefgh"), sample(200, 0, 29, 11, b"xy")
    )
    assert (damaged, losses) == (0, [])
    assert batch.ts.tolist() == [100, 200]
    assert batch.type.tolist() == [23, 29]
    assert batch.tid.tolist() == [7, 11]
    assert batch.cpu.tolist() == [1, 0]
    first = batch.payload[batch.offset[0] : batch.offset[0] + batch.length[0]].tobytes()
    assert first[8:16] == b"abcdefgh"  # behind the fields that all events have


def test_a_loss_lies_between_the_records_around_it():
    lost = record(LOST, struct.pack("<QQ", 5, 31) + trailer(250))
    batch, damaged, losses = decode(sample(100, 1, 23, 7, b""), lost, sample(300, 1, 23, 7, b""))
    assert len(batch) == 2
    assert damaged == 0
    assert losses == [(100, 250, 31)]


def test_other_records_are_passed_over():
    batch, damaged, _ = decode(record(COMM, bytes(16) + trailer(50)), sample(60, 0, 1, 1, b""))
    assert (len(batch), damaged) == (1, 0)


@pytest.mark.parametrize(
    "broken",
    [
        sample(1, 0, 1, 1, b"", raw_size=4000),  # says more than the record holds
        sample(1, 0, 1, 1, b"", raw_size=2),  # no room for a thread id
        record(SAMPLE, bytes(40))[:-8],  # cut
        struct.pack("<IHH", SAMPLE, 0, 0) + bytes(8),  # would never end
        struct.pack("<IHH", SAMPLE, 0, 13) + bytes(8),
    ],
)
def test_a_record_that_does_not_hold_together_ends_the_chunk(broken):
    batch, damaged, _ = decode(sample(100, 1, 23, 7, b""), broken, sample(300, 1, 23, 7, b""))
    assert damaged == 1
    assert batch.ts.tolist() == [100]
