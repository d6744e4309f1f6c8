"""The reader of one CPU's raw ring-buffer pages: an index of start times, and the events."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends.event_format import CommonFields, PageFormat
from tracer.probes.backends.ftrace.ring_buffer import (
    MIN_EVENT_BYTES,
    decode_pages,
    header_index,
    missed_count,
    missed_events,
)
from tracer.probes.backends.timeline import Batch, open_raw
from tracer.probes.errors import BadTrace
from tracer.probes.loss import Gap

_INDEX_BYTES = 4 << 20
"""Bytes of pages that are read at a time to index their headers."""


class PageStream:
    """A file of ring-buffer pages. A unit is a page."""

    def __init__(
        self,
        name: str,
        cpu: int,
        path: Path,
        layout: PageFormat,
        common: CommonFields,
        stalls: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Opens the file. `stalls` is `PageSource.stalls`: (offset in the file, time in ns)."""
        self.name = name
        self.cpu = cpu
        self.layout = layout
        self.common = common
        self.events = 0
        self.full: list[tuple[int, int]] = []  # empty: the pages themselves record losses
        self.last_seen = 0
        self.damaged = 0
        self.gaps: list[Gap] = []
        self._emptied = {offset // layout.page_bytes: emptied for offset, emptied in stalls}
        self._fd, self.bytes = open_raw(path)
        self.pages = self.bytes // layout.page_bytes
        self.torn_bytes = self.bytes % layout.page_bytes
        self._at = 0
        """Number of the next page to decode."""
        self._indexed = 0
        """Number of the first page whose header has not been read."""
        self._before: int | None = None
        """Start time of the last decoded page."""
        self._searched = 0
        """Number of the first page before which no gap has been looked for."""
        # Headers of the pages from `_at` to `_indexed`:
        self._stamps = np.empty(0, np.int64)
        self._commits = np.empty(0, np.uint32)
        # Start times that never decrease. Pages of a damaged file may go back in time; they keep
        # the order of the file.
        self._keys = np.empty(0, np.int64)
        self._latest = int(np.iinfo(np.int64).min)

    @property
    def units(self) -> int:
        """Number of pages of the whole file."""
        return self.pages

    def ahead(self, more_than: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the start times and bytes of the next pages; see `RawStream.ahead`."""
        wanted = more_than // self.layout.page_bytes + 1
        self._index(wanted)
        self._note_gaps(1)
        keys = self._keys[:wanted]
        return keys, np.full(len(keys), self.layout.page_bytes, np.int64)

    def _index(self, wanted: int) -> None:
        """Reads the headers of the next `wanted` pages, or of all that are left."""
        step = max(1, _INDEX_BYTES // self.layout.page_bytes)
        while self._indexed < min(self.pages, self._at + wanted):
            last = min(self.pages, self._indexed + step)
            stamps, commits = header_index(
                self.read(self._indexed, last),
                self.layout.timestamp_offset,
                self.layout.commit_offset,
            )
            keys = np.maximum(self._latest, np.maximum.accumulate(stamps))
            self._latest = int(keys[-1])
            self._stamps = np.concatenate([self._stamps, stamps])
            self._commits = np.concatenate([self._commits, commits])
            self._keys = np.concatenate([self._keys, keys])
            self._indexed = last

    def read(self, first: int, last: int) -> NDArray[np.uint8]:
        """Returns pages `first` to `last` - 1, one per row."""
        size = self.layout.page_bytes
        data = os.pread(self._fd, (last - first) * size, first * size)
        if len(data) != (last - first) * size:
            raise BadTrace(
                f"stream {self.name} became shorter while it was read", "run the command again"
            )
        return np.frombuffer(data, np.uint8).reshape(-1, size)

    def decode(self, units: int) -> Batch:
        """Returns the events of the next pages."""
        layout = self.layout
        self._index(units + 1)
        pages = self.read(self._at, self._at + units)
        stamps, commits = self._stamps[:units], self._commits[:units]
        # The gap before the next page began before the events that the next batch starts with.
        self._note_gaps(units + 1)
        room = pages.size // MIN_EVENT_BYTES
        ts = np.empty(room, np.int64)
        kind = np.empty(room, np.uint16)
        tid = np.empty(room, np.int32)
        offset = np.empty(room, np.int64)
        length = np.empty(room, np.int32)
        n, damaged, seen = decode_pages(
            pages.reshape(-1).view("<u4"),
            layout.page_bytes // 4,
            units,
            stamps,
            commits,
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
            self.damaged += damaged
            end = int(self._stamps[units]) if units < len(self._stamps) else None
            self.gaps.append(Gap(self.name, self.cpu, int(stamps[0]), end, None, "damaged page"))
        self._at += units
        self._before = int(stamps[-1])
        self._stamps, self._commits = self._stamps[units:], self._commits[units:]
        self._keys = self._keys[units:]
        self.events += int(n)
        if seen:
            self.last_seen = int(seen)
        return Batch(
            ts[:n],
            kind[:n],
            tid[:n],
            tid[:n],
            np.full(n, self.cpu, np.int32),
            offset[:n],
            length[:n],
            pages.reshape(-1),
        )

    def _note_gaps(self, pages: int) -> None:
        """Notes the gaps before each of the next pages."""
        pages = min(pages, len(self._commits))
        first = max(0, self._searched - self._at)
        self._searched = max(self._searched, self._at + pages)
        for at in range(first, pages):
            commit = int(self._commits[at])
            if not missed_events(commit):
                continue
            # The loss is between the last event before this page, which is not older than the
            # start of the previous page, and the start of this page.
            before = int(self._stamps[at - 1]) if at else self._before
            if (emptied := self._emptied.get(self._at + at)) is not None:
                before = max(before or 0, emptied)
            page = self.read(self._at + at, self._at + at + 1)[0]
            count = missed_count(page, commit, self.layout.data_offset)
            gap = Gap(self.name, self.cpu, before, int(self._stamps[at]), count, "buffer overrun")
            self.gaps.append(gap)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)
