"""Chunks: bytes copied from a shared-memory ring in one read.

A chunk is a header (`HEADER`) and a payload of whole, unchanged ring records. All records are at
least as new as `start`, the time of an earlier read that emptied the ring. `at` is the chunk's
first position in the stream of all bytes that the ring has held. A chunk of kind FULL was read
from a ring that had no room left. A chunk of kind LOST has no payload: `at` is the number of
records of one CPU that found no room between `start` and `end`. A chunk of kind DATA without
records marks a read that found the ring empty.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends.timeline import Batch, open_raw
from tracer.probes.errors import BadTrace
from tracer.probes.limits import TIME_LIMIT
from tracer.probes.loss import Gap

DATA, LOST, FULL = 1, 2, 3
MAGIC = 0x4B4E4843  # "CHNK"
MAX_PAYLOAD = 64 << 20

HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("kind", "<u2"),
        ("cpu", "<i2"),
        ("bytes", "<i8"),
        ("start", "<i8"),
        ("end", "<i8"),
        ("at", "<i8"),
    ]
)

_UNPACK = struct.Struct("<IHhqqqq").unpack
_AHEAD = 1024
"""Chunks that `ahead` examines first. It doubles the number until there are enough."""

SLACK_NS = 50_000_000
"""Upper bound in ns of the time between a record's time stamp and its reservation in the ring."""


def header(kind: int, cpu: int, size: int, start: int, end: int, at: int) -> bytes:
    """Returns the header of one chunk. `start` and `end` are ns of CLOCK_MONOTONIC.

    `at` is the chunk's position in the ring's byte stream; in a LOST chunk it is the number of
    lost records.
    """
    return np.array([(MAGIC, kind, cpu, size, start, end, at)], HEADER).tobytes()


def mend(sink: int, path: Path) -> NDArray[Any]:
    """Removes an incomplete last chunk from the file; returns the headers of the whole chunks.

    `sink` is the file, open for writing. Its position is moved to the new end of the file.
    """
    fd, size = open_raw(path)
    try:
        headers, _, end = _index(fd, size)
    finally:
        os.close(fd)
    os.ftruncate(sink, end)
    os.lseek(sink, 0, os.SEEK_END)
    return headers


Losses = list[tuple[int, int, int]]
"""Losses that a ring's own records report: (start, end, count). `start` is 0 if unknown."""

Decoder = Callable[[NDArray[np.uint8]], tuple[Batch, int, Losses]]
"""A function that decodes records to (events, number of damaged places, losses)."""


class ChunkStream:
    """A file of chunks. A unit is a chunk that is not of kind LOST."""

    def __init__(self, name: str, cpu: int, path: Path, decoder: Decoder) -> None:
        self.name = name
        self.cpu = cpu
        self.events = 0
        self.last_seen = 0
        self.damaged = 0
        self.gaps: list[Gap] = []
        self._decoder = decoder
        self._fd, self.bytes = open_raw(path)
        headers, places, end = _index(self._fd, self.bytes)
        # No chunk can be found after one with an invalid length.
        self.torn_bytes = self.bytes - end
        lost = headers["kind"] == LOST
        for chunk in headers[lost]:
            self.gaps.append(
                Gap(
                    name,
                    int(chunk["cpu"]),
                    int(chunk["start"]),
                    int(chunk["end"]),
                    int(chunk["at"]),
                    "buffer full",
                )
            )
        self.full = _full(headers)
        self.blind = [*self.full, _after_the_end(headers)]
        """Time spans (ns) in which records may be lost: while the ring was full, after the end."""
        self._sizes = headers["bytes"][~lost].astype(np.int64)
        self._places = places[~lost]
        self._starts = headers["start"][~lost].astype(np.int64)
        self._ends = headers["end"][~lost].astype(np.int64)
        self._at = 0
        """The next chunk to decode."""
        self._latest = 0
        """Latest start time of the chunks before it, so that start times never decrease."""

    @property
    def units(self) -> int:
        """Chunks of the whole file, without those of kind LOST."""
        return len(self._sizes)

    def ahead(self, more_than: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the start times and bytes of the next chunks; see `RawStream.ahead`."""
        many = _AHEAD
        while True:
            sizes = self._sizes[self._at : self._at + many]
            ends = np.cumsum(sizes)
            if len(sizes) < many or ends[-1] > more_than:
                break
            many *= 2
        some = min(len(sizes), int(np.searchsorted(ends, more_than, side="right")) + 1)
        starts = self._starts[self._at : self._at + some]
        return np.maximum(self._latest, np.maximum.accumulate(starts)), sizes[:some]

    def decode(self, units: int) -> Batch:
        """Returns the events of the next chunks."""
        first, last = self._at, self._at + units
        parts = []
        for at, size in zip(self._places[first:last], self._sizes[first:last], strict=True):
            data = os.pread(self._fd, int(size), int(at))
            if len(data) != size:
                raise BadTrace(
                    f"stream {self.name} became shorter while it was read", "run the command again"
                )
            parts.append(data)
        batch, damaged, losses = self._decoder(np.frombuffer(b"".join(parts), np.uint8))
        begun = int(self._starts[first])
        for start, end, count in losses:
            self.gaps.append(Gap(self.name, self.cpu, start or begun, end, count, "buffer full"))
        if damaged:
            self.damaged += damaged
            end = int(self._ends[last - 1])
            self.gaps.append(Gap(self.name, self.cpu, begun, end, None, "damaged chunk"))
        self._at = last
        self._latest = max(self._latest, int(self._starts[first:last].max()))
        self.events += len(batch)
        if len(batch):
            self.last_seen = max(self.last_seen, int(batch.ts.max()))
        return batch

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)


def _index(fd: int, size: int) -> tuple[NDArray[Any], NDArray[np.int64], int]:
    """Returns (headers of the file's whole chunks, offsets of their payloads, end of the last)."""
    headers = bytearray()
    at = 0
    while at < size:
        data = os.pread(fd, HEADER.itemsize, at)
        if len(data) < HEADER.itemsize:
            break
        magic, kind, _, payload, start, end, count = _UNPACK(data)
        after = at + HEADER.itemsize + payload
        sane = (
            magic == MAGIC
            and kind in (DATA, LOST, FULL)
            and 0 <= payload <= MAX_PAYLOAD
            and count >= 0
            and 0 <= start <= end < TIME_LIMIT
        )
        if not sane or after > size:
            break
        headers += data
        at = after
    whole = np.frombuffer(headers, HEADER)
    sizes = whole["bytes"].astype(np.int64)
    return whole, HEADER.itemsize * np.arange(1, len(whole) + 1) + np.cumsum(sizes) - sizes, at


def _full(headers: NDArray[Any]) -> list[tuple[int, int]]:
    full = headers[headers["kind"] == FULL]
    return list(zip(full["start"].tolist(), full["end"].tolist(), strict=True))


def _after_the_end(headers: NDArray[Any]) -> tuple[int, int]:
    """Returns the time span (ns) after the last read that the file records."""
    after = int(headers["end"].max()) + 1 if len(headers) else 0
    return after, int(np.iinfo(np.int64).max)
