"""The reads of a thread: when a call began to read pages, and what its accesses did not tell."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.page_changes import use_pages
from tracer.analysis.views.page_states import (
    ACCESS,
    AHEAD,
    ASYNC,
    BY_WINDOW,
    FAULT,
    TAKEN_FOR_CACHED,
)
from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled


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
    thread["asks_to"] = first + event["pages"]
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
    use: Any,
) -> bool:
    """Counts, by the bytes that a call returned, what its accesses did not tell.

    These are pages that no access was logged for, or else those that the accesses wanted beyond the
    end of the file, whose use is taken back. Returns whether there are any.
    """
    if thread["asked"] < event["ts"]:
        thread["asked"] = 0  # the call that asked has returned
    if thread["last"] != ACCESS or thread["event"] <= thread["returned"]:
        return False  # a call that read none of these files
    if thread["call_ts"] < event["index"]:
        return False  # the access was of another call
    thread["returned"] = now
    file, first = thread["file"], thread["call_first"]
    logged = min(thread["end"], ends[file]) - first
    hidden = -(-(event["pages"] - logged * page_bytes) // page_bytes)
    if 0 < hidden <= first:
        use_pages(
            pages, base[file], first - hidden, first, event["tid"], thread["began"], use
        )  # fmt: skip
        return True
    return _take_back(base[file], _end_of_read(event, page_bytes, thread), pages, thread, use)


@compiled
def _end_of_read(event: Any, page_bytes: int, thread: Any) -> int:
    # Returns the end of the pages that a call has read; if it is not known where in its first page
    # it began, the largest end that there can be.
    if event["offset"] >= 0:
        return int(-(-(event["offset"] + event["pages"]) // page_bytes))
    within = page_bytes - 1
    wanted = (thread["end"] - thread["call_first"]) * page_bytes
    if 0 <= wanted - event["asked"] < page_bytes:
        within = min(within, wanted - event["asked"])
    return int(thread["call_first"] - (-(within + event["pages"]) // page_bytes))


@compiled
def _take_back(base: int, end: int, pages: NDArray[np.void], thread: Any, use: Any) -> bool:
    # Takes back the use of the call's pages from `end` on that only its access named.
    index: Any = max(end, thread["call_first"])
    first = index
    while index < thread["counted"] and pages[base + index]["flags"] & TAKEN_FOR_CACHED:
        if not pages[base + index]["flags"] & BY_WINDOW:
            pages[base + index]["flags"] = 0
        index += 1
    use["kind"], use["first"], use["pages"] = ACCESS, first, index - first
    use["accessed"] = first - index
    return bool(index > first)
