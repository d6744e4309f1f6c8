"""The events of all streams of a recording in time order, in batches of bounded size.

A stream's file consists of units (ring-buffer pages or chunks). A batch is a run of the units of
all streams, sorted by start time. No event is older than the start of its unit, so all events
before the start of the first unread unit are known; the few later events are carried into the
next batch. Each stream is indexed only as far ahead as the next batch can reach. Memory therefore
depends on the size of a batch, not on the length of the recording.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled
from tracer.probes.errors import BadTrace
from tracer.probes.limits import CPU_LIMIT, PID_LIMIT, TIME_LIMIT
from tracer.probes.loss import Gap
from tracer.probes.openat import open_regular

_BATCH_BYTES = 8 << 20


@dataclass
class Batch:
    """Events of all streams in time order. Item i of every array belongs to event i."""

    ts: NDArray[np.int64]
    type: NDArray[np.uint16]
    """The kernel's event id, which identifies the event's format."""
    tid: NDArray[np.int32]
    pid: NDArray[np.int32]
    """Process of the thread. It equals `tid` until threads are resolved (`threads.py`)."""
    cpu: NDArray[np.signedinteger]
    """CPU number: int32 as decoded, int16 once its range has been checked."""
    offset: NDArray[np.int64]
    """Offset of the event's payload in `payload`, in bytes."""
    length: NDArray[np.int32]
    payload: NDArray[np.uint8]
    launching: NDArray[np.bool_] | None = None
    """True for events of the recorder's launch of a command, before the command's exec."""
    target: NDArray[np.int16] | None = None
    """Number of the target of the process; 0: none. In a newtask event: the child's target."""
    wanted: NDArray[np.bool_] | None = None
    """True for events of a target. None: all events are wanted."""
    moves: list[Move] = field(default_factory=list)
    """Moves of processes from one target to another, in order of their events."""
    gaps: list[Gap] = field(default_factory=list)
    """Gaps found so far in all streams."""

    def __len__(self) -> int:
        return len(self.ts)


class Move(NamedTuple):
    """A process, and the number of the target that it belongs to from an event of the batch on."""

    row: int
    """Number of that event; as many as there are events: the process moves after all of them."""
    pid: int
    target: int
    cgroup: str | None
    """Path of the process's cgroup, if known."""


def room_for(events: int, payload: NDArray[np.uint8]) -> Batch:
    """Returns a batch with uninitialized arrays for a decoder to fill."""
    return Batch(
        np.empty(events, np.int64),
        np.empty(events, np.uint16),
        np.empty(events, np.int32),
        np.empty(events, np.int32),
        np.empty(events, np.int32),
        np.empty(events, np.int64),
        np.empty(events, np.int32),
        payload,
    )


def no_events() -> Batch:
    """Returns a batch without events."""
    return room_for(0, np.empty(0, np.uint8))


