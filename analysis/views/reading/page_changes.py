"""The changes that an event makes to the states of pages and of its thread."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.reading.page_states import (
    ACCESS,
    ADD,
    ASKED,
    BATCH_FOLIOS,
    BY_WINDOW,
    CACHED,
    DELETE,
    FRESH,
    KNOWN,
    MISSED,
    NOTHING,
    TAKEN_FOR_CACHED,
    UNREAD,
)
from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled


@compiled
def delete(
    pages: NDArray[np.void],
    base: int,
    first: int,
    end: int,
    evicts: bool,
    counters: Ints,
    uses: NDArray[np.void],
    made: int,
) -> int:
    """Takes pages out of the cache; returns the rows made of `uses`.

    A row has a run of pages that the same thread had brought in.
    """
    rows: Any = 0
    use = uses[made]
    for place in range(base + first, base + end):
        page = pages[place]
        if rows == 0 or page["life"] != use["brought_by"]:
            use = uses[made + rows]
            use["brought_by"] = page["life"]
            use["kind"] = NOTHING if evicts else DELETE
            use["first"], use["pages"] = place - base, 0
            rows += 1
        use["pages"] += 1
        page["life"] = 0
        if page["flags"] & FRESH:
            use["unused"] += 1
        if page["flags"] & TAKEN_FOR_CACHED:
            page["added"] = 0  # the number of a window is no event's
        page["flags"] = KNOWN | (page["flags"] & MISSED)
        page["evicted"] = 0
        page["mapped"] = 0
        if evicts:
            use["evicted"] += 1
            counters[1] += 1
            page["evicted"] = counters[1]
        else:
            use["removed"] += 1
    return int(rows)


@compiled
def add(
    pages: NDArray[np.void],
    base: int,
    first: int,
    end: int,
    told: bool,
    file: int,
    pid: int,
    tid: int,
    life: int,
    now: int,
    thread: NDArray[np.void],
    counters: Ints,
    use: NDArray[np.void],
) -> bool:
    """Brings pages into the cache; returns whether one is read that no event tells to have left."""
    cold: Any = False
    waited_for = thread["missing"] - 1 if thread["file"] == file else -1
    faults = first <= waited_for < end
    in_call = thread["last"] == ACCESS and thread["file"] == file
    # The same call reads the same end. It has got the first page of its last batch.
    goes_on = (
        in_call
        and thread["returned"] < thread["event"]
        and thread["asks"]
        and thread["asks_to"] == thread["end"]
        and thread["asks_from"] > thread["first"]
    )
    reads = (
        faults
        or (not told and not thread["writes"])
        or (
            thread["reads"] == file + 1
            and first < thread["reads_to"]
            and end > thread["reads_from"]
        )
    )
    for index in range(first, end):
        page = pages[base + index]
        unnamed = page["flags"] == 0 or page["flags"] & TAKEN_FOR_CACHED != 0
        cold = cold or (reads and unnamed)
        # An access took it for cached, or it was evicted before its batch came. The call misses it
        # only once.
        missed_before = (
            page["flags"] & MISSED and page["by"] == tid and page["added"] > thread["began"]
        )
        missed = (
            in_call
            and thread["first"] <= index < thread["counted"]
            and (page["flags"] & TAKEN_FOR_CACHED != 0 or (goes_on and not missed_before))
        )
        if index != waited_for:
            page["mapped"] = 0
        page["flags"] = KNOWN | CACHED
        page["by"] = tid
        page["life"] = life
        page["added"] = now
        if reads:
            use["read"] += 1
            if page["evicted"] > 0:
                use["refaulted"] += 1
                use["refault_distance"] += counters[1] - page["evicted"]
            if missed or index == waited_for:
                use["missed"] += 1
                page["flags"] |= MISSED
            else:
                page["flags"] = KNOWN | CACHED | FRESH
                if thread["asks"] or not told:
                    page["flags"] |= ASKED
            page["flags"] |= UNREAD
        page["evicted"] = 0
    use["first"], use["pages"] = first, end - first
    if not reads:
        use["written"], use["kind"] = end - first, ADD
    if faults:
        thread["missing"] = 0
    thread["pid"] = pid
    if reads:
        if thread["bio_file"] != file + 1:
            thread["to_read"] = 0
        thread["to_read"] += end - first
        thread["device_file"] = thread["bio_file"] = file + 1
    return bool(cold)


@compiled
def read_held_back(
    pages: NDArray[np.void], base: int, first: int, end: int, size: int, page_bytes: int, use: Any
) -> int:
    """Counts a bio for the thread that added its pages; returns that thread.

    Returns -1 if no page waits for a bio: it is of a read past the cache.
    """
    reader: Any = -1
    found = 0
    for place in range(base + first, base + end):
        page = pages[place]
        if page["flags"] & UNREAD:
            page["flags"] ^= UNREAD
            reader = page["by"]
            found += 1
    use["disk_bytes"] = min(size, found * page_bytes)
    return int(reader)


@compiled
def access(
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
    """Uses the pages of a batch of a call that reads."""
    # Its batch ends at a mark; the rest of the call comes in another one.
    marked = thread["marked"]
    thread["marked"] = 0
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
        goes_on = goes_on and (
            first - thread["first"] >= BATCH_FOLIOS
            or thread["cut"] > 0
            or first >= thread["counted"]
        )
    begin: Any = first
    if goes_on:
        # A batch before this one may not have been logged.
        begin = thread["counted"]
        use_again(pages, base + thread["first"], base + min(first, begin), thread["event"])
        use_again(pages, base + first, base + min(first + BATCH_FOLIOS, begin), now)
    else:
        thread["began"] = thread["event"]
        thread["call_first"] = first
    index = begin
    while index < end:
        flags = pages[base + index]["flags"]
        if flags & KNOWN and not flags & CACHED and index > first:
            break  # the call has yet to read it
        index += 1
    use_pages(pages, base, begin, index, tid, thread["began"], use)
    thread["last"] = ACCESS
    thread["file"] = file
    thread["first"], thread["end"] = first, wanted
    thread["counted"] = index
    thread["event"] = now
    thread["missing"] = 0
    thread["reads"] = thread["asks"] = thread["bio_file"] = thread["to_read"] = 0
    thread["cut"] = marked


@compiled
def access_of_call(
    pages: NDArray[np.void],
    base: int,
    first: int,
    end: int,
    adds: bool,
    file: int,
    tid: int,
    now: int,
    thread: NDArray[np.void],
    use: NDArray[np.void],
) -> None:
    """Uses all pages of a call that returns now; `adds`: some were added since it began."""
    use["kind"], use["first"], use["pages"] = ACCESS, first, end - first
    for place in range(base + first, base + end):
        page = pages[place]
        own = page["by"] == tid
        added = not page["flags"] & TAKEN_FOR_CACHED and page["added"] > thread["began"]
        use["accessed"] += 1
        if adds and own and added:
            use["missed"] += 1
        if page["flags"] & CACHED or not page["flags"] & KNOWN:
            use_page(page, own)
    thread["last"] = ACCESS
    thread["file"] = file
    thread["first"], thread["end"], thread["counted"] = first, end, first
    thread["call_first"] = first
    thread["event"] = now
    thread["missing"] = 0
    thread["reads"] = thread["asks"] = thread["bio_file"] = thread["to_read"] = thread["cut"] = 0


@compiled
def use_pages(
    pages: NDArray[np.void],
    base: int,
    first: Any,
    end: Any,
    tid: int,
    began: Any,
    use: NDArray[np.void],
) -> None:
    """Counts pages as used by a call that began after event `began`."""
    use["kind"], use["first"], use["pages"] = ACCESS, first, end - first
    for place in range(base + first, base + end):
        page = pages[place]
        use["accessed"] += 1
        own = page["by"] == tid
        missed = own and page["flags"] & ASKED and page["added"] > began
        use_page(page, own)
        if missed:
            use["missed"] += 1
            page["flags"] |= MISSED


@compiled
def use_again(pages: NDArray[np.void], begin: Any, end: Any, access: Any) -> None:
    """Marks pages of a batch as used: others may have brought them in since they were counted.

    `access` is the number of the batch's event: pages that came later are not of the batch.
    """
    for place in range(begin, end):
        page = pages[place]
        if page["added"] < access:
            page["flags"] = (page["flags"] | FRESH) ^ FRESH


@compiled
def use_page(page: NDArray[np.void], own: bool) -> None:
    """Marks a page as used: it is in the cache. `own`: by the thread that brought it in."""
    if not page["flags"] & KNOWN:
        page["flags"] = KNOWN | CACHED | TAKEN_FOR_CACHED
    else:
        kept = TAKEN_FOR_CACHED | UNREAD | BY_WINDOW | MISSED
        if not own:
            kept |= ASKED
        page["flags"] = KNOWN | CACHED | (page["flags"] & kept)


@compiled
def look_ahead(pages: NDArray[np.void], base: int, first: int, end: int) -> None:
    """Takes unknown pages of a read-ahead for cached: right after it, the others are added."""
    for place in range(base + first, base + end):
        page = pages[place]
        if not page["flags"] & KNOWN:
            page["flags"] = KNOWN | CACHED | TAKEN_FOR_CACHED


@compiled
def count_fresh(base: Ints, ends: Ints, pages: NDArray[np.void], unused: Ints) -> None:
    """Counts the pages of each file that nobody has used."""
    for file in range(len(base)):
        for place in range(base[file], base[file] + ends[file]):
            if pages[place]["flags"] & FRESH:
                unused[file] += 1
