"""The changes that a fault, and the window that is mapped around it, make to the states of pages.

A window has a row of uses for each run of its pages, since some of them may not be in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.page_changes import use_page
from tracer.analysis.views.page_states import CACHED, FAULT, KNOWN, MAP, TAKEN_FOR_CACHED
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
    """Uses the page of a fault."""
    page = pages[base + index]
    repeated = thread["last"] == FAULT and thread["file"] == file and thread["first"] == index
    taken = page["flags"] & TAKEN_FOR_CACHED and page["mapped"] > 0 and page["mapped_by"] == pid
    if repeated and thread["mended"] > 0:
        pass
    elif taken:
        use["mapped"] -= 1  # a window was taken to map it
    else:
        use["accessed"] += 1
        use["kind"], use["first"], use["pages"] = FAULT, index, 1
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
    pid = thread["window_pid"]
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
            rows += 1
        following = place + 1
        _count(uses[made + rows - 1], place - base, 1)
        use_page(page, page["by"] == tid)
        page["mapped"], page["mapped_by"] = now, pid
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
    thread: NDArray[np.void],
    uses: NDArray[np.void],
    made: int,
) -> int:
    """Takes back the uses of pages that a window was taken to map, but that are added only now.

    Returns the rows made of `uses`: each has a run of pages, and counts below 0.
    """
    rows: Any = 0
    if thread["last"] != FAULT:
        return 0
    waited_for = thread["missing"] - 1 if thread["file"] == file else -1
    following: Any = -1
    for index in range(first, end):
        page = pages[base + index]
        taken = page["flags"] & TAKEN_FOR_CACHED and page["mapped"] > thread["remapped"]
        if index == waited_for or not taken or page["mapped_by"] != pid:
            continue
        if index != following:
            rows += 1
        following = index + 1
        _count(uses[made + rows - 1], index, -1)
    return int(rows)


@compiled
def _count(use: NDArray[np.void], index: int, change: int) -> None:
    # Adds a page to the run of a row, or begins the run. A row without a count may hold others.
    if use["accessed"] == 0:
        use["kind"], use["first"], use["pages"] = MAP, index, 0
    use["pages"] += 1
    use["accessed"] += change
    use["mapped"] += change
