"""The state of each page of the page cache, from event to event: cached, used, evicted.

Events come in the order of the recording. A page that no event has named yet may be in the cache
since before the recording. It is taken for cached when a call gets it, and the miss is counted when
the same call adds it after all.

A call that reads logs an access for each batch of its pages, from the batch's first page to the
call's last page. It adds the pages that it lacks before the access of their batch. A first batch
whose next page is still being read is not logged; the bytes that the call returns tell of it.

A fault is logged before its page is added. Before it and after it, the kernel tries to map the
cached pages of a window around it. A window that is followed by a fault in it was no success. One
that has success maps a page at least: if all its pages are mapped, the mapping must be a new one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.page_states import (
    ACCESS,
    ADD,
    AHEAD,
    ASYNC,
    BATCH_FOLIOS,
    BEGIN,
    BIO,
    CACHED,
    DELETE,
    END,
    EVENT,
    FAULT,
    FILE,
    FRESH,
    KNOWN,
    MAP,
    MOST_PAGES,
    NOTHING,
    PAGE,
    RETURN,
    SYNC,
    TAKEN_FOR_CACHED,
    THREAD,
    USE,
    WAIT,
    untouched,
)
from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled
from tracer.probes.limits import PID_LIMIT


class PageTracking:
    """The pages of all files, to which events are applied batch by batch."""

    def __init__(
        self, base: Ints, end: Ints, page_bytes: int, reclaimers: Ints, reads_are_told: bool
    ) -> None:
        """Takes files, dense from 0: the number of each one's first page, and its length in pages.

        `reclaimers` are the kernel's threads that only evict (kswapd). Unless `reads_are_told` by
        events of read-ahead, every page that is added counts as read.
        """
        self._base, self._end, self._page_bytes = base, end, page_bytes
        self._told = reads_are_told
        self._pages = untouched(int((base + end).max(initial=0)), PAGE)
        self._threads = untouched(PID_LIMIT, THREAD)
        self._files = np.zeros(len(base), FILE)
        self._counters = np.zeros(2, np.int64)
        self._windows = np.zeros(0, np.int64)
        reclaimers = reclaimers[(reclaimers > 0) & (reclaimers < PID_LIMIT)]
        self._threads["reclaims"][reclaimers] = 1

    def add(self, events: NDArray[np.void]) -> NDArray[np.void]:
        """Applies events (`EVENT`); returns what they did (`USE`), without those that did nothing.

        A miss is counted at the access. Where the access or fault comes before the page, it is
        counted at the event that adds the page.
        """
        mapping = np.unique(events["tid"][events["kind"] == MAP])
        self._windows = np.union1d(self._windows, mapping)
        # An event may also decide about the window before it.
        uses = np.zeros(2 * len(events) + 1, USE)
        made = _follow(
            events, self._base, self._end, self._page_bytes, self._told, self._pages,
            self._threads, self._files, self._counters, uses,
        )  # fmt: skip
        return uses[:made]

    def finish(self, ts: int) -> NDArray[np.void]:
        """Returns the windows of which no later event tells, and the pages never used (`USE`).

        The latter have the time `ts`, one row per file.
        """
        last = np.zeros(len(self._windows), EVENT)
        last["kind"], last["tid"], last["file"] = END, self._windows, NOTHING
        windows = self.add(last)
        unused = np.zeros(len(self._base), np.int64)
        _count_fresh(self._base, self._end, self._pages, unused)
        files = np.flatnonzero(unused)
        uses = np.zeros(len(files), USE)
        uses["ts"], uses["file"], uses["unused"] = ts, files, unused[files]
        for name in ("pid", "tid"):
            uses[name] = uses[f"by_{name}"] = self._files[name][files]
        return np.concatenate([windows, uses])


@compiled
def _follow(
    events: NDArray[np.void],
    base: Ints,
    ends: Ints,
    page_bytes: int,
    told: bool,
    pages: NDArray[np.void],
    threads: NDArray[np.void],
    files: NDArray[np.void],
    counters: Ints,
    uses: NDArray[np.void],
) -> int:
    made = 0
    for number in range(len(events)):
        event = events[number]
        tid, kind, file = event["tid"], event["kind"], event["file"]
        if tid < 0 or tid >= len(threads):
            continue
        counters[0] += 1
        now = counters[0]
        thread = threads[tid]
        if thread["window"] > 0 and kind not in (BIO, WAIT):
            mapped_file = thread["window"] - 1
            fails = (
                kind == FAULT
                and file == mapped_file
                and thread["window_first"] <= event["index"] < thread["window_end"]
            )
            use = uses[made]
            if not fails:
                cold = files[mapped_file]["cold"] != 0
                _map(pages, base[mapped_file], cold, tid, now, thread, use)
            thread["window"] = 0
            if use["accessed"] > 0:
                use["ts"], use["file"] = thread["window_ts"], mapped_file
                use["pid"] = use["by_pid"] = thread["window_pid"]
                use["tid"] = use["by_tid"] = tid
                made += 1
        use = uses[made]
        if kind in (BEGIN, END):
            thread["reclaims"] = np.uint8(kind == BEGIN)
            continue
        if kind == RETURN:
            file = thread["file"]
            if thread["last"] != ACCESS or thread["event"] <= thread["returned"]:
                continue  # a call that read none of these files
            thread["returned"] = now
            visible = min(thread["end"], ends[file]) - thread["call_first"]
            hidden = -(-(event["pages"] - visible * page_bytes) // page_bytes)
            if hidden < 1 or hidden > min(BATCH_FOLIOS - 1, thread["call_first"]):
                continue
            _use(
                pages, base[file] + thread["call_first"] - hidden,
                base[file] + thread["call_first"], tid, thread["began"], use,
            )  # fmt: skip
        elif kind in (BIO, WAIT):
            file = thread["device_file"] - 1
            if file < 0:
                continue
            if kind == BIO:
                use["disk_bytes"] = event["pages"]
            else:
                use["wait_ns"] = event["pages"]
        elif file < 0:
            continue
        else:
            first = event["index"]
            if first < 0 or first >= ends[file]:
                continue
            end = min(first + min(max(event["pages"], 1), MOST_PAGES), ends[file])
            if kind == DELETE:
                _delete(pages, base[file], first, end, thread["reclaims"] != 0, counters, use)
            elif kind == ADD:
                _add(pages, base[file], first, end, told, file, tid, now, thread, counters, use)
                if use["read"] > 0:
                    files[file]["cold"] = 1
            elif kind in (SYNC, ASYNC, AHEAD):
                thread["reads"] = thread["device_file"] = file + 1
                thread["reads_from"] = first
                thread["reads_to"] = end if kind == AHEAD else ends[file]
                thread["cut"] = 1
                continue
            elif kind == MAP:
                thread["window"] = file + 1
                thread["window_first"], thread["window_end"] = first, end
                thread["window_ts"], thread["window_pid"] = event["ts"], event["pid"]
                files[file]["pid"], files[file]["tid"] = event["pid"], tid
                continue
            elif kind == ACCESS:
                wanted = first + event["pages"]
                told_next = event["continues"]
                _access(
                    pages, base[file], first, end, wanted, told_next, file, tid, now, thread, use
                )
            else:
                _fault(pages, base[file], first, file, tid, now, thread, use)
        if kind == DELETE:
            use["pid"], use["tid"] = files[file]["pid"], files[file]["tid"]
            if use["tid"] == 0:
                use["pid"], use["tid"] = event["pid"], tid
        else:
            if kind not in (BIO, WAIT):
                files[file]["pid"], files[file]["tid"] = event["pid"], tid
            use["pid"], use["tid"] = event["pid"], tid
        if (
            use["accessed"] or use["missed"] or use["read"] or use["evicted"] or use["removed"]
            or use["disk_bytes"] or use["wait_ns"]
        ):  # fmt: skip
            use["ts"], use["file"] = event["ts"], file
            use["by_pid"], use["by_tid"] = event["pid"], tid
            made += 1
        else:
            use["pid"], use["tid"] = 0, 0
    return made


@compiled
def _delete(
    pages: NDArray[np.void],
    base: int,
    first: int,
    end: int,
    evicts: bool,
    counters: Ints,
    use: NDArray[np.void],
) -> None:
    for place in range(base + first, base + end):
        page = pages[place]
        if page["flags"] & FRESH:
            use["unused"] += 1
        page["flags"] = KNOWN
        page["evicted"] = 0
        page["mapped"] = 0
        if evicts:
            use["evicted"] += 1
            counters[1] += 1
            page["evicted"] = counters[1]
        else:
            use["removed"] += 1


@compiled
def _add(
    pages: NDArray[np.void],
    base: int,
    first: int,
    end: int,
    told: bool,
    file: int,
    tid: int,
    now: int,
    thread: NDArray[np.void],
    counters: Ints,
    use: NDArray[np.void],
) -> None:
    waited_for = thread["missing"] - 1 if thread["file"] == file else -1
    faults = first <= waited_for < end
    in_call = thread["last"] == ACCESS and thread["file"] == file
    reads = (
        faults
        or not told
        or (
            thread["reads"] == file + 1
            and first < thread["reads_to"]
            and end > thread["reads_from"]
        )
    )
    for index in range(first, end):
        page = pages[base + index]
        # An access took it for cached.
        counted = in_call and thread["first"] <= index < thread["counted"]
        missed = counted and page["flags"] & TAKEN_FOR_CACHED != 0
        page["flags"] = KNOWN | CACHED
        page["by"] = tid
        page["added"] = now
        if index != waited_for:
            page["mapped"] = 0
        if reads:
            use["read"] += 1
            if page["evicted"] > 0:
                use["refaulted"] += 1
                use["refault_distance"] += counters[1] - page["evicted"]
            if missed or index == waited_for:
                use["missed"] += 1
            else:
                page["flags"] = KNOWN | CACHED | FRESH
        page["evicted"] = 0
    if faults:
        thread["missing"] = 0
    if reads:
        thread["device_file"] = file + 1


@compiled
def _access(
    pages: NDArray[np.void],
    base: int,
    first: int,
    end: int,
    wanted: int,
    told_next: int,
    file: int,
    tid: int,
    now: int,
    thread: NDArray[np.void],
    use: NDArray[np.void],
) -> None:
    goes_on = (
        thread["last"] == ACCESS
        and thread["file"] == file
        and thread["end"] == wanted
        and thread["first"] < first
    )
    if told_next >= 0:
        goes_on = goes_on and told_next > 0
    else:
        # A batch ends at its size, or where pages were missing or are read ahead.
        goes_on = goes_on and (first - thread["first"] >= BATCH_FOLIOS or thread["cut"] > 0)
    begin: Any = first
    if goes_on:
        begin = max(first, thread["counted"])
    else:
        thread["began"] = thread["event"]
        thread["call_first"] = first
    index = begin
    while index < end:
        flags = pages[base + index]["flags"]
        if flags & KNOWN and not flags & CACHED and index > first:
            break  # the call has yet to read it
        index += 1
    _use(pages, base + begin, base + index, tid, thread["began"], use)
    thread["last"] = ACCESS
    thread["file"] = file
    thread["first"], thread["end"] = first, wanted
    thread["counted"] = index
    thread["event"] = now
    thread["missing"] = 0
    thread["reads"] = 0
    thread["cut"] = 0


@compiled
def _use(
    pages: NDArray[np.void], first: int, end: int, tid: int, began: Any, use: NDArray[np.void]
) -> None:
    """Counts pages as used by a call that began after event `began`."""
    for place in range(first, end):
        page = pages[place]
        use["accessed"] += 1
        if page["flags"] & FRESH and page["by"] == tid and page["added"] > began:
            use["missed"] += 1
        known = page["flags"] & KNOWN
        page["flags"] = KNOWN | CACHED if known else KNOWN | CACHED | TAKEN_FOR_CACHED


@compiled
def _fault(
    pages: NDArray[np.void],
    base: int,
    index: int,
    file: int,
    tid: int,
    now: int,
    thread: NDArray[np.void],
    use: NDArray[np.void],
) -> None:
    page = pages[base + index]
    repeated = thread["last"] == FAULT and thread["file"] == file and thread["first"] == index
    if not (repeated and thread["mended"] > 0):
        use["accessed"] += 1
    thread["mended"] = 0
    if page["flags"] & CACHED and not page["flags"] & TAKEN_FOR_CACHED:
        page["flags"] = KNOWN | CACHED
        thread["missing"] = 0
    else:
        thread["missing"] = index + 1
        thread["mended"] = 1
    page["mapped"], page["mapped_by"] = now, tid
    thread["last"] = FAULT
    thread["file"] = file
    thread["first"], thread["end"] = index, index + 1
    thread["event"] = now
    thread["device_file"] = file + 1
    thread["reads"] = 0


@compiled
def _map(
    pages: NDArray[np.void],
    base: int,
    cold: bool,
    tid: int,
    now: int,
    thread: NDArray[np.void],
    use: NDArray[np.void],
) -> None:
    """Uses the pages of a window that the kernel has mapped now.

    `cold`: pages of the file were read in the recording, so the unknown ones are not cached.
    """
    first, end = base + thread["window_first"], base + thread["window_end"]
    new = False
    for place in range(first, end):
        page = pages[place]
        there = page["flags"] & CACHED or not (cold or page["flags"] & KNOWN)
        if there and not (page["mapped_by"] == tid and page["mapped"] > thread["remapped"]):
            new = True
    of_fault = thread["last"] == FAULT and base + thread["first"] >= first
    if not new and not (of_fault and base + thread["first"] < end):
        thread["remapped"] = now - 1
    for place in range(first, end):
        page = pages[place]
        if not page["flags"] & CACHED and (cold or page["flags"] & KNOWN):
            continue
        if page["mapped_by"] == tid and page["mapped"] > thread["remapped"]:
            continue
        use["accessed"] += 1
        use["mapped"] += 1
        known = page["flags"] & KNOWN
        page["flags"] = KNOWN | CACHED if known else KNOWN | CACHED | TAKEN_FOR_CACHED
        page["mapped"], page["mapped_by"] = now, tid
    thread["last"] = MAP


@compiled
def _count_fresh(base: Ints, ends: Ints, pages: NDArray[np.void], unused: Ints) -> None:
    for file in range(len(base)):
        for place in range(base[file], base[file] + ends[file]):
            if pages[place]["flags"] & FRESH:
                unused[file] += 1