class RawStream(Protocol):
    """One raw file. It consists of units; no event of a unit is older than the unit's start."""

    name: str
    torn_bytes: int
    """Bytes of an incomplete unit at the end of the file."""
    events: int
    """Number of events decoded so far."""
    last_seen: int
    """Time in ns of the last event decoded so far; 0 if there is none."""
    full: list[tuple[int, int]]
    """Time spans (ns) in which the buffer was seen full."""
    damaged: int
    """Number of damaged units decoded so far."""
    gaps: list[Gap]
    """Gaps found so far."""

    @property
    def cpu(self) -> int:
        """CPU of the events; -1: all CPUs."""
        ...

    @property
    def units(self) -> int:
        """Number of units of the whole file."""
        ...

    def ahead(self, more_than: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the start times and the bytes of the next units.

        The units together are larger than `more_than` bytes, unless they are all that are left.
        Start times never decrease.
        """
        ...

    def decode(self, units: int) -> Batch:
        """Returns the events of the next units; `pid` is set if the stream records it."""
        ...

    def close(self) -> None:
        """Closes the file."""
        ...


def open_raw(path: Path) -> tuple[int, int]:
    """Opens a raw file for reading; returns (fd, bytes). Raises BadTrace if that fails."""
    try:
        fd = open_regular(path)
    except (ValueError, OSError) as error:
        raise BadTrace(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
            "the trace is incomplete: copy it again or record again",
        ) from None
    return fd, _bytes_before_a_hole(fd)


def _bytes_before_a_hole(fd: int) -> int:
    """Returns the bytes before the first hole of a file. A recorder leaves no holes."""
    size = os.fstat(fd).st_size
    return min(size, os.lseek(fd, 0, os.SEEK_HOLE)) if size else 0


def _next_start(stream: RawStream) -> int | None:
    """Returns the start time of the next unit of a stream; None if there is none."""
    starts, _ = stream.ahead(1)
    return int(starts[0]) if len(starts) else None


class Timeline:
    """The events of several streams, and their gaps.

    Batches contain valid events only (`_possible`), because the compiled loops that read batches
    rely on it. Invalid events are counted as gaps of their stream.
    """

    def __init__(self, streams: list[RawStream]) -> None:
        self.streams = streams
        self.events = 0
        self._carry: Batch | None = None
        self.units = sum(stream.units for stream in streams)
        self.units_read = 0

    @property
    def gaps(self) -> list[Gap]:
        """Gaps found so far in all streams."""
        return [gap for stream in self.streams for gap in stream.gaps]

    @property
    def damaged(self) -> int:
        """Number of damaged units found so far."""
        return sum(stream.damaged for stream in self.streams)

    def batches(self) -> Iterator[Batch]:
        """Yields batches in time order. `Batch.pid` is the thread id until it is resolved."""
        while self.units_read < self.units:
            counts, horizon = self._next()
            parts = [] if self._carry is None else [self._carry]
            for stream, count in zip(self.streams, counts, strict=True):
                if count:
                    parts.append(self._decoded(stream, count))
            self.units_read += sum(counts)
            batch = self._in_order(parts, horizon)
            batch.gaps = self.gaps
            if len(batch):
                self.events += len(batch)
                yield batch
        # Only a damaged trace has events left here, with times after the horizon of all units.
        if self._carry is not None and len(self._carry):
            batch, self._carry = self._carry, None
            batch.gaps = self.gaps
            self.events += len(batch)
            yield batch

    def _decoded(self, stream: RawStream, units: int) -> Batch:
        """Returns the valid events of the next units of a stream."""
        start = _next_start(stream)
        batch = stream.decode(units)
        kept = np.empty(len(batch), np.bool_)
        if _possible(
            batch.ts, batch.tid, batch.cpu, batch.offset, batch.length, batch.payload.size, kept
        ):
            return batch
        left_out = int(np.count_nonzero(~kept))
        end = _next_start(stream)
        stream.gaps.append(Gap(stream.name, stream.cpu, start, end, left_out, "impossible event"))
        return rows_of(batch, kept)

    def _next(self) -> tuple[list[int], int | None]:
        """Returns (number of units of each stream in the next batch, start of the unit after)."""
        ahead = [stream.ahead(_BATCH_BYTES) for stream in self.streams]
        keys = np.concatenate([starts for starts, _ in ahead])
        order = np.argsort(keys, kind="stable")
        ends = np.cumsum(np.concatenate([sizes for _, sizes in ahead])[order])
        last = max(1, int(np.searchsorted(ends, _BATCH_BYTES, side="right")))
        owner = np.repeat(np.arange(len(ahead)), [len(starts) for starts, _ in ahead])
        counts = np.bincount(owner[order[:last]], minlength=len(ahead)).tolist()
        return counts, int(keys[order[last]]) if last < len(order) else None

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
            np.concatenate([p.cpu for p in parts])[order].astype(np.int16),
            np.concatenate([p.offset + s for p, s in zip(parts, starts, strict=True)])[order],
            np.concatenate([p.length for p in parts])[order],
            np.concatenate([p.payload for p in parts]),
        )
        ready = len(ts) if horizon is None else int(np.searchsorted(ts, horizon))
        self._carry = _compact(rows_of(whole, slice(ready, None))) if ready < len(ts) else None
        return rows_of(whole, slice(0, ready))


@compiled
def _possible(
    ts: Any, tid: Any, cpu: Any, offset: Any, length: Any, payload: int, out: Any
) -> bool:
    """Sets `out` to True for each valid event; returns True if all are valid.

    A valid event has a time, CPU and thread id within Linux's limits and lies in the payload.
    """
    all_can = True
    for i in range(len(ts)):
        can = (
            (0 <= ts[i] < TIME_LIMIT)
            & (0 <= tid[i] < PID_LIMIT)
            & (0 <= cpu[i] < CPU_LIMIT)
            & (offset[i] >= 0)
            & (length[i] >= 0)
            & (offset[i] + length[i] <= payload)
        )
        out[i] = can
        all_can &= can
    return all_can


def rows_of(batch: Batch, rows: slice | NDArray[np.bool_]) -> Batch:
    """Returns the selected events of a batch. The payload is shared, not copied."""
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
    """Returns the same events with a copy of only their own payload."""
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


@compiled
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
