"""The reads of a thread: when a call began to read pages, and what its accesses did not tell."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.reading.page_changes import use_pages
from tracer.analysis.views.reading.page_states import (
    ACCESS,
    AHEAD,
    ASYNC,
    BY_WINDOW,
    CACHED,
    FAULT,
    FRESH,
    TAKEN_FOR_CACHED,
)
from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled

_MOST_BYTES = 0x7FFFF000
"""MAX_RW_COUNT of include/linux/fs.h: most bytes of a call, with pages of 4 KiB."""


@compiled
def begin_read(event: Any, end: int, file_end: int, thread: Any) -> None:
    """Notes the pages that a thread begins to read from the device."""
    file, first, kind = event["file"], event["index"], event["kind"]
    if thread["bio_file"] != file + 1:
        thread["to_read"] = thread["asked"] = 0
    thread["past"] = 0
    thread["reads"] = thread["device_file"] = thread["bio_file"] = file + 1
    thread["reads_from"] = first
    thread["reads_to"] = end if kind == AHEAD else file_end
    thread["cut"] = 1
    if kind == AHEAD:
        return
    # What a fault reads, no call has asked for.
    faults = thread["last"] == FAULT and thread["file"] == file and first <= thread["first"]
    thread["asks"] = np.uint8(not faults)
    thread["asks_from"], thread["asks_to"] = first, first + event["pages"]
    thread["marked"] = np.uint8(kind == ASYNC and not faults)
    if thread["asked"] == 0 and not faults:
        # If no call has returned since the last access, this is the same call.
        goes_on = (
            thread["last"] == ACCESS
            and thread["file"] == file
            and thread["end"] == thread["asks_to"]
            and thread["first"] < first
            and 0 < thread["returned"] < thread["event"]
        )
        thread["asked"] = thread["since"] if goes_on else event["ts"]
    if kind == ASYNC and faults:
        thread["mended"] = 1


@compiled
def time_of_addition(event: Any, inferred: bool, thread: Any, use: Any) -> int:
    """Returns the time to which the pages that a thread adds belong: that of its call or fault."""
    if use["missed"] > 0:
        return int(thread["since"])
    if use["read"] > 0 and thread["asked"] > 0 and (inferred or thread["asks"] > 0):
        return int(thread["asked"])
    return int(event["ts"])


@compiled
def end_call(
    event: Any,
    base: Ints,
    ends: Ints,
    page_bytes: int,
    pages: NDArray[np.void],
    now: int,
    thread: Any,
    uses: NDArray[np.void],
    made: int,
) -> int:
    """Counts, by the bytes that a call returned, what its accesses did not tell.

    These are pages that no access was logged for, and those that the accesses wanted beyond the end
    of the file, whose use is taken back. Returns the rows made of `uses`, two at most.
    """
    if thread["asked"] < event["ts"]:
        thread["asked"] = 0  # the call that asked has returned
    accessed, thread["returned"] = thread["event"] > thread["returned"], now
    thread["event"] = now
    if event["pages"] < 0:
        return 0  # it would have had to wait for pages that it has brought in
    if thread["last"] != ACCESS or not accessed or thread["call_ts"] < event["index"]:
        return 0  # a call that read none of these files; the last access was of another call
    file, tid = thread["file"], event["tid"]
    hidden = _not_logged(event, ends, page_bytes, thread)
    end = _end_of_read(event, page_bytes, thread, hidden)
    rows: Any = 0
    if _take_back(base[file], end, pages, tid, thread, uses[made]) > 0:
        _name(uses[made], event, thread)
        rows += 1
    if hidden > 0:
        first, use = thread["call_first"], uses[made + rows]
        use_pages(pages, base[file], first - hidden, first, tid, thread["began"], use)
        _name(use, event, thread)
        rows += 1
    return int(rows)


@compiled
def _name(use: Any, event: Any, thread: Any) -> None:
    use["ts"], use["file"] = thread["since"], thread["file"]
    use["pid"] = use["by_pid"] = event["pid"]
    use["tid"] = use["by_tid"] = event["tid"]


@compiled
def _not_logged(event: Any, ends: Ints, page_bytes: int, thread: Any) -> int:
    # Returns the pages of a call before those that its accesses named.
    first, read = thread["call_first"], -(-event["pages"] // page_bytes)
    if event["offset"] >= 0:
        hidden = first - event["offset"] // page_bytes
    elif 0 < event["asked"] <= _MOST_BYTES:
        hidden = first - thread["end"] - (-event["asked"] // page_bytes)
    else:
        logged = min(thread["end"], ends[thread["file"]]) - first
        hidden = -(-(event["pages"] - logged * page_bytes) // page_bytes)
    return int(hidden if 0 < hidden <= min(first, read) else 0)


@compiled
def _end_of_read(event: Any, page_bytes: int, thread: Any, hidden: int) -> int:
    # Returns the end of the pages that a call has read; if it is not known where in its first page
    # it began, the largest end that there can be.
    if event["offset"] >= 0:
        return int(-(-(event["offset"] + event["pages"]) // page_bytes))
    first = thread["call_first"] - hidden
    within = page_bytes - 1
    wanted = (thread["end"] - first) * page_bytes
    if 0 <= wanted - event["asked"] < page_bytes:
        within = min(within, wanted - event["asked"])
    return int(first - (-(within + event["pages"]) // page_bytes))


@compiled
def _take_back(
    base: int, end: int, pages: NDArray[np.void], tid: int, thread: Any, use: Any
) -> int:
    # Takes back the use of the call's pages from `end` on that only its access named, or that it
    # has brought in and not returned, since it does not wait. Returns their number.
    index: Any = max(end, thread["call_first"])
    first = index
    while index < thread["counted"]:
        page = pages[base + index]
        if page["flags"] & TAKEN_FOR_CACHED:
            if not page["flags"] & BY_WINDOW:
                page["flags"] = 0
        elif page["flags"] & CACHED and page["by"] == tid and page["added"] > thread["began"]:
            page["flags"] |= FRESH
            use["missed"] -= 1
        else:
            break
        index += 1
    use["kind"], use["first"], use["pages"] = ACCESS, first, index - first
    use["accessed"] = first - index
    return int(index - first)
