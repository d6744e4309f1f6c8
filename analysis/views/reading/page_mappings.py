"""The changes that a fault, and the window that is mapped around it, make to the states of pages.

A window has a row of uses for each run of its pages, since some of them may not be in the cache.
Its unknown pages are taken for cached. Linux 6.18 also maps the rest of a folio that a window has
a part of, unless the file ends with it (filemap_map_pages); the pages that one event added are a
folio. A page keeps a chain of the windows that were taken to map
it, those of all processes: an addition tells that the page was there for none of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.reading.page_changes import use_page
from tracer.analysis.views.reading.page_states import (
    BY_WINDOW,
    CACHED,
    FAULT,
    KNOWN,
    MAP,
    TAKEN_FOR_CACHED,
)
from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled


@compiled
def fault(
    pages: NDArray[np.void],
    base: int,
    index: int,
    file: int,
    pid: int,
    tid: int,
    now: int,
    thread: NDArray[np.void],
    use: NDArray[np.void],
) -> None:
    """Uses the page of a fault. `take_back_own` goes before."""
    page = pages[base + index]
    before = page["mapped"] if page["mapped_by"] == pid else 0
    repeated = thread["last"] == FAULT and thread["file"] == file and thread["first"] == index
    if not repeated or thread["mended"] == 0:
        use["accessed"] += 1
        use["kind"], use["first"], use["pages"] = FAULT, index, 1
    if not repeated:
        thread["mapped"] = before
    thread["mended"] = 0
    if page["flags"] & CACHED and not page["flags"] & TAKEN_FOR_CACHED:
        use_page(page, page["by"] == tid)
        thread["missing"] = 0
    else:
        thread["missing"] = index + 1
        thread["mended"] = 1
    page["mapped"], page["mapped_by"] = now, pid
    thread["last"] = FAULT
    thread["file"] = file
    thread["first"], thread["end"] = index, index + 1
    thread["event"] = now
    thread["device_file"] = file + 1
    thread["reads"] = thread["asks"] = thread["bio_file"] = thread["to_read"] = 0


@compiled
def map_written_folio(
    event: Any,
    pages: NDArray[np.void],
    base: int,
    size: int,
    now: int,
    thread: Any,
    counters: Ints,
    uses: NDArray[np.void],
    made: int,
) -> int:
    """Uses the rest of the folio that a thread's last fault has written to; returns the rows made.

    If the process has mapped another page of it before, the kernel maps one page only.
    """
    index, first, end = thread["first"], thread["first"], thread["first"] + 1
    if thread["last"] != FAULT or thread["file"] != event["file"] or index >= size:
        return 0
    while end < size and _of_one_folio(pages[base + end], pages[base + index]):
        end += 1
    while first > 0 and _of_one_folio(pages[base + first - 1], pages[base + index]):
        first -= 1
    counters[2] += end - first
    since = max(thread["mapped"], thread["remapped"])
    if first != event["index"]:
        return 0  # not by this fault
    thread["last"] = MAP
    for place in range(base + first, base + end):
        page = pages[place]
        if place != base + index and page["mapped_by"] == event["pid"] and page["mapped"] > since:
            return 0
    rows = 0
    for begin, until in ((first, index), (index + 1, end)):
        if begin < until:
            use = uses[made + rows]
            _begin_run(use, begin, thread["since"], event["file"], event["pid"], event["tid"])
            _count(use, until - begin, 1)
            rows += 1
    for place in range(base + first, base + end):
        page = pages[place]
        if place != base + index:
            use_page(page, page["by"] == event["tid"])
        page["mapped"], page["mapped_by"] = now, event["pid"]
    return rows


@compiled
def whole_folios(
    pages: NDArray[np.void], base: int, size: int, first: int, end: int
) -> tuple[int, int]:
    """Returns the first page and the end of a window, widened to the ends of its outer folios.

    A folio that ends with the file is not mapped as a whole. `size`: pages of the file.
    """
    wide = end
    while wide < size and _of_one_folio(pages[base + wide], pages[base + end - 1]):
        wide += 1
    if wide < size:
        end = wide
    elif _of_one_folio(pages[base + first], pages[base + end - 1]):
        return first, end
    begin = first
    while begin > 0 and _of_one_folio(pages[base + begin - 1], pages[base + first]):
        begin -= 1
    return begin, end


@compiled
def _of_one_folio(one: Any, other: Any) -> bool:
    known = one["flags"] & other["flags"] & CACHED and not (
        (one["flags"] | other["flags"]) & TAKEN_FOR_CACHED
    )
    return bool(known and one["added"] == other["added"])


@compiled
def begin_window(
    event: Any, named_end: int, first: int, end: int, files: NDArray[np.void], now: int, thread: Any
) -> None:
    """Notes the window that a thread maps; its next event decides about it.

    The event names the pages up to `named_end`; the kernel maps those from `first` to `end`.
    """
    thread["window"] = event["file"] + 1
    thread["window_from"], thread["window_to"] = event["index"], named_end
    thread["window_first"], thread["window_end"] = first, end
    thread["window_ts"], thread["window_pid"] = event["ts"], event["pid"]
    thread["window_event"] = now
    thread["window_cold"] = files[event["file"]]["cold"]
    thread["bio_file"] = thread["to_read"] = 0


@compiled
def end_window(
    event: Any,
    base: Ints,
    pages: NDArray[np.void],
    thread: Any,
    windows: NDArray[np.void],
    now: int,
    counters: Ints,
    uses: NDArray[np.void],
    made: int,
) -> int:
    """Decides by a thread's next event about the window that it mapped; returns the rows made."""
    file = thread["window"] - 1
    fails = (
        event["kind"] == FAULT
        and event["file"] == file
        and thread["window_from"] <= event["index"] < thread["window_to"]
    )
    rows: Any = 0
    if not fails:
        rows = _map_window(
            pages, base[file], event["tid"], now, thread, windows, counters, uses, made
        )
    thread["window"] = 0
    return int(rows)


