"""The kernel's page cache of files, worked out naively: its two lists, and its read-ahead.

It is written from docs/predict.md (The kernel's model) and from the parts of Linux 6.18 that it
names, not from the code of `tracer predict`. Each folio has one page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracles.file_lists import FileLists

READ, FAULT, WRITE, REMOVAL = "read", "fault", "write", "removal"
MOST_AT_ONCE = 320
"""Pages that the device reads at once (1,280 KiB)."""
UPDATE_NS = 2_000_000_000
"""Time between updates of the statistics: FLUSH_TIME."""
AROUND = 16
"""Pages around a fault of which the cached ones are mapped, too: fault_around_bytes."""
ALIGNED = 4
"""A window that follows another one ends at a multiple of so many pages (order 2), if the longest
window has a multiple of them, too."""


@dataclass(frozen=True)
class Call:
    """A read, a write, a fault or a removal of consecutive pages of a file."""

    tenant: int
    group: Any
    reader: Any
    kind: str
    file: Any
    first: int
    pages: int
    ts: int = 0

    @property
    def end(self) -> int:
        """The page after the last one."""
        return self.first + self.pages


@dataclass(frozen=True)
class Own:
    """The processes below a limit have so many pages of own memory from a time on."""

    ts: int
    limit: int
    pages: int


@dataclass
class Reader:
    """An open file: struct file_ra_state."""

    last: int | None = None
    """The page in which the last read ended."""
    start: int = 0
    size: int = 0
    ahead: int = 0
    """Pages of the window from its marker on."""


class TwoLists(FileLists):
    """A page cache that reads files for calls."""

    def __init__(
        self,
        capacities: Sequence[int],
        limits: Sequence[int],
        sizes: Mapping[Any, int],
        ahead: int = 0,
        exact: bool = True,
        clock: int = 0,
    ) -> None:
        """Makes an empty cache.

        `sizes`: pages of each file. `ahead`: pages of the device's read-ahead. `exact`: statistics
        are always up to date, not every 2 s, `clock` ns after the first call for the first time.
        The others: see `FileLists`.
        """
        super().__init__(capacities, limits, exact)
        self.sizes, self.ahead, self.clock = sizes, ahead, clock
        self.due: int | None = None
        """Time of the next update of the statistics."""
        self.readers: dict[Any, Reader] = {}
        self.brought = 0

    def run(
        self, calls: Iterable[Call], own: Sequence[Own] = ()
    ) -> tuple[dict[Any, int], dict[Any, int]]:
        """Returns the pages missed, and the pages read, by group.

        `own`: how the own memory changes, in the order of time.
        """
        changes = deque(own)
        missed: dict[Any, int] = {}
        read: dict[Any, int] = {}
        kinds = {READ: self._read, FAULT: self._fault, WRITE: self._write, REMOVAL: self._remove}
        for call in calls:
            if self.due is None:
                self.due = call.ts + self.clock
            while changes and changes[0].ts <= call.ts:
                change = changes.popleft()
                self._pass_until(change.ts)
                self.set_own(change.limit, change.pages)
            self._pass_until(call.ts)
            self.brought = 0
            names = ((call.file, index) for index in range(call.first, call.end))
            self.stayed = {name for name in names if name in self.pages}
            done = kinds[call.kind](call)
            missed[call.group] = missed.get(call.group, 0) + done
            read[call.group] = read.get(call.group, 0) + self.brought
        return missed, read

    def _pass_until(self, ts: int) -> None:
        """Updates the statistics if it is time."""
        assert self.due is not None
        if ts >= self.due:
            self.update()
        while ts >= self.due:
            self.due += UPDATE_NS

    # Calls: mm/filemap.c

    def _read(self, call: Call) -> int:
        """Reads page by page (filemap_read); returns the pages missed."""
        reader = self.readers.setdefault(call.reader, Reader())
        again = reader.last == call.first
        missed, at = 0, call.first
        while at < call.end:
            name = call.file, at
            missed += name not in self.stayed
            if name not in self.pages:
                self._read_missing(call, reader, at, again)
            if name not in self.pages:
                self._read_alone(call, at)
            page = self.pages.get(name)
            if page and page.marker:
                page.marker = False
                self._read_on(call, reader, at, call.end - at)
            if name in self.pages and not (again and at == call.first):
                self.mark_accessed(name)
            at += 1
        reader.last = call.end - 1
        return missed

    def _read_alone(self, call: Call, index: int) -> None:
        """Reads a page, with or without room to keep it."""
        self.add((call.file, index), call.tenant)
        self.brought += 1

    def _fault(self, call: Call) -> int:
        """Maps pages one by one (filemap_fault); returns the pages missed.

        A fault that has read begins anew, so pages around are mapped once more.
        """
        reader, missed = self.readers.setdefault(call.reader, Reader()), 0
        for index in range(call.first, call.end):
            name = call.file, index
            self._map_around(call.file, index)
            page = self.pages.get(name)
            if page is None:
                missed += 1
                self._read_around(call, reader, index)
                if name not in self.pages:
                    self._read_alone(call, index)
                self._map_around(call.file, index)
            elif page.marker:  # do_async_mmap_readahead
                page.marker = False
                self._read_on(call, reader, index, self.ahead)
                self._map_around(call.file, index)
            page = self.pages.get(name)
            if page:
                page.mapped = page.touched = True
        return missed

    def _read_around(self, call: Call, reader: Reader, index: int) -> None:
        """Reads for a fault that lacks a page (do_sync_mmap_readahead)."""
        if self.ahead:
            reader.start, reader.size = max(0, index - self.ahead // 2), self.ahead
            reader.ahead = self.ahead // 4
            self._bring(call, reader.start, reader.size, reader.ahead)

    def _map_around(self, file: Any, index: int) -> None:
        """Maps the cached pages around a fault (filemap_map_pages)."""
        first = index - index % AROUND
        for at in range(first, first + AROUND):
            page = self.pages.get((file, at))
            if page and not page.mapped and not page.marker:
                page.mapped = page.touched = True

    def _write(self, call: Call) -> int:
        for index in range(call.first, call.end):
            if (call.file, index) not in self.pages:
                self.add((call.file, index), call.tenant, written=True)
        return 0

    def _remove(self, call: Call) -> int:
        for index in range(call.first, call.end):
            self.remove((call.file, index))
        return 0

    # Read-ahead: mm/readahead.c

    def _most(self, asked: int) -> int:
        """Returns the pages of the longest window (ractl_max_pages)."""
        return max(self.ahead, min(asked, MOST_AT_ONCE))

    def _read_missing(self, call: Call, reader: Reader, at: int, again: bool) -> None:
        """Reads for a call that lacks the page `at` (page_cache_sync_ra)."""
        asked = call.end - at
        if not self.ahead:
            self._bring(call, at, 1, 0)
            return
        most = self._most(asked)
        previous = None if reader.last is None else reader.last + (not again)
        follows = previous is not None and 0 <= at - previous <= 1
        if at == 0 or asked > most or follows:
            reader.start, reader.size = at, first_size(asked, most)
            more = reader.size - asked
            reader.ahead = more if more > 0 else reader.size // 2
        else:
            cached = self._cached_before(call.file, at, most)
            if cached <= asked:
                self._bring(call, at, asked, 0)
                return
            if cached == at:
                cached *= 2
            reader.start, reader.size, reader.ahead = at, min(cached + asked, most), 1
        self._bring(call, reader.start, reader.size, reader.ahead)

    def _cached_before(self, file: Any, at: int, most: int) -> int:
        """Counts the cached pages just before one (page_cache_prev_miss).

        If all of `most` pages are cached, the last one that it looks at counts as missing.
        """
        for count in range(most):
            if (file, at - 1 - count) not in self.pages:
                return count
        return most - 1

    def _read_on(self, call: Call, reader: Reader, marker: int, asked: int) -> None:
        """Reads the next window (page_cache_async_ra)."""
        most = self._most(asked)
        if marker == reader.start + reader.size - reader.ahead:
            reader.start += reader.size
            reader.size = max(reader.size, next_size(reader.size, most))
        else:
            start = marker + 1
            while (call.file, start) in self.pages and start - marker <= most:
                start += 1
            if start - marker > most:
                return
            reader.start = start
            reader.size = next_size(start - marker + asked, most)
        whole = min(ALIGNED, most & -most)
        end = reader.start + reader.size
        if end - end % whole > reader.start:
            reader.size -= end % whole
        reader.ahead = reader.size
        self._bring(call, reader.start, reader.size, reader.ahead)

    def _bring(self, call: Call, first: int, pages: int, ahead: int) -> None:
        """Reads the absent ones of some pages (page_cache_ra_unbounded).

        A marker comes before the last `ahead` of them.
        """
        pages = min(pages, self.sizes[call.file] - first)
        for index in range(first, first + pages):
            name = call.file, index
            if name in self.pages:
                continue
            if not self.add(name, call.tenant):
                return
            self.brought += 1
            self.pages[name].marker = ahead > 0 and index == first + pages - ahead


def first_size(asked: int, most: int) -> int:
    """Returns the pages of the first window (get_init_ra_size)."""
    size = 1 << (asked - 1).bit_length()
    if size <= most // 32:
        return size * 4
    return size * 2 if size <= most // 4 else most


def next_size(size: int, most: int) -> int:
    """Returns the pages of the window after one (get_next_ra_size)."""
    if size < most // 16:
        return 4 * size
    return 2 * size if size <= most // 2 else most
