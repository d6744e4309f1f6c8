"""Chunks: what was taken out of a shared-memory ring at one time, as it lay there.

A chunk is a header (`HEADER`) and its payload: whole records of the ring, untouched. Its `start`
is a time that none of its records is older than: that of an earlier look at the ring that left
nothing behind. Its `at` says where in all the bytes that the ring has held it begins. One of kind
FULL was found in a ring without room for more. A chunk of kind LOST has no payload and says how
many records (`at`) found no room on one CPU between its `start` and its `end`. A chunk without
records tells that the ring was looked at.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.backends.timeline import Batch, open_raw
from probes.errors import BadTrace
from probes.limits import TIME_LIMIT
from probes.loss import Gap

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
"""Chunks looked at for what comes next, at first."""

SLACK_NS = 50_000_000
"""A record takes its time a moment before its place in the ring: longer than that moment."""


def header(kind: int, cpu: int, size: int, start: int, end: int, at: int) -> bytes:
    """The header of one chunk. `start` and `end` are ns of CLOCK_MONOTONIC.

    `at` is its place in the ring's bytes, of a LOST chunk the number of records.
    """
    return np.array([(MAGIC, kind, cpu, size, start, end, at)], HEADER).tobytes()


def mend(sink: int, path: Path) -> NDArray[Any]:
    """Cut off a chunk that was not written whole; returns the headers of those that were.

    `sink` is open for writing and will write behind the last of them.
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
"""What a ring's own records say was lost: (from, to, how many), from 0 where it is not known."""

Decoder = Callable[[NDArray[np.uint8]], tuple[Batch, int, Losses]]
"""Records to events, the number of places where they do not hold together, and losses."""


class ChunkStream:
    """A file of chunks; a unit is a chunk that has records."""

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
        # Where one chunk ends nowhere, no later one can be found.
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
        """Spans (ns) in which records may be lost: while the ring was full, and after the end."""
        self._sizes = headers["bytes"][~lost].astype(np.int64)
        self._places = places[~lost]
        self._starts = headers["start"][~lost].astype(np.int64)
        self._ends = headers["end"][~lost].astype(np.int64)
        self._at = 0
        """The next chunk to decode."""
        self._latest = 0
        """Start time of those before it, made to never go back."""

    @property
    def units(self) -> int:
        """Chunks that have records, or might have had."""
        return len(self._sizes)

    def ahead(self, more_than: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start times and bytes of the next chunks, as `RawStream.ahead` has it."""
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
        """The events of the next chunks."""
        first, last = self._at, self._at + units
        parts = []
        for at, size in zip(self._places[first:last], self._sizes[first:last], strict=True):
            data = os.pread(self._fd, int(size), int(at))
            if len(data) != size:
                raise BadTrace(f"stream {self.name} shrank while it was read", "read it again")
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
        """Close the file."""
        os.close(self._fd)


def _index(fd: int, size: int) -> tuple[NDArray[Any], NDArray[np.int64], int]:
    """Headers of the whole chunks of a file, where their payloads lie, and where the last ends."""
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
    """From the last look that was written down."""
    after = int(headers["end"].max()) + 1 if len(headers) else 0
    return after, int(np.iinfo(np.int64).max)