@compiled
def _map_window(
    pages: NDArray[np.void],
    base: int,
    tid: int,
    now: int,
    thread: NDArray[np.void],
    windows: NDArray[np.void],
    counters: Ints,
    uses: NDArray[np.void],
    made: int,
) -> int:
    # Uses the pages of a window that the kernel has mapped; returns the rows made of `uses`. A row
    # has a run of pages that the process had not mapped before. Unknown pages are taken for cached,
    # except if the file was `cold`: a page of it had been read that was not there before. If one is
    # not cached, its fault or its addition tells so later.
    ts, pid, file = thread["window_ts"], thread["window_pid"], thread["window"] - 1
    first, end = base + thread["window_first"], base + thread["window_end"]
    new = False
    for place in range(first, end):
        page = pages[place]
        mapped = page["mapped_by"] == pid and page["mapped"] > thread["remapped"]
        if _was_there(page, thread) and not mapped:
            new = True
    of_fault = thread["last"] == FAULT and base + thread["first"] >= first
    if not new and not (of_fault and base + thread["first"] < end):
        thread["remapped"] = now - 1
    rows: Any = 0
    following: Any = -1
    kept: Any = 0
    for place in range(first, end):
        page = pages[place]
        if not _was_there(page, thread):
            continue
        if page["mapped_by"] == pid and page["mapped"] > thread["remapped"]:
            continue
        if place != following:
            _begin_run(uses[made + rows], place - base, ts, file, pid, tid)
            rows += 1
        following = place + 1
        _count(uses[made + rows - 1], 1, 1)
        use_page(page, page["by"] == tid)
        page["mapped"], page["mapped_by"] = now, pid
        if page["flags"] & TAKEN_FOR_CACHED:
            before: Any = 0
            if page["flags"] & BY_WINDOW:
                before = page["added"]
            if kept == 0 or windows[kept]["before"] != before:
                kept = _keep(windows, counters, ts, pid, tid, before)
            if kept > 0:
                page["flags"] |= BY_WINDOW
                page["added"] = kept
    thread["last"] = MAP
    return int(rows)


@compiled
def _was_there(page: Any, thread: Any) -> bool:
    # Another thread may have added it, or another page of the file, since the window was mapped.
    if page["flags"] & CACHED and not page["flags"] & TAKEN_FOR_CACHED:
        return bool(page["added"] < thread["window_event"])
    return bool(page["flags"] & CACHED or not (thread["window_cold"] or page["flags"] & KNOWN))


