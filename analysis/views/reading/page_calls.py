"""The reads of a thread: when a call began to read pages, and the pages that it did not log."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.views.reading.page_states import ACCESS, AHEAD, ASYNC, FAULT
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
def not_logged(event: Any, ends: Ints, page_bytes: int, thread: Any, now: int) -> int:
    """Returns the pages of a call that no access was logged for, by the bytes that it returned."""
    if thread["last"] != ACCESS or thread["event"] <= thread["returned"]:
        return 0  # a call that read none of these files
    if thread["call_ts"] < event["index"]:
        return 0  # the access was of another call
    thread["returned"] = now
    logged = min(thread["end"], ends[thread["file"]]) - thread["call_first"]
    hidden = -(-(event["pages"] - logged * page_bytes) // page_bytes)
    return hidden if 0 < hidden <= thread["call_first"] else 0
