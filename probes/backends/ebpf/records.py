"""The decoder of the records of the BPF rings. Layout: `struct head` in capture.bpf.c.

In the ring, an 8-byte header with the length precedes each record (kernel/bpf/ringbuf.c). The
last eight bytes of `struct head` take the place of a tracepoint's common fields, so the event's
own format file describes the rest of the record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends.chunks import Losses
from tracer.probes.backends.timeline import Batch, room_for, rows_of
from tracer.probes.compiled import compiled

BUSY, DISCARDED = 1 << 31, 1 << 30
_RING_HEAD, HEAD, COMMON = 8, 24, 8


def decode(data: NDArray[np.uint8]) -> tuple[Batch, int, Losses]:
    """Returns the events of whole records, in the order of their reservation in the ring."""
    events = room_for(len(data) // (_RING_HEAD + HEAD), data)
    words = data[: len(data) // 8 * 8].view("<u4")
    n, damaged = _decode(
        words,
        events.ts,
        events.type,
        events.tid,
        events.pid,
        events.cpu,
        events.offset,
        events.length,
    )
    return rows_of(events, slice(0, n)), damaged, []


@compiled
def _decode(
    words: Any, ts: Any, kind: Any, tid: Any, pid: Any, cpu: Any, offset: Any, length: Any
) -> Any:
    n = 0
    at: Any = 0
    while at + 2 <= len(words):
        head = np.int64(words[at])
        size = head & (DISCARDED - 1)
        after = at + 2 + (size + 7) // 8 * 2
        if head & BUSY or after > len(words):
            return n, 1
        if not head & DISCARDED:
            if size < HEAD:
                return n, 1
            ts[n] = np.int64(words[at + 2]) | np.int64(words[at + 3]) << 32
            tid[n] = np.int64(words[at + 4])
            pid[n] = np.int64(words[at + 5])
            kind[n] = np.int64(words[at + 6]) & 0xFFFF
            cpu[n] = np.int64(words[at + 6]) >> 16
            offset[n] = at * 4 + _RING_HEAD + HEAD - COMMON
            length[n] = size - HEAD + COMMON
            n += 1
        at = after
    return n, int(at != len(words))


@compiled
def whole_records(words: Any, begin: int, end: int, size: int) -> Any:
    """Returns (end, number) of the run of finished records that starts at `begin`.

    Discarded records do not count.

    Positions count all bytes that the ring has held, so they never wrap. `size` is the ring's.
    """
    n = 0
    at: Any = begin
    while at < end:
        head = np.int64(words[(at % size) // 4])
        if head & BUSY:
            return at, n
        n += not head & DISCARDED
        at += _RING_HEAD + ((head & (DISCARDED - 1)) + 7) // 8 * 8
    return at, n
