"""All streams of a recording in time order, in batches of bounded size.

Pages of all streams are put in the order of their start times; a batch is a run of that order.
No event of a later page is older than that page's start, so everything before the start of the
first page not yet read is complete; the few events after it are carried into the next batch.
Memory is bounded by the batch and by one page a stream, however long the recording.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numba
import numpy as np
from numpy.typing import NDArray

from probes.backends.ftrace.event_format import PageFormat
from probes.backends.ftrace.ring_buffer import (
    MIN_EVENT_BYTES,
    decode_pages,
    header_index,
    missed_count,
    missed_events,
)
from probes.errors import BadTrace
from probes.loss import Gap

_BATCH_BYTES = 8 << 20
_INDEX_BYTES = 4 << 20


@dataclass(frozen=True)
class CommonFields:
    """Where every event has its type and its thread id."""

    type_shift: int
    pid_word: int


@dataclass
class Batch:
    """Events of every stream in time order. Arrays are aligned with each other."""

    ts: NDArray[np.int64]
    type: NDArray[np.uint16]
    """The kernel's event id, by which formats are known."""
    tid: NDArray[np.int32]
    pid: NDArray[np.int32]
    """The thread's process; equal to `tid` until threads are resolved (`threads.py`)."""
    cpu: NDArray[np.int16]
    offset: NDArray[np.int64]
    """Of the event's payload in `payload`, in bytes."""
    length: NDArray[np.int32]
    payload: NDArray[np.uint8]
    launching: NDArray[np.bool_] | None = None
    """Of the recorder's launch of a command: before that command's exec."""
    gaps: list[Gap] = field(default_factory=list)
    """Every gap found so far, in whatever stream."""

    def __len__(self) -> int:
        return len(self.ts)


