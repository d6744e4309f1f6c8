"""Names of threads among the records of blktrace.

The kernel notes the name of a thread once, in the file of the CPU on which the thread runs then
(trace_note_tsk() in kernel/trace/blktrace.c). Its later records may be in the files of other CPUs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.exchange.reading import opened, text
from tracer.probes.compiled import compiled
from tracer.probes.limits import PID_LIMIT

HEAD = 48
"""Bytes of a struct blk_io_trace."""
BLOCK_BYTES = 4 << 20
NAME_BYTES = 16
MOST_NAMES = 1 << 20

_NOTIFY = 1 << 10 + 16
_NAME = 0


@dataclass(frozen=True)
class Names:
    """Names of threads, in order of thread and time."""

    tids: NDArray[np.int64]
    times: NDArray[np.int64]
    names: NDArray[np.uint8]
    """A row of NAME_BYTES for each."""

    def last(self) -> dict[int, str]:
        """Returns the last name of each thread."""
        return {
            tid: text(name.tobytes().split(b"\0")[0])
            for tid, name in zip(self.tids.tolist(), self.names, strict=True)
        }


def names_in(paths: Iterable[Path]) -> Names:
    """Returns the names in these files; those after damage, and beyond MOST_NAMES, are left out."""
    found = []
    left = MOST_NAMES
    for path in paths:
        with opened(path) as file:
            rest, sane = b"", True
            while left and sane and (more := file.read(BLOCK_BYTES)):
                data = rest + more
                notes = np.empty((len(data) // HEAD + 1, 2), np.int64)
                names = np.zeros((len(notes), NAME_BYTES), np.uint8)
                used, count, sane = _notes(np.frombuffer(data, np.uint8), notes, names)
                kept = min(count, left)
                found.append((notes[:kept].copy(), names[:kept].copy()))
                left -= kept
                rest = data[used:]
    if not found:
        return Names(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 16), np.uint8))
    notes = np.concatenate([one for one, _ in found])
    order = np.lexsort((notes[:, 1], notes[:, 0]))
    names = np.concatenate([one for _, one in found])[order]
    return Names(notes[order, 0], notes[order, 1], names)


@compiled
def word(data: Any, at: int, size: int) -> Any:
    """Returns a little-endian number of `size` bytes."""
    value = np.uint64(0)
    for k in range(size):
        value |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return np.int64(value)


@compiled
def _notes(data: Any, notes: Any, names: Any) -> Any:
    """Finds the names in records: rows of (thread, time), and the names.

    Returns (bytes used, names, whether the records are consistent).
    """
    at = 0
    count = 0
    while at + 48 <= len(data):
        if word(data, at, 4) != 0x65617407:
            return at, count, False
        after = at + 48 + word(data, at + 46, 2)
        if after > len(data):
            break
        action = word(data, at + 28, 4)
        tid = word(data, at + 32, 4)
        named = action & _NOTIFY and action & 0xFF == _NAME and tid < PID_LIMIT
        if named and after > at + 48 and data[at + 48] != 0:
            notes[count, 0] = tid
            notes[count, 1] = word(data, at + 8, 8)
            for k in range(min(after - at - 48, 15)):
                names[count, k] = data[at + 48 + k]
            count += 1
        at = after
    return at, count, True


@compiled
def name_at(tids: Any, times: Any, tid: int, time: int) -> Any:
    """Returns the row of the thread's latest name at a time, or else of its first; -1: none."""
    low = 0
    high = len(tids)
    while low < high:
        middle = (low + high) // 2
        if tids[middle] < tid or (tids[middle] == tid and times[middle] <= time):
            low = middle + 1
        else:
            high = middle
    if low > 0 and tids[low - 1] == tid:
        return low - 1
    if low < len(tids) and tids[low] == tid:
        return low
    return -1