@compiled
def _keep(
    windows: NDArray[np.void], counters: Ints, ts: Any, pid: Any, tid: Any, before: Any
) -> int:
    # Returns the number of the window; 0: there is no room for it.
    number = counters[4] + 1
    if number >= len(windows):
        return 0
    counters[4] = number
    window = windows[number]
    window["ts"], window["pid"], window["tid"], window["before"] = ts, pid, tid, before
    return int(number)


@compiled
def count_windows(
    pages: NDArray[np.void], base: int, first: int, end: int, windows: NDArray[np.void]
) -> int:
    """Returns how many windows pages count as mapped by, each page for itself."""
    found = 0
    for place in range(base + first, base + end):
        if pages[place]["flags"] & BY_WINDOW:
            number = pages[place]["added"]
            while number > 0:
                found += 1
                number = windows[number]["before"]
    return found


@compiled
def take_back_own(
    pages: NDArray[np.void],
    base: int,
    index: int,
    file: int,
    pid: int,
    windows: NDArray[np.void],
    counters: Ints,
    uses: NDArray[np.void],
    made: int,
) -> int:
    """Takes back the uses of a page by windows of the process that faults there now.

    The windows of other processes may have mapped it, unless it is added. Returns the rows made of
    `uses`: one for each window, with its time and its thread, and counts below 0.
    """
    page = pages[base + index]
    if not page["flags"] & BY_WINDOW:
        return 0
    own, others = 0, 0
    number: Any = page["added"]
    while number > 0:
        if windows[number]["pid"] == pid:
            own += 1
        else:
            others += 1
        number = windows[number]["before"]
    if own == 0 or counters[4] + others >= len(windows):
        return 0
    # The page gets a chain of its own: other pages may share the one that it had.
    rows, copied = 0, counters[4]
    number = page["added"]
    while number > 0:
        window = windows[number]
        if window["pid"] == pid:
            use = uses[made + rows]
            _begin_run(use, index, window["ts"], file, pid, window["tid"])
            _count(use, 1, -1)
            rows += 1
        else:
            copied += 1
            copy = windows[copied]
            copy["ts"], copy["pid"], copy["tid"] = window["ts"], window["pid"], window["tid"]
            copy["before"] = copied + 1
        number = window["before"]
    if others > 0:
        windows[copied]["before"] = 0
        page["added"] = counters[4] + 1
        counters[4] = copied
    else:
        page["flags"] ^= BY_WINDOW
        page["added"] = 0
    return int(rows)


@compiled
def take_back(
    pages: NDArray[np.void],
    base: int,
    first: int,
    end: int,
    file: int,
    windows: NDArray[np.void],
    uses: NDArray[np.void],
    made: int,
) -> int:
    """Takes back the uses of pages that are added now by all windows: the pages were not there.

    Returns the rows made of `uses`: each has a run of pages of one window, its time and its thread,
    and counts below 0.
    """
    rows: Any = 0
    index: Any = first
    while index < end:
        page = pages[base + index]
        until = index + 1
        if not page["flags"] & BY_WINDOW:
            index = until
            continue
        number: Any = page["added"]
        while (
            until < end
            and pages[base + until]["flags"] & BY_WINDOW
            and pages[base + until]["added"] == number
        ):
            until += 1
        while number > 0:
            window = windows[number]
            use = uses[made + rows]
            _begin_run(use, index, window["ts"], file, window["pid"], window["tid"])
            _count(use, until - index, -1)
            rows += 1
            number = window["before"]
        index = until
    return int(rows)


@compiled
def _begin_run(use: NDArray[np.void], index: Any, ts: Any, file: Any, pid: Any, tid: Any) -> None:
    # An event that did nothing may have left its pages here.
    use["kind"], use["first"], use["pages"] = MAP, index, 0
    use["ts"], use["file"] = ts, file
    use["pid"] = use["by_pid"] = pid
    use["tid"] = use["by_tid"] = tid


@compiled
def _count(use: NDArray[np.void], pages: Any, change: int) -> None:
    use["pages"] += pages
    use["accessed"] += change * pages
    use["mapped"] += change * pages
