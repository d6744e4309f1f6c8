"""The layout and the decoder of the records.

A record is the thread (u32), the event's id (u16), the record's length in bytes (u16), the time
(u64 ns), then the fields of the event after its common ones, as its format file describes them.
The time takes the place of the common fields, so the payload begins there.

A record lies within one block of the ring. The rest of a block that is too short for an entry stays
0, and a record's first word is 0 until the record is complete.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends.chunks import Decoder, Losses
from tracer.probes.backends.timeline import Batch, room_for, rows_of
from tracer.probes.compiled import compiled

SAMPLES = "programs"
"""The manifest's name of these records."""
BLOCK = 4096
HEAD, COMMON = 16, 8
ENTRY, EXIT, FAULT, SIGNAL = HEAD + 56, HEAD + 16, HEAD + 24, HEAD + 40
"""Bytes of records: of the entry of a system call (number, six arguments), of its exit (number,
result), of a page fault (address, instruction, error code) and of a signal. The first is the
largest, the second the smallest."""


def decoder(cpu: int) -> Decoder:
    """Returns the decoder of the records of a CPU."""

    def decode(data: NDArray[np.uint8]) -> tuple[Batch, int, Losses]:
        events = room_for(len(data) // EXIT, data)
        words = data[: len(data) // 8 * 8].view("<u8")
        n, damaged = _decode(
            words, events.ts, events.type, events.tid, events.offset, events.length
        )
        events.pid[:n] = events.tid[:n]
        events.cpu[:n] = cpu
        return rows_of(events, slice(0, n)), damaged, []

    return decode


@compiled
def _decode(words: Any, ts: Any, kind: Any, tid: Any, offset: Any, length: Any) -> Any:
    n = 0
    at: Any = 0
    while at < len(words):
        head = words[at]
        if head == 0:  # the rest of a block
            at += 1
            continue
        size = np.int64(head >> np.uint64(48))
        if size < EXIT or size % 8 or at + size // 8 > len(words):
            return n, 1
        tid[n] = np.int64(head & np.uint64(0xFFFFFFFF))
        kind[n] = np.int64(head >> np.uint64(32)) & 0xFFFF
        ts[n] = np.int64(words[at + 1])
        offset[n] = at * 8 + HEAD - COMMON
        length[n] = size - HEAD + COMMON
        n += 1
        at += size // 8
    return n, 0


@compiled
def complete_records(words: Any, begin: int, end: int) -> Any:
    """Returns (end, number) of the run of complete records that starts at `begin`.

    Positions are in bytes. They count all bytes that the ring has held, so they never wrap.
    """
    size = len(words) * 8
    n = 0
    at: Any = begin
    while at < end:
        left = BLOCK - at % BLOCK
        if left < ENTRY:
            at += left
            continue
        head = words[at % size // 8]
        if head == 0:
            return at, n
        at += max(8, np.int64(head >> np.uint64(48)))
        n += 1
    return min(at, end), n
