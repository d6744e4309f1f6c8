"""perf's samples of tracepoints, by hand: events, losses, and records that do not hold together."""

import random
import struct

import numpy as np
import pytest

from tracer.probes.backends import event_format
from tracer.probes.backends.event_format import CommonFields
from tracer.probes.backends.perf_events import records
from tracer.probes.backends.perf_events.tracepoints import decoder

SAMPLE, LOST, COMM = 9, 2, 3
KERNEL, USER = (1 << 64) - 128, (1 << 64) - 512
"""Marks in a call chain: PERF_CONTEXT_KERNEL and PERF_CONTEXT_USER."""
DECODE = decoder(CommonFields(0, 1))
DECODE_CHAINS = decoder(CommonFields(0, 1), chains=True)


def record(kind, body):
    body += bytes(-len(body) % 8)
    return struct.pack("<IHH", kind, 0, 8 + len(body)) + body


def trailer(ts, cpu=0):
    return struct.pack("<iiQII", 1, 1, ts, cpu, 0)


def sample(ts, cpu, event, tid, payload, raw_size=None, chain=b""):
    raw = struct.pack("<HBBi", event, 0, 0, tid) + payload
    raw += bytes(-(len(raw) + 4) % 8)
    size = len(raw) if raw_size is None else raw_size
    head = struct.pack("<iiQII", 99, tid, ts, cpu, 0)
    return record(SAMPLE, head + chain + struct.pack("<I", size) + raw)


def chain_of(*entries, count=None):
    told = len(entries) if count is None else count
    return struct.pack(f"<{len(entries) + 1}Q", told, *entries)


def decode(*records, by=DECODE):
    return by(np.frombuffer(b"".join(records), np.uint8))


def stacks_of(batch):
    """The addresses in the stacks of a batch, by the place of the event before each."""
    told = event_format.parse(records.STACK, records.format_text(records.STACK))
    at = told.field("caller").offset
    return {
        place - 1: np.frombuffer(batch.payload[begin + at : begin + size].tobytes(), "<u8").tolist()
        for place, (kind, begin, size) in enumerate(
            zip(batch.type.tolist(), batch.offset.tolist(), batch.length.tolist(), strict=True)
        )
        if kind == told.id
    }


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


def test_the_kernel_s_part_of_a_chain_is_an_event_of_its_own():
    batch, damaged, losses = decode(
        sample(100, 1, 23, 7, b"abcdefgh", chain=chain_of(KERNEL, 11, 12, 13)),
        sample(200, 0, 29, 11, b"xy", chain=chain_of()),
        sample(300, 0, 23, 13, b"", chain=chain_of(KERNEL, 14)),
        by=DECODE_CHAINS,
    )
    assert (damaged, losses) == (0, [])
    assert batch.ts.tolist() == [100, 100, 200, 300, 300]
    assert batch.cpu.tolist() == [1, 1, 0, 0, 0]
    assert batch.tid.tolist() == [7, 7, 11, 13, 13]
    stack = records.STACK_ID
    assert batch.type.tolist() == [23, stack, 29, 23, stack]
    assert stacks_of(batch) == {0: [11, 12, 13], 3: [14]}
    first = batch.payload[batch.offset[0] : batch.offset[0] + batch.length[0]].tobytes()
    assert first[8:16] == b"abcdefgh"


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        ((KERNEL, 1, 2, USER, 3), {0: [1, 2]}),
        ((KERNEL, 1, KERNEL, 2), {0: [1]}),
        ((KERNEL, 1, (1 << 64) - 1), {0: [1]}),
        ((KERNEL, (1 << 64) - 4096), {0: [(1 << 64) - 4096]}),  # below all marks
        ((KERNEL, 0), {0: [0]}),
        ((KERNEL,), {}),
        ((KERNEL, USER, 3), {}),
        ((KERNEL, (1 << 64) - 4095), {}),
        ((USER, 3, KERNEL, 4), {}),
        ((3, 4), {}),
    ],
)
def test_marks_are_no_functions_and_other_parts_are_not_kept(entries, kept):
    batch, damaged, _ = decode(
        sample(100, 1, 23, 7, b"", chain=chain_of(*entries)), by=DECODE_CHAINS
    )
    assert damaged == 0
    assert stacks_of(batch) == kept
    assert len(batch) == 1 + len(kept)


CHAINED = sample(100, 1, 23, 7, b"abcdefgh", chain=chain_of(KERNEL, 11, 12))


@pytest.mark.parametrize(
    "broken",
    [
        sample(1, 0, 1, 1, b"", chain=chain_of(KERNEL, 1, count=count))
        for count in (3, 4, 5, 1000, 1 << 31, 1 << 32, (1 << 61) - 1, 1 << 63, (1 << 64) - 1)
    ]
    + [
        sample(1, 0, 1, 1, b"", raw_size=4000, chain=chain_of(KERNEL, 1)),
        sample(1, 0, 1, 1, b"", raw_size=2, chain=chain_of(KERNEL, 1)),
    ],
)
def test_a_chain_that_does_not_hold_together_ends_the_chunk(broken):
    batch, damaged, _ = decode(CHAINED, broken, CHAINED, by=DECODE_CHAINS)
    assert damaged == 1
    assert batch.ts.tolist() == [100, 100]


@pytest.mark.parametrize("size", range(1, len(CHAINED)))
def test_a_record_that_is_cut_off_is_damage(size):
    batch, damaged, _ = decode(CHAINED, CHAINED[:size], by=DECODE_CHAINS)
    assert (batch.ts.tolist(), damaged) == ([100, 100], 1)


@pytest.mark.parametrize("size", range(8, len(CHAINED), 8))
def test_a_sample_that_is_too_short_for_its_chain_has_neither_event_nor_stack(size):
    short = bytearray(CHAINED[:size])
    short[6:8] = size.to_bytes(2, "little")
    batch, _, _ = decode(bytes(short), by=DECODE_CHAINS)
    assert len(batch) == 0


def test_chains_of_any_bytes_stay_within_their_record():
    chance = random.Random(11)
    for _ in range(3000):
        data = bytearray(CHAINED * 3)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 7, 127, 128, 255))
        batch, _, _ = decode(bytes(data), by=DECODE_CHAINS)
        ends = batch.offset + batch.length
        assert ((batch.offset >= 0) & (batch.length >= 0) & (ends <= len(data))).all()
