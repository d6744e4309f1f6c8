"""Records of system calls: their ring, how it is drained, and how they are decoded."""

import mmap
import os
import struct
import threading

import numpy as np
import pytest

from tracer.probes.backends import chunks
from tracer.probes.backends.chunks import ChunkStream
from tracer.probes.backends.own_bpf.programs import CLAIMED, LOST, STATE, TAKEN
from tracer.probes.backends.own_bpf.records import BLOCK, complete_records, decoder
from tracer.probes.backends.own_bpf.ring import RecordRing
from tracer.probes.backends.timeline import Timeline

SIZE = 4 * BLOCK
ENTRY, EXIT = 72, 32
ENTER_ID, EXIT_ID = 443, 442


def record(ts, tid, size=ENTRY, event=ENTER_ID):
    return struct.pack("<IHHQ", tid, event, size, ts).ljust(size, b"\x11")


class Kernel:
    """A program's part of a ring: it claims room and writes records as the programs do."""

    def __init__(self, tmp_path, first=0):
        self.memory = mmap.mmap(-1, SIZE)
        self.state = np.zeros(STATE // 8, np.uint64)
        self.state[CLAIMED // 8] = self.state[TAKEN // 8] = first
        self.path = tmp_path / "calls.raw"
        self.ring = self.source()
        self.number = 0

    def source(self):
        return RecordRing(1, self.path, self.memory, self.state, -1, lambda: 3)

    def successor(self):
        """Returns the source as it was before the first event: the guardian is forked then."""
        self.path.rename(self.path.with_suffix(".kept"))
        made = self.source()
        made.path.unlink()
        self.path.with_suffix(".kept").rename(self.path)
        os.close(made.sink)
        made.sink = os.open(self.path, os.O_WRONLY)
        return made

    def claim(self, size=ENTRY):
        at = int(self.state[CLAIMED // 8])
        if BLOCK - at % BLOCK < ENTRY:
            at += BLOCK - at % BLOCK
        if at + size - int(self.state[TAKEN // 8]) > SIZE:
            self.state[LOST // 8] += 1
            return None
        self.state[CLAIMED // 8] = at + size
        return at

    def write(self, at, size=ENTRY, event=ENTER_ID):
        self.number += 1
        data = record(self.number, 7, size, event)
        self.memory[at % SIZE : at % SIZE + size] = data

    def log(self, count, size=ENTRY, event=ENTER_ID):
        for _ in range(count):
            if (at := self.claim(size)) is not None:
                self.write(at, size, event)

    def times(self):
        """Returns the times of the file's events, and the timeline."""
        stream = ChunkStream("calls", 1, self.path, decoder(1))
        timeline = Timeline([stream])
        found = [int(ts) for batch in timeline.batches() for ts in batch.ts]
        stream.close()
        return found, timeline


@pytest.fixture
def kernel(tmp_path):
    made = Kernel(tmp_path)
    yield made
    made.ring.close()


def test_events_have_their_thread_id_and_fields(tmp_path):
    data = record(5, 70) + bytes(16) + record(9, 71, EXIT, EXIT_ID)
    batch, damaged, losses = decoder(3)(np.frombuffer(data, np.uint8))
    assert (damaged, losses) == (0, [])
    assert batch.ts.tolist() == [5, 9]
    assert batch.tid.tolist() == batch.pid.tolist() == [70, 71]
    assert batch.type.tolist() == [ENTER_ID, EXIT_ID]
    assert batch.cpu.tolist() == [3, 3]
    assert batch.length.tolist() == [8 + 56, 8 + 16]
    fields = [
        batch.payload[o + 8 : o + n].tobytes()
        for o, n in zip(batch.offset, batch.length, strict=True)
    ]
    assert fields == [b"\x11" * 56, b"\x11" * 16]


@pytest.mark.parametrize(
    "data",
    [
        record(1, 7)[:-8],  # its end is missing
        struct.pack("<IHHQ", 7, 442, 16, 1),  # shorter than any record
        struct.pack("<IHHQ", 7, 442, 36, 1) + bytes(40),  # not whole words
    ],
)
def test_records_after_a_damaged_one_are_not_read(data):
    batch, damaged, _ = decoder(0)(np.frombuffer(record(1, 6) + data, np.uint8))
    assert damaged == 1
    assert batch.tid.tolist() == [6]


def test_an_incomplete_record_ends_the_run(kernel):
    kernel.log(2)
    open_one = kernel.claim()
    kernel.log(3)
    assert kernel.ring.move() == 2 * ENTRY
    assert kernel.ring.move() == 0
    kernel.write(open_one)
    assert kernel.ring.move() == 4 * ENTRY
    assert sorted(kernel.times()[0]) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("first", [0, 13 * SIZE + BLOCK - 40, 7 * SIZE - ENTRY])
def test_records_pass_the_ends_of_blocks_and_of_the_ring(tmp_path, first):
    kernel = Kernel(tmp_path, first)
    rng = np.random.default_rng(23)
    for _ in range(200):
        for _ in range(int(rng.integers(0, 60))):
            kernel.log(1, *((ENTRY, ENTER_ID) if rng.random() < 0.5 else (EXIT, EXIT_ID)))
        kernel.ring.move()
    kernel.ring.move_last()
    kernel.ring.close()
    found, timeline = kernel.times()
    assert found == list(range(1, kernel.number + 1))
    assert not timeline.gaps


def test_room_that_was_given_back_is_clear(kernel):
    kernel.log(100)
    kernel.ring.move()
    assert kernel.memory[:] == bytes(SIZE)


def test_records_without_room_are_counted(kernel):
    kernel.log(3)
    kernel.ring.move()
    kernel.log(500)
    kernel.ring.move_last()
    found, timeline = kernel.times()
    assert 200 < len(found) < 300
    (gap,) = timeline.gaps
    assert (gap.cpu, gap.count, gap.cause) == (1, 503 - len(found), "buffer full")
    assert kernel.ring.stats() == {
        "read bytes": kernel.ring.written,
        "missed": 3,
        "dropped events": gap.count,
        "entries": 0,
    }


def test_records_that_stay_in_the_ring_are_counted(kernel):
    kernel.log(30, EXIT, EXIT_ID)
    kernel.ring.move()
    kernel.log(400, EXIT, EXIT_ID)
    assert kernel.ring.stats()["entries"] == 400
    kernel.claim()
    kernel.log(5)
    assert kernel.ring.stats()["entries"] == 400 + 1


def test_a_run_is_not_longer_than_what_was_claimed():
    words = np.frombuffer(record(1, 7) * 2 + bytes(SIZE - 2 * ENTRY), np.uint64)
    assert complete_records(words, 0, ENTRY) == (ENTRY, 1)
    end = 9 * SIZE + 2 * ENTRY
    assert complete_records(words, 9 * SIZE, end) == (end, 2)


@pytest.mark.parametrize("cleared", [0, 8, 5 * ENTRY])
def test_a_successor_takes_no_record_twice(kernel, cleared):
    """The recorder was killed after it had written a chunk, as it gave the room back."""
    kernel.log(5)
    kept = kernel.memory[: 5 * ENTRY]
    kernel.ring.move()
    kernel.memory[cleared : 5 * ENTRY] = kept[cleared:]
    kernel.state[TAKEN // 8] = 0
    kernel.log(2)
    take_all(kernel)
    assert kernel.times()[0] == [1, 2, 3, 4, 5, 6, 7]


def take_all(kernel):
    successor = kernel.successor()
    successor.take_over()
    successor.move_last()
    successor.close()


def test_a_successor_takes_what_an_incomplete_chunk_lacks(kernel):
    kernel.log(5)
    kept = kernel.memory[: 5 * ENTRY]
    kernel.ring.move()
    kernel.memory[: 5 * ENTRY] = kept
    kernel.state[TAKEN // 8] = 0
    with kernel.path.open("r+b") as file:
        file.truncate(chunks.HEADER.itemsize + 2 * ENTRY)
    take_all(kernel)
    assert kernel.times()[0] == [1, 2, 3, 4, 5]


def test_losses_are_counted_once_by_recorder_and_successor(kernel):
    kernel.log(500)
    kernel.ring.move_last()
    kernel.log(500)
    take_all(kernel)
    found, timeline = kernel.times()
    assert len(found) + sum(gap.count for gap in timeline.gaps) == 1000
    assert len(timeline.gaps) == 2


def test_the_end_awaits_a_record_that_is_being_written(kernel):
    kernel.log(2)
    at = kernel.claim()
    writer = threading.Timer(0.02, kernel.write, [at])
    writer.start()
    kernel.ring.move_last()
    writer.join()
    assert kernel.times()[0] == [1, 2, 3]
