"""All streams of a recording in time order, in batches of bounded size.

A stream's file consists of units (ring-buffer pages, chunks), put in the order of their start
times; a batch is a run of that order. No event of a later unit is older than that unit's start,
so everything before the start of the first unit not yet read is complete; the few events after
it are carried into the next batch. Of each stream no more is looked at ahead than what could be
the next batch: memory is bounded by the batch, however long the recording.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from probes.compiled import compiled
from probes.errors import BadTrace
from probes.limits import CPU_LIMIT, PID_LIMIT, TIME_LIMIT
from probes.loss import Gap

_BATCH_BYTES = 8 << 20


@dataclass
class Batch:
    """Events of every stream in time order. Arrays are aligned with each other."""

    ts: NDArray[np.int64]
    type: NDArray[np.uint16]
    """The kernel's event id, by which formats are known."""
    tid: NDArray[np.int32]
    pid: NDArray[np.int32]
    """The thread's process; equal to `tid` until threads are resolved (`threads.py`)."""
    cpu: NDArray[np.signedinteger]
    """int32 as decoded, int16 once it is known to be possible."""
    offset: NDArray[np.int64]
    """Of the event's payload in `payload`, in bytes."""
    length: NDArray[np.int32]
    payload: NDArray[np.uint8]
    launching: NDArray[np.bool_] | None = None
    """Of the recorder's launch of a command: before that command's exec."""
    target: NDArray[np.int16] | None = None
    """Number of the target that the process belongs to, 0: none; of a newtask event, the child."""
    wanted: NDArray[np.bool_] | None = None
    """Of a target. None: all of it is wanted."""
    moves: list[Move] = field(default_factory=list)
    """Processes that were moved from target to target, in order of time."""
    gaps: list[Gap] = field(default_factory=list)
    """Every gap found so far, in whatever stream."""

    def __len__(self) -> int:
        return len(self.ts)


class Move(NamedTuple):
    """A process and the number of the target that it belongs to from then on."""

    ts: int
    pid: int
    target: int
    cgroup: str | None
    """The path of the cgroup that it was found in, where one is known."""


def room_for(events: int, payload: NDArray[np.uint8]) -> Batch:
    """A batch whose arrays a decoder fills in."""
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
    """A batch without events."""
    return room_for(0, np.empty(0, np.uint8))


class RawStream(Protocol):
    """One raw file, in units of which each knows a time that none of its events is older than."""

    name: str
    torn_bytes: int
    """At the end: of a unit that was not written whole."""
    events: int
    """Decoded so far."""
    last_seen: int
    """Time of the last event decoded so far; 0 without any."""
    full: list[tuple[int, int]]
    """Spans (ns) in which its buffer was seen full."""
    damaged: int
    """Units decoded so far that do not hold together."""
    gaps: list[Gap]
    """Found so far."""

    @property
    def cpu(self) -> int:
        """Whose events these are; -1: of every CPU."""
        ...

    @property
    def units(self) -> int:
        """Units of the whole file."""
        ...

    def ahead(self, more_than: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start times and bytes of the units that come next, up to `more_than` bytes of them.

        All that are left, or units that are more than so many bytes. Start times never go back.
        """
        ...

    def decode(self, units: int) -> Batch:
        """The events of the next units, with `pid` as far as the stream knows."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


def open_raw(path: Path) -> tuple[int, int]:
    """A raw file opened for reading: (fd, bytes). BadTrace where it cannot be."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "it is not a regular file")
    except OSError as error:
        raise BadTrace(
            f"{path} cannot be read: {error.strerror}",
            "the trace is incomplete: copy it again or record again",
        ) from None
    return fd, _bytes_before_a_hole(fd)


def _bytes_before_a_hole(fd: int) -> int:
    """How much of a file was written in one go: a recorder leaves no holes."""
    size = os.fstat(fd).st_size
    return min(size, os.lseek(fd, 0, os.SEEK_HOLE)) if size else 0


def _next_start(stream: RawStream) -> int | None:
    """When the next unit of a stream starts; None: it has no more."""
    starts, _ = stream.ahead(1)
    return int(starts[0]) if len(starts) else None


class Timeline:
    """The events of some streams, and where they have gaps.

    Every event that a batch holds can be (`_possible`): the compiled loops that take batches rely
    on it. The others are counted as gaps of their stream.
    """

    def __init__(self, streams: list[RawStream]) -> None:
        self.streams = streams
        self.events = 0
        self._carry: Batch | None = None
        self.units = sum(stream.units for stream in streams)
        self.units_read = 0

    @property
    def gaps(self) -> list[Gap]:
        """Every gap found so far."""
        return [gap for stream in self.streams for gap in stream.gaps]

    @property
    def damaged(self) -> int:
        """Units found so far that do not hold together."""
        return sum(stream.damaged for stream in self.streams)

    def batches(self) -> Iterator[Batch]:
        """Batches in time order. `Batch.pid` is the thread id until it is resolved."""
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
        # Only a damaged trace still has something here: times beyond the horizon of all units.
        if self._carry is not None and len(self._carry):
            batch, self._carry = self._carry, None
            batch.gaps = self.gaps
            self.events += len(batch)
            yield batch

    def _decoded(self, stream: RawStream, units: int) -> Batch:
        """The events of the next units of a stream that can be."""
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
        """The numbers of units that come next, by stream, and the start of the unit after them."""
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
    """Tell of each event whether it can be; returns whether all can.

    It is of a time, CPU and thread that Linux has, and lies within the payload.
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
    """Some of a batch's events."""
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
