"""One CPU's raw ring-buffer pages: an index of their start times, and their events."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from probes.backends.event_format import CommonFields, PageFormat
from probes.backends.ftrace.ring_buffer import (
    MIN_EVENT_BYTES,
    decode_pages,
    header_index,
    missed_count,
    missed_events,
)
from probes.backends.timeline import Batch, open_raw
from probes.errors import BadTrace
from probes.loss import Gap

_INDEX_BYTES = 4 << 20


class PageStream:
    """A file of ring-buffer pages; a unit is a page."""

    def __init__(
        self,
        name: str,
        cpu: int,
        path: Path,
        layout: PageFormat,
        common: CommonFields,
        stalls: Iterable[tuple[int, int]] = (),
    ) -> None:
        """`stalls`: (offset in the file, when nothing had been left behind) of `PageSource`."""
        self.name = name
        self.cpu = cpu
        self.layout = layout
        self.common = common
        self.events = 0
        self.full: list[tuple[int, int]] = []  # the pages themselves tell of losses
        self.last_seen = 0
        self.damaged = 0
        self.gaps: list[Gap] = []
        self._emptied = {offset // layout.page_bytes: emptied for offset, emptied in stalls}
        self._fd, self.bytes = open_raw(path)
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

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each page."""
        return np.full(self.pages, self.layout.page_bytes, np.int64)

    def read(self, first: int, last: int) -> NDArray[np.uint8]:
        """Pages `first` up to `last`, one a row."""
        size = self.layout.page_bytes
        data = os.pread(self._fd, (last - first) * size, first * size)
        if len(data) != (last - first) * size:
            raise BadTrace(f"stream {self.name} shrank while it was read", "read it again")
        return np.frombuffer(data, np.uint8).reshape(-1, size)

    def decode(self, first: int, last: int) -> Batch:
        """The events of the pages `first` up to `last`."""
        layout = self.layout
        pages = self.read(first, last)
        self._note_gaps(pages, first)
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
            self.stamps[first:last],
            self.commits[first:last],
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
            start = int(self.stamps[first])
            end = int(self.stamps[last]) if last < self.pages else None
            self.gaps.append(Gap(self.name, self.cpu, start, end, None, "damaged page"))
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

    def _note_gaps(self, pages: NDArray[np.uint8], first: int) -> None:
        commits = self.commits[first : first + len(pages)]
        for at in np.flatnonzero(commits & np.uint32(1 << 31)):
            commit = int(commits[at])
            if not missed_events(commit):
                continue
            page = first + int(at)
            # Lost between the last event before this page, which began no earlier than the
            # page before, and the page's own start.
            before = int(self.stamps[page - 1]) if page else None
            if (emptied := self._emptied.get(page)) is not None:
                before = max(before or 0, emptied)
            count = missed_count(pages[at], commit, self.layout.data_offset)
            here = int(self.stamps[page])
            self.gaps.append(Gap(self.name, self.cpu, before, here, count, "buffer overrun"))

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