class StreamFile:
    """One stream's raw file: an index of its pages' start times, and the pages."""

    def __init__(self, name: str, cpu: int, path: Path, layout: PageFormat) -> None:
        self.name = name
        self.cpu = cpu
        self.layout = layout
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                os.close(self._fd)
                raise OSError(errno.EINVAL, "it is no regular file")
        except OSError as error:
            raise BadTrace(
                f"{path} cannot be read: {error.strerror}",
                "the trace is incomplete: copy it again or record again",
            ) from None
        self.bytes = _bytes_before_a_hole(self._fd)
        self.pages = self.bytes // layout.page_bytes
        self.torn_bytes = self.bytes % layout.page_bytes
        self.stamps = np.empty(self.pages, np.int64)
        self.commits = np.empty(self.pages, np.uint32)
        step = max(1, _INDEX_BYTES // layout.page_bytes)
        for first in range(0, self.pages, step):
            last = min(self.pages, first + step)
            found = header_index(
                self.read(first, last), layout.timestamp_offset, layout.commit_offset
            )
            self.stamps[first:last], self.commits[first:last] = found
        # Pages of a damaged file may go back in time; their order of writing then counts.
        self.order_key = np.maximum.accumulate(self.stamps) if self.pages else self.stamps

    def read(self, first: int, last: int) -> NDArray[np.uint8]:
        """Pages `first` up to `last`, one a row."""
        size = self.layout.page_bytes
        data = os.pread(self._fd, (last - first) * size, first * size)
        if len(data) != (last - first) * size:
            raise BadTrace(f"stream {self.name} shrank while it was read", "read it again")
        return np.frombuffer(data, np.uint8).reshape(-1, size)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _bytes_before_a_hole(fd: int) -> int:
    """How much of a file was written in one go: a recorder leaves no holes."""
    size = os.fstat(fd).st_size
    return min(size, os.lseek(fd, 0, os.SEEK_HOLE)) if size else 0


class Timeline:
    """The events of some streams, and where they have gaps."""

    def __init__(self, streams: list[StreamFile], common: CommonFields) -> None:
        self.streams = streams
        self.common = common
        self.gaps: list[Gap] = []
        self.events = 0
        self.damaged_pages = 0
        self._last_seen = [0] * len(streams)
        self._carry: Batch | None = None
        keys = np.concatenate([s.order_key for s in streams] or [np.empty(0, np.int64)])
        owner = np.repeat(np.arange(len(streams)), [s.pages for s in streams])
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._owner = owner[order]
        self.pages = len(order)
        self.pages_read = 0

    @property
    def last_times(self) -> list[tuple[StreamFile, int]]:
        """Each stream with the time of its last event, 0 where it has none."""
        return list(zip(self.streams, self._last_seen, strict=True))

    def batches(self) -> Iterator[Batch]:
        """Batches in time order. `Batch.pid` is the thread id until it is resolved."""
        if not self.streams:
            return
        step = max(1, _BATCH_BYTES // self.streams[0].layout.page_bytes)
        position = [0] * len(self.streams)
        for first in range(0, self.pages, step):
            last = min(self.pages, first + step)
            counts = np.bincount(self._owner[first:last], minlength=len(self.streams))
            parts = [] if self._carry is None else [self._carry]
            for number, count in enumerate(counts):
                if count:
                    begin = position[number]
                    position[number] += int(count)
                    parts.append(self._decode(number, begin, position[number]))
            self.pages_read = last
            horizon = int(self._keys[last]) if last < self.pages else None
            batch = self._in_order(parts, horizon)
            batch.gaps = self.gaps
            if len(batch):
                self.events += len(batch)
                yield batch
        # Only a damaged trace still has something here: times beyond the horizon of all pages.
        if self._carry is not None and len(self._carry):
            batch, self._carry = self._carry, None
            batch.gaps = self.gaps
            self.events += len(batch)
            yield batch

    def _decode(self, number: int, first: int, last: int) -> Batch:
        stream = self.streams[number]
        layout = stream.layout
        pages = stream.read(first, last)
        self._note_gaps(number, pages, first)
        room = pages.size // MIN_EVENT_BYTES
        ts = np.empty(room, np.int64)
        kind = np.empty(room, np.uint16)
        tid = np.empty(room, np.int32)
        offset = np.empty(room, np.int64)
        length = np.empty(room, np.int32)
        n, damaged, seen = decode_pages(
            pages.reshape(-1).view("<u4"),
            layout.page_bytes // 4,
            last - first,
            stream.stamps[first:last],
            stream.commits[first:last],
            layout.data_offset,
            self.common.type_shift,
            self.common.pid_word,
            ts,
            kind,
            tid,
            offset,
            length,
        )
        if damaged:
            self.damaged_pages += damaged
            start = int(stream.stamps[first])
            end = int(stream.stamps[last]) if last < stream.pages else None
            self.gaps.append(Gap(stream.name, stream.cpu, start, end, None, "damaged page"))
        if seen:
            self._last_seen[number] = int(seen)
        return Batch(
            ts[:n],
            kind[:n],
            tid[:n],
            tid[:n],
            np.full(n, stream.cpu, np.int16),
            offset[:n],
            length[:n],
            pages.reshape(-1),
        )

    def _note_gaps(self, number: int, pages: NDArray[np.uint8], first: int) -> None:
        stream = self.streams[number]
        commits = stream.commits[first : first + len(pages)]
        for at in np.flatnonzero(commits & np.uint32(1 << 31)):
            commit = int(commits[at])
            if not missed_events(commit):
                continue
            page = first + int(at)
            # Lost between the last event before this page, which began no earlier than the
            # page before, and the page's own start.
            before = int(stream.stamps[page - 1]) if page else None
            count = missed_count(pages[at], commit, stream.layout.data_offset)
            here = int(stream.stamps[page])
            self.gaps.append(Gap(stream.name, stream.cpu, before, here, count, "buffer overrun"))

    def _in_order(self, parts: list[Batch], horizon: int | None) -> Batch:
        sizes = [part.payload.size for part in parts]
        starts = np.cumsum([0, *sizes[:-1]])
        ts = np.concatenate([p.ts for p in parts])
        order = np.argsort(ts, kind="stable")
        ts = ts[order]
        whole = Batch(
            ts,
            np.concatenate([p.type for p in parts])[order],
            np.concatenate([p.tid for p in parts])[order],
            np.concatenate([p.pid for p in parts])[order],
            np.concatenate([p.cpu for p in parts])[order],
            np.concatenate([p.offset + s for p, s in zip(parts, starts, strict=True)])[order],
            np.concatenate([p.length for p in parts])[order],
            np.concatenate([p.payload for p in parts]),
        )
        ready = len(ts) if horizon is None else int(np.searchsorted(ts, horizon))
        self._carry = _compact(_rows(whole, slice(ready, None))) if ready < len(ts) else None
        return _rows(whole, slice(0, ready))


def _rows(batch: Batch, rows: slice) -> Batch:
    return Batch(
        batch.ts[rows],
        batch.type[rows],
        batch.tid[rows],
        batch.pid[rows],
        batch.cpu[rows],
        batch.offset[rows],
        batch.length[rows],
        batch.payload,
    )


def _compact(batch: Batch) -> Batch:
    """The same events with a payload that holds nothing else."""
    ends = np.cumsum(batch.length, dtype=np.int64)
    offset = ends - batch.length
    payload = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    _copy_payloads(batch.payload, batch.offset, batch.length, payload, offset)
    return Batch(
        batch.ts.copy(),
        batch.type.copy(),
        batch.tid.copy(),
        batch.pid.copy(),
        batch.cpu.copy(),
        offset,
        batch.length.copy(),
        payload,
    )


@numba.njit(cache=True, nogil=True)
def _copy_payloads(
    source: NDArray[np.uint8],
    offset: NDArray[np.int64],
    length: NDArray[np.int32],
    target: NDArray[np.uint8],
    at: NDArray[np.int64],
) -> None:
    for i in range(len(offset)):
        for k in range(length[i]):
            target[at[i] + k] = source[offset[i] + k]
