"""Chunks: what was taken out of a shared-memory ring at one time, as it lay there.

A chunk is a header (`HEADER`) and its payload: whole records of the ring, untouched. Its `start`
is a time that none of its records is older than: that of an earlier look at the ring that left
nothing behind. One of kind FULL was found in a ring without room for more. A chunk of kind LOST
has no payload and says how many records found no room on one CPU between its `start` and its
`end`. A chunk without records tells that the ring was looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.backends.timeline import Batch, open_raw
from probes.errors import BadTrace
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
        ("count", "<i8"),
    ]
)

SLACK_NS = 50_000_000
"""A record takes its time a moment before its place in the ring: longer than that moment."""


def header(kind: int, cpu: int, size: int, start: int, end: int, count: int = 0) -> bytes:
    """The header of one chunk. `start` and `end` are ns of CLOCK_MONOTONIC."""
    return np.array([(MAGIC, kind, cpu, size, start, end, count)], HEADER).tobytes()


Losses = list[tuple[int, int, int]]
"""What a ring's own records say was lost: (from, to, how many), from 0 where it is not known."""

Decoder = Callable[[NDArray[np.uint8]], tuple[Batch, int, Losses]]
"""Records to events, the number of places where they do not hold together, and losses."""


class ChunkStream:
    """A file of chunks; a unit is a chunk that has records."""

    def __init__(self, name: str, cpu: int, path: Path, decoder: Decoder) -> None:
        self.name = name
        self.cpu = cpu
        self.last_seen = 0
        self.damaged = 0
        self.gaps: list[Gap] = []
        self._decoder = decoder
        self._fd, self.bytes = open_raw(path)
        headers, places = self._index()
        lost = headers["kind"] == LOST
        for chunk in headers[lost]:
            self.gaps.append(
                Gap(
                    name,
                    int(chunk["cpu"]),
                    int(chunk["start"]),
                    int(chunk["end"]),
                    int(chunk["count"]),
                    "buffer full",
                )
            )
        self.blind = _blind(headers)
        """Spans (ns) in which records may be lost: while the ring was full, and after the end."""
        self._headers = headers[~lost]
        self._places = places[~lost]
        self.sizes: NDArray[np.int64] = self._headers["bytes"].astype(np.int64)
        starts = self._headers["start"].astype(np.int64)
        self.order_key = np.maximum.accumulate(starts) if len(starts) else starts

    def _index(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        headers, places = [], []
        at = 0
        self.torn_bytes = 0
        while at < self.bytes:
            data = os.pread(self._fd, HEADER.itemsize, at)
            found = np.frombuffer(data, HEADER) if len(data) == HEADER.itemsize else None
            sane = (
                found is not None
                and found["magic"][0] == MAGIC
                and found["kind"][0] in (DATA, LOST, FULL)
                and 0 <= found["bytes"][0] <= MAX_PAYLOAD
                and found["count"][0] >= 0
                and 0 <= found["start"][0] <= found["end"][0]
            )
            after = at + HEADER.itemsize + (int(found["bytes"][0]) if found is not None else 0)
            if not sane or found is None or after > self.bytes:
                # Where one chunk ends nowhere, no later one can be found.
                self.torn_bytes = self.bytes - at
                break
            headers.append(found)
            places.append(at + HEADER.itemsize)
            at = after
        whole = np.concatenate(headers) if headers else np.empty(0, HEADER)
        return whole, np.array(places, np.int64)

    def decode(self, first: int, last: int) -> Batch:
        """The events of the chunks `first` up to `last`."""
        parts = []
        for at, size in zip(self._places[first:last], self.sizes[first:last], strict=True):
            data = os.pread(self._fd, int(size), int(at))
            if len(data) != size:
                raise BadTrace(f"stream {self.name} shrank while it was read", "read it again")
            parts.append(data)
        batch, damaged, losses = self._decoder(np.frombuffer(b"".join(parts), np.uint8))
        begun = int(self._headers["start"][first])
        for start, end, count in losses:
            self.gaps.append(Gap(self.name, self.cpu, start or begun, end, count, "buffer full"))
        if damaged:
            self.damaged += damaged
            end = int(self._headers["end"][last - 1])
            self.gaps.append(Gap(self.name, self.cpu, begun, end, None, "damaged chunk"))
        if len(batch):
            self.last_seen = max(self.last_seen, int(batch.ts.max()))
        return batch

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _blind(headers: NDArray[Any]) -> list[tuple[int, int]]:
    full = headers[headers["kind"] == FULL]
    spans = list(zip(full["start"].tolist(), full["end"].tolist(), strict=True))
    # The end of the last look; none after it was written down.
    after = int(headers["end"].max()) + 1 if len(headers) else 0
    return [*spans, (after, np.iinfo(np.int64).max)]
