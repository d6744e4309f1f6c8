"""The decoder of ring-buffer pages.

A page consists of a header (timestamp, committed bytes with two flags in the high bits) and
events. An event is a 32-bit word of type (5 bits) and time delta (27 bits) and a payload. Sources:
kernel/trace/ring_buffer.c and include/linux/ring_buffer.h; the tracefs files `events/header_page`
and `events/header_event` also give the layout.

Pages are untrusted input: decoding of a page stops at the first invalid word, and the page is
counted as damaged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled

_COMMIT_MASK = (1 << 20) - 1
_MISSED_EVENTS = 1 << 31
_MISSED_STORED = 1 << 30
_DELTA_BITS = 27
_ABSOLUTE_BITS = 59
"""Bits of an absolute time stamp in the buffer, which lacks the five highest bits."""

MIN_EVENT_BYTES = 8
"""Smallest data event: the header word and one word of payload."""


def header_index(
    pages: NDArray[np.uint8], timestamp_offset: int, commit_offset: int
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Returns the start times and commit words of `pages` (n x page bytes)."""
    stamps = np.ascontiguousarray(pages[:, timestamp_offset : timestamp_offset + 8])
    commits = np.ascontiguousarray(pages[:, commit_offset : commit_offset + 4])
    return stamps.view("<i8")[:, 0], commits.view("<u4")[:, 0]


def missed_events(commit: int) -> bool:
    """Returns whether events before this page were overwritten before they were read."""
    return bool(commit & _MISSED_EVENTS)


def missed_count(page: NDArray[np.uint8], commit: int, data_offset: int) -> int | None:
    """Returns the number of events overwritten before this page; None if it is not recorded."""
    where = data_offset + (commit & _COMMIT_MASK)
    if not commit & _MISSED_STORED or where + 8 > len(page):
        return None
    count = int(page[where : where + 8].view("<i8")[0])
    return count if count >= 0 else None


@compiled
def decode_pages(
    words: Any,
    page_words: int,
    pages: int,
    stamps: Any,
    commits: Any,
    data_offset: int,
    type_shift: int,
    pid_word: int,
    out_ts: Any,
    out_type: Any,
    out_tid: Any,
    out_offset: Any,
    out_length: Any,
) -> Any:
    """Decodes `pages` consecutive pages in `words` (uint32) into the output arrays.

    The event type is the low 16 bits of a payload's first word shifted right by `type_shift`.
    The thread id is the payload's word number `pid_word`. Offsets and lengths are in bytes;
    offsets count from the start of `words`. Returns (events, damaged pages, last time seen).
    """
    n = 0
    damaged = 0
    last: Any = np.int64(0)
    for page in range(pages):
        first = page * page_words + data_offset // 4
        size = np.int64(commits[page]) & _COMMIT_MASK
        end = first + size // 4
        if size % 4 != 0 or data_offset + size > page_words * 4:
            damaged += 1
            continue
        now: Any = np.int64(stamps[page])
        at: Any = first
        while at < end:
            word = np.int64(words[at])
            kind = word & 31
            delta = word >> 5
            if kind == 30:  # time extend: the next word has the delta's higher bits
                if at + 2 > end:
                    damaged += 1
                    break
                now = now + delta + (np.int64(words[at + 1]) << _DELTA_BITS)
                at += 2
                continue
            if kind == 31:  # absolute time without its five highest bits
                if at + 2 > end:
                    damaged += 1
                    break
                stamp: Any = delta + (np.int64(words[at + 1]) << _DELTA_BITS)
                stamp |= (now >> _ABSOLUTE_BITS) << _ABSOLUTE_BITS
                if stamp < now and now - stamp > (np.int64(1) << (_ABSOLUTE_BITS - 1)):
                    stamp += np.int64(1) << _ABSOLUTE_BITS
                now = stamp
                at += 2
                continue
            if kind == 29:  # padding to the end of the page, or a discarded event
                if delta == 0 or at + 2 > end:
                    break
                now += delta
                skip = np.int64(words[at + 1])
                if skip < 4 or skip % 4 != 0:
                    damaged += 1
                    break
                at += 1 + skip // 4
                continue
            now += delta
            if kind == 0:  # the next word is the length, which includes that word
                if at + 2 > end:
                    damaged += 1
                    break
                length = np.int64(words[at + 1])
                payload = at + 2
                after = at + 1 + (length + 3) // 4
                length -= 4
            else:
                length = kind * 4
                payload = at + 1
                after = payload + kind
            if length < 4 * (pid_word + 1) or after > end:
                damaged += 1
                break
            out_ts[n] = now
            out_type[n] = (np.int64(words[payload]) >> type_shift) & 0xFFFF
            out_tid[n] = np.int64(words[payload + pid_word])
            out_offset[n] = payload * 4
            out_length[n] = length
            n += 1
            at = after
        last = max(last, now)
    return n, damaged, last
