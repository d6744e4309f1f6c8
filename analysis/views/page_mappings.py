"""The changes that a fault, and the window that is mapped around it, make to the states of pages.

A window has a row of uses for each run of its pages, since some of them may not be in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.page_changes import use_page
from tracer.analysis.views.page_states import (
    BY_WINDOW,
    CACHED,
    FAULT,
    KNOWN,
    MAP,
    TAKEN_FOR_CACHED,
)
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
    """Uses the page of a fault. If a window was taken to map it, `take_back` goes before."""
    page = pages[base + index]
    repeated = thread["last"] == FAULT and thread["file"] == file and thread["first"] == index
    if not repeated or thread["mended"] == 0:
        use["accessed"] += 1
        use["kind"], use["first"], use["pages"] = FAULT, index, 1
    thread["mended"] = 0
    page["flags"] = (page["flags"] | BY_WINDOW) ^ BY_WINDOW
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
def map_window(
    pages: NDArray[np.void],
    base: int,
    cold: bool,
    tid: int,
    now: int,
    thread: NDArray[np.void],
    uses: NDArray[np.void],
    made: int,
) -> int:
    """Uses the pages of a window that the kernel has mapped now; returns the rows made of `uses`.

    A row has a run of pages that the process had not mapped before. Unknown pages are taken for
    cached, except if the file is `cold`: a page of it was read that was not there before. If one is
    not cached, its fault or its addition tells so later.
    """
    ts, pid, file = thread["window_ts"], thread["window_pid"], thread["window"] - 1
    first, end = base + thread["window_first"], base + thread["window_end"]
    new = False
    for place in range(first, end):
        page = pages[place]
        there = page["flags"] & CACHED or not (cold or page["flags"] & KNOWN)
        if there and not (page["mapped_by"] == pid and page["mapped"] > thread["remapped"]):
            new = True
    of_fault = thread["last"] == FAULT and base + thread["first"] >= first
    if not new and not (of_fault and base + thread["first"] < end):
        thread["remapped"] = now - 1
    rows: Any = 0
    following: Any = -1
    for place in range(first, end):
        page = pages[place]
        if not page["flags"] & CACHED and (cold or page["flags"] & KNOWN):
            continue
        if page["mapped_by"] == pid and page["mapped"] > thread["remapped"]:
            continue
        if place != following:
            _begin_run(uses[made + rows], place - base, ts, file, pid, tid)
            rows += 1
        following = place + 1
        _count(uses[made + rows - 1], 1)
        use_page(page, page["by"] == tid)
        page["mapped"], page["mapped_by"] = now, pid
        if page["flags"] & TAKEN_FOR_CACHED:
            page["flags"] |= BY_WINDOW
            page["added"], page["by"] = ts, tid
    thread["last"] = MAP
    return int(rows)


@compiled
def take_back(
    pages: NDArray[np.void],
    base: int,
    first: int,
    end: int,
    file: int,
    pid: int,
    uses: NDArray[np.void],
    made: int,
) -> int:
    """Takes back the uses of pages that a window was taken to map: they turn out to be missing.

    Returns the rows made of `uses`: each has a run of pages of one window, its time and its thread,
    and counts below 0.
    """
    rows: Any = 0
    following: Any = -1
    use = uses[made]
    for index in range(first, end):
        page = pages[base + index]
        if not page["flags"] & BY_WINDOW or page["mapped_by"] != pid:
            continue
        if index != following or page["added"] != use["ts"] or page["by"] != use["tid"]:
            use = uses[made + rows]
            _begin_run(use, index, page["added"], file, pid, page["by"])
            rows += 1
        following = index + 1
        _count(use, -1)
    return int(rows)


@compiled
def _begin_run(use: NDArray[np.void], index: Any, ts: Any, file: Any, pid: Any, tid: Any) -> None:
    # An event that did nothing may have left its pages here.
    use["kind"], use["first"], use["pages"] = MAP, index, 0
    use["ts"], use["file"] = ts, file
    use["pid"] = use["by_pid"] = pid
    use["tid"] = use["by_tid"] = tid


@compiled
def _count(use: NDArray[np.void], change: int) -> None:
    use["pages"] += 1
    use["accessed"] += change
    use["mapped"] += change
