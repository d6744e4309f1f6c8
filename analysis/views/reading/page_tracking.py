"""The state of each page of the page cache, from event to event: cached, used, evicted.

Events come in the order of the recording. A page that no event has named yet may be in the cache
since before the recording. It is taken for cached when a call gets it, and the miss is counted when
the same call adds it after all.

A call that reads logs an access for each batch of its pages, from the batch's first page to the
call's last page. It adds the pages that it lacks before the access of their batch. A first batch
whose next page is still being read is not logged; the bytes that the call returns tell of it. They
also tell of pages that an access wants beyond the end that the file has at that time.

If accesses are inferred from calls, an access is all of a call, at its return.

All that a call or a fault does belongs to one time, for an epoch may end meanwhile: when the call
began to read pages from the device, or else that of its first access.

A fault is logged before its page is added. Before it and after it, the kernel tries to map the
cached pages of a window around it. A window that is followed by a fault in it was no success. One
that has success maps a page at least: if all its pages are mapped, the mapping must be a new one.
A fault of a shared mapping that writes is followed by the folio that it makes dirty. It has mapped
all of that folio.

A page that anybody adds was not there for any window before: none of them mapped it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.reading.page_calls import begin_read, end_call, time_of_addition
from tracer.analysis.views.reading.page_changes import (
    access,
    access_of_call,
    add,
    count_fresh,
    delete,
    look_ahead,
    read_held_back,
)
from tracer.analysis.views.reading.page_mappings import (
    begin_window,
    count_windows,
    end_window,
    fault,
    map_written_folio,
    take_back,
    take_back_own,
    whole_folios,
)
from tracer.analysis.views.reading.page_states import (
    ACCESS,
    ADD,
    AHEAD,
    ASYNC,
    BEGIN,
    BIO,
    CALL_ENDS,
    CALL_READS,
    CALL_WRITES,
    DELETE,
    DIRTY,
    END,
    EVENT,
    FAULT,
    FILE,
    MAP,
    MOST_PAGES,
    MOST_WINDOWS,
    NOTHING,
    PAGE,
    RETURN,
    SYNC,
    THREAD,
    USE,
    WAIT,
    WINDOW,
    untouched,
)
from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled, read_only
from tracer.probes.errors import BadTrace

_MOST_LOOKS = 1 << 35
"""Most looks at a page, of all events: 100 million events of 300 pages each."""
_MOST_ROWS = 1 << 26
"""Most rows of runs of pages around faults, and of those that leave, beyond 8 for each event. The
kernel maps 16 pages around a fault, unless told otherwise."""


class PageTracking:
    """The pages of all files, to which events are applied batch by batch."""

    def __init__(
        self,
        base: Ints,
        end: Ints,
        page_bytes: int,
        threads: int,
        reclaimers: Ints,
        reads_are_told: bool,
        inferred: bool = False,
        maps_folios: bool = False,
    ) -> None:
        """Takes files, dense from 0: the number of each one's first page, and its length in pages.

        Events name threads and processes by keys below `threads`: one for each, whatever number it
        had. `reclaimers` are those of the kernel that only evict (kswapd). Unless `reads_are_told`
        by events of read-ahead, every page that is added counts as read. `inferred`: an access is
        all of a call, and comes after the pages that the call adds. `maps_folios`: a window around
        a fault maps whole folios.
        """
        self._base, self._end = read_only(base), read_only(end)
        self._page_bytes = page_bytes
        self._told = reads_are_told
        self._inferred = inferred
        self._maps_folios = maps_folios
        self._pages = untouched(int((base + end).max(initial=0)), PAGE)
        self._threads = untouched(threads, THREAD)
        self._files = np.zeros(len(base), FILE)
        self._windows = untouched(MOST_WINDOWS, WINDOW)
        # Events, pages evicted, looks at pages, rows of runs, and windows.
        self._counters = np.zeros(5, np.int64)
        self._spare = 64
        self._mapping = np.zeros(0, np.int64)
        reclaimers = reclaimers[(reclaimers > 0) & (reclaimers < threads)]
        self._threads["reclaims"][reclaimers] = 1

    def add(self, events: NDArray[np.void]) -> Iterator[NDArray[np.void]]:
        """Applies events (`EVENT`); yields what they did (`USE`), without those that did nothing.

        A miss is counted at the access. Where the access or fault comes before the page, it is
        counted at the event that adds the page. Raises BadTrace for too many pages.
        """
        mapping = np.unique(events["tid"][events["kind"] == MAP])
        self._mapping = np.union1d(self._mapping, mapping)
        done = 0
        while done < len(events):
            # An event may also decide about the window before it, whose pages have a row per run.
            uses = np.zeros(2 * (len(events) - done) + self._spare, USE)
            followed, made = _follow(
                read_only(events[done:]), self._base, self._end, self._page_bytes, self._told,
                self._inferred, self._maps_folios, self._pages, self._threads, self._files,
                self._windows, self._counters, uses,
            )  # fmt: skip
            done += followed
            self._check()
            if followed == 0:
                self._spare *= 2  # the next event alone may need more rows
            yield uses[:made]

    def _check(self) -> None:
        if self._counters[2] > _MOST_LOOKS:
            raise BadTrace("the events of the page cache overlap too often", "the trace is damaged")
        if self._counters[3] > _MOST_ROWS + 8 * self._counters[0]:
            raise BadTrace("the pages of its events have too many gaps", "the trace is damaged")

    def finish(self, ts: int) -> Iterator[NDArray[np.void]]:
        """Yields the windows of which no later event tells, and the pages never used (`USE`).

        The latter have the time `ts`, one row per file.
        """
        last = np.zeros(len(self._mapping), EVENT)
        last["kind"], last["tid"], last["file"] = END, self._mapping, NOTHING
        yield from self.add(last)
        unused = np.zeros(len(self._base), np.int64)
        count_fresh(self._base, self._end, self._pages, unused)
        files = np.flatnonzero(unused)
        uses = np.zeros(len(files), USE)
        uses["ts"], uses["file"], uses["unused"] = ts, files, unused[files]
        for name in ("pid", "tid"):
            uses[name] = uses[f"by_{name}"] = self._files[name][files]
        uses["used"] = self._files["used"][files]
        yield uses


@compiled
def _follow(
    events: NDArray[np.void],
    base: Ints,
    ends: Ints,
    page_bytes: int,
    told: bool,
    inferred: bool,
    maps_folios: bool,
    pages: NDArray[np.void],
    threads: NDArray[np.void],
    files: NDArray[np.void],
    windows: NDArray[np.void],
    counters: Ints,
    uses: NDArray[np.void],
) -> tuple[int, int]:
    # Returns the events followed and the rows made: it stops where the next event may lack rows.
    made = 0
    for number in range(len(events)):
        event = events[number]
        tid, kind, file = event["tid"], event["kind"], event["file"]
        if tid < 0 or tid >= len(threads):
            continue
        thread = threads[tid]
        taken = _to_take_back(event, base, ends, pages, windows)
        counters[2] += taken
        if counters[2] > _MOST_LOOKS or made + 2 + taken + _wide(event, thread) // 2 > len(uses):
            return number, made
        counters[0] += 1
        now = counters[0]
        pid, user = event["pid"], tid
        if thread["window"] > 0 and kind not in (BIO, WAIT):
            rows = end_window(event, base, pages, thread, windows, now, counters, uses, made)
            counters[3] += rows
            made += rows
        use = uses[made]
        use["kind"] = NOTHING
        when = event["ts"]
        if kind in (BEGIN, END):
            thread["reclaims"] = np.uint8(kind == BEGIN)
            continue
        if kind in (CALL_READS, CALL_WRITES, CALL_ENDS):
            thread["writes"] = np.uint8(kind == CALL_WRITES)
            thread["began"] = now
            thread["asked"] = event["ts"] if kind == CALL_READS else 0
            continue
        if kind == RETURN:
            made += end_call(event, base, ends, page_bytes, pages, now, thread, uses, made)
            continue
        if kind == BIO:
            owner = _owner(event, base, ends, page_bytes, pages, counters, use)
            if counters[2] > _MOST_LOOKS:
                return number, made
            if owner >= 0:
                others = threads[owner]
                if others["bio_file"] == file + 1:
                    read = -(-use["disk_bytes"] // page_bytes)
                    others["to_read"] = max(0, others["to_read"] - read)
                pid, user = others["pid"], owner
            else:
                file = thread["bio_file"] - 1
                # The bios of these pages; others are of a read past the cache.
                use["disk_bytes"] = min(event["pages"], thread["to_read"] * page_bytes)
                thread["to_read"] -= -(-use["disk_bytes"] // page_bytes)
                # A device below one that read them may read them, too.
                thread["past"] = np.uint8(use["disk_bytes"] == 0 and thread["bio_file"] == 0)
                if use["disk_bytes"] == 0:
                    file = NOTHING
                    use["disk_bytes"] = event["pages"] if event["continues"] > 0 else 0
        elif kind == WAIT:
            file = thread["device_file"] - 1
            if file < 0 or (event["continues"] > 0 and thread["past"] > 0):
                continue
            use["wait_ns"] = event["pages"]
        elif file < 0:
            continue
        elif kind == DIRTY:
            rows = map_written_folio(
                event, pages, base[file], ends[file], now, thread, counters, uses, made
            )
            counters[3] += rows
            made += rows
            continue
        else:
            first = event["index"]
            if first < 0 or first >= ends[file]:
                continue
            named_end = end = min(first + min(max(event["pages"], 1), MOST_PAGES), ends[file])
            if kind == MAP and maps_folios:
                first, end = whole_folios(pages, base[file], ends[file], first, end)
            counters[2] += end - first
            if counters[2] > _MOST_LOOKS:
                return number, made
            if kind in (ADD, FAULT):
                if kind == ADD:
                    rows = take_back(pages, base[file], first, end, file, windows, uses, made)
                else:
                    rows = take_back_own(
                        pages, base[file], first, file, pid, windows, counters, uses, made
                    )
                counters[3] += rows
                made += rows
                use = uses[made]
                use["kind"] = NOTHING
            if kind == DELETE:
                evicts = thread["reclaims"] != 0
                rows = delete(pages, base[file], first, end, evicts, counters, uses, made)
                for row in range(made, made + rows):
                    use = uses[row]
                    use["ts"], use["file"] = when, file
                    use["pid"], use["tid"] = files[file]["pid"], files[file]["tid"]
                    use["used"] = files[file]["used"]
                    use["by_pid"], use["by_tid"] = event["pid"], tid
                counters[3] += rows
                made += rows
                continue
            if kind == ADD:
                if add(
                    pages, base[file], first, end, told, file, event["pid"], tid, event["life"],
                    now, thread, counters, use,
                ):  # fmt: skip
                    files[file]["cold"] = 1
                when = time_of_addition(event, inferred, thread, use)
            elif kind in (SYNC, ASYNC, AHEAD):
                begin_read(event, end, ends[file], thread)
                if kind == AHEAD and thread["last"] == FAULT and thread["file"] == file:
                    look_ahead(pages, base[file], first, end)
                continue
            elif kind == MAP:
                begin_window(event, named_end, first, end, files, now, thread)
                files[file]["pid"], files[file]["tid"] = event["pid"], tid
                files[file]["used"] = event["ts"]
                continue
            elif kind == ACCESS and inferred:
                access_of_call(
                    pages, base[file], first, end, event["continues"] > 0, file, tid, now, thread,
                    use,
                )  # fmt: skip
                if thread["asked"] > 0:
                    when = thread["asked"]
            elif kind == ACCESS:
                wanted = first + event["pages"]
                told_next = event["continues"]
                access(
                    pages, base[file], first, end, wanted, told_next, file, tid, now, thread, use
                )
                if thread["call_first"] == first:
                    thread["call_ts"] = thread["since"] = event["ts"]
                    # If calls are not recorded, an earlier one may have asked.
                    if thread["asked"] > 0 and (told_next >= 0 or use["missed"] > 0):
                        thread["since"] = thread["asked"]
                thread["asked"] = 0
                when = thread["since"]
            else:
                fault(pages, base[file], first, file, event["pid"], tid, now, thread, use)
                thread["asked"] = 0
                if use["accessed"] != 0:
                    thread["since"] = when
        if kind not in (BIO, WAIT):
            files[file]["pid"], files[file]["tid"] = event["pid"], tid
            files[file]["used"] = event["ts"]
        use["pid"], use["tid"] = pid, user
        if (
            use["accessed"] or use["missed"] or use["read"] or use["written"]
            or use["disk_bytes"] or use["wait_ns"]
        ):  # fmt: skip
            use["ts"], use["file"] = when, file
            use["by_pid"], use["by_tid"] = event["pid"], tid
            made += 1
        else:
            use["pid"], use["tid"] = 0, 0
    return len(events), made


@compiled
def _owner(
    event: Any, base: Ints, ends: Ints, page_bytes: int, pages: Any, counters: Ints, use: Any
) -> int:
    # Returns the thread that added the pages of a bio that was held back, -1 for other bios.
    file, first = event["file"], event["index"]
    if file < 0 or first < 0 or first >= ends[file]:
        return -1
    end = min(first + min(-(-event["pages"] // page_bytes), MOST_PAGES), ends[file])
    counters[2] += end - first
    return int(read_held_back(pages, base[file], first, end, event["pages"], page_bytes, use))


@compiled
def _to_take_back(event: Any, base: Ints, ends: Ints, pages: Any, windows: Any) -> int:
    # Returns the windows so far of the pages that an event adds, or of the one that it faults for.
    file, first, kind = event["file"], event["index"], event["kind"]
    if kind not in (ADD, FAULT) or file < 0 or first < 0 or first >= ends[file]:
        return 0
    end = first + 1
    if kind == ADD:
        end = min(first + min(max(event["pages"], 1), MOST_PAGES), ends[file])
    return int(count_windows(pages, base[file], first, end, windows))


@compiled
def _wide(event: Any, thread: Any) -> int:
    # Returns twice the rows of pages that are mapped, taken back from a window that is decided now
    # or from a call, or leave, at this event.
    wide: Any = 0
    if thread["window"] > 0:
        wide += thread["window_end"] - thread["window_first"]
    if event["kind"] in (ADD, DELETE):
        wide += 2 * min(max(event["pages"], 1), MOST_PAGES)
    if event["kind"] in (FAULT, RETURN):
        wide += 2
    return int(wide)
