"""The records of the page cache's pages, files and threads, and of the events that change them."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from tracer.probes.errors import BadTrace
from tracer.sizes import show_size

KINDS = (
    *("access", "map", "fault", "add", "delete"),
    *("sync_read_ahead", "async_read_ahead", "read_ahead", "bio", "wait", "begin", "end", "return"),
    *("call_reads", "call_writes", "call_ends", "dirty"),
)
"""Events that are followed. An event's code is its index here. From bio on, they are of other
tables: a read of a device, a wait for it, the begin and end of a thread's reclaim, the return of a
call that read; if accesses are inferred, the begin and end of a call that brings pages in; and a
folio that a write through a shared mapping makes dirty."""
(ACCESS, MAP, FAULT, ADD, DELETE, SYNC, ASYNC, AHEAD, BIO, WAIT, BEGIN, END, RETURN, CALL_READS,
 CALL_WRITES, CALL_ENDS, DIRTY) = range(len(KINDS))  # fmt: skip
NOTHING = -1

EVENT = np.dtype(
    [
        ("ts", "i8"),  # ns
        ("kind", "i8"),  # code of KINDS
        ("pid", "i4"),  # keys, as of `Lives.keys_of`
        ("tid", "i4"),
        ("file", "i4"),  # its number; from bio on, only of a bio held back, and of kind dirty
        ("index", "i8"),  # first page; return: ns, time at which the call began
        ("pages", "i8"),  # bio, return: bytes; wait: ns
        (
            "continues",
            "i1",
        ),  # access: 1 if it is of the same call as the one before; -1: not known;
        # inferred: 1 if its call brought pages in; bio: 1 if its reader and file are not known;
        # wait: 1 if its call queued a read itself
        ("life", "i4"),  # add: `life` of the thread in the view threads; -1: not known
        ("asked", "i8"),  # return: bytes that the call asked for; -1: not known
        ("offset", "i8"),  # return: bytes, place in the file at which it began; -1: not known
    ]
)
USE = np.dtype(
    [
        ("ts", "i8"),
        ("pid", "i4"),  # the process and thread that use the file
        ("tid", "i4"),
        ("by_pid", "i4"),  # the process and thread of the event
        ("by_tid", "i4"),
        ("used", "i8"),  # ns, time at which that thread used the file; 0: that of the event
        ("file", "i4"),
        # Pages used: ACCESS, FAULT, MAP; written: ADD; removed: DELETE; or NOTHING. A MAP or an
        # ACCESS below 0 takes back the use of pages, at the time of that use.
        ("kind", "i1"),
        ("first", "i8"),  # first of these pages, or of those that are added
        ("pages", "i8"),
        # The `life` of the thread that had brought in the pages that leave; -1: not known who it
        # was; 0: they were there before, or none leave.
        ("brought_by", "i4"),
        ("accessed", "i8"),
        ("mapped", "i8"),
        ("missed", "i8"),
        ("read", "i8"),
        ("written", "i8"),
        ("unused", "i8"),
        ("evicted", "i8"),
        ("removed", "i8"),
        ("refaulted", "i8"),
        ("refault_distance", "i8"),
        ("disk_bytes", "i8"),
        ("wait_ns", "i8"),
        ("unplaced", "i8"),
    ]
)
COUNTS = USE.names[11:] if USE.names else ()
"""The counts of an event's effects, in pages except for the last three."""

PAGE = np.dtype(
    [
        ("flags", "u1"),
        ("by", "i4"),  # the thread that added it
        ("added", "i8"),  # number of the event that added it; BY_WINDOW: number of its last window
        ("evicted", "i8"),  # pages evicted before it; 0: it was not evicted since it was added
        ("mapped", "i8"),  # number of the event that mapped it
        ("mapped_by", "i4"),  # the process that mapped it last
        ("life", "i4"),  # `life` of the thread that added it, as in EVENT; 0: no event added it
    ],
    align=True,
)
KNOWN, CACHED, FRESH, TAKEN_FOR_CACHED, ASKED, UNREAD, BY_WINDOW, MISSED = (
    1 << bit for bit in range(8)
)
"""Flags of a page: some event named it; it is in the cache; it was read and not used yet; nothing
but an access told that it is in the cache; a call brought it in and has not accessed it yet; a read
brought it in, and no bio that was held back has read it since; nothing but an access told that it
is in the cache, and it counts as mapped by windows around faults; the thread that brought it in
last missed it, also after it has left the cache."""

THREAD = np.dtype(
    [
        ("last", "i4"),  # kind of its last access or fault
        ("file", "i4"),  # of that, and its first page and end
        ("first", "i8"),
        ("end", "i8"),
        ("window", "i4"),  # 1 + file of a window whose success is not known yet
        ("window_first", "i8"),
        ("window_end", "i8"),
        ("window_from", "i8"),  # first page and end that its event names
        ("window_to", "i8"),
        ("window_ts", "i8"),
        ("window_pid", "i4"),
        ("window_event", "i8"),  # number of its event
        ("window_cold", "u1"),  # 1: its file was `cold` then, as in FILE
        ("remapped", "i8"),  # number of the event before which its mappings ended
        ("counted", "i8"),  # first page of the call that is not counted yet
        ("event", "i8"),  # number of that event
        ("began", "i8"),  # number of the event after which its call began
        ("call_first", "i8"),  # first page of the call's first access
        ("call_ts", "i8"),  # ns, time of that access
        ("since", "i8"),  # ns, time to which the pages of its last call or fault belong
        ("returned", "i8"),  # number of the last return of a call that read
        ("reads", "i4"),  # 1 + file of which it reads pages from .. to
        ("reads_from", "i8"),
        ("reads_to", "i8"),
        ("asks", "u1"),  # 1: its call has begun to read pages, since its last access
        ("asks_from", "i8"),  # the first page that it lacked
        ("asks_to", "i8"),  # end of the call's pages
        ("asked", "i8"),  # ns, time at which that began; 0: not known
        ("marked", "u1"),  # 1: it has reached the mark of pages read ahead, where its batch ends
        ("cut", "u1"),  # 1: its last batch ended there, or the next one lacks pages
        ("mapped", "i8"),  # as in PAGE, of its last fault's page before the fault; 0: it was not
        ("missing", "i8"),  # 1 + the page that its fault waits for
        ("mended", "u1"),  # 1: its last fault read pages, and may be repeated
        ("device_file", "i4"),  # 1 + file that it read last, for its waits
        ("pid", "i4"),  # the process in which it added pages last
        ("to_read", "i8"),  # pages that it has added, and no bio of its has read yet
        ("bio_file", "i4"),  # 1 + file of which it reads pages from the device now, for its bios
        ("past", "u1"),  # 1: its last bio was of a read past the cache
        ("reclaims", "u1"),
        ("writes", "u1"),  # 1: it is in a call that writes; known only if accesses are inferred
    ],
    align=True,
)
WINDOW = np.dtype(
    [
        ("ts", "i8"),  # ns
        ("pid", "i4"),  # the process and thread that mapped it
        ("tid", "i4"),
        ("before", "i8"),  # number of the window before it of the same pages; 0: none
    ],
    align=True,
)
"""A window around a fault that some pages count as mapped by."""
MOST_WINDOWS = 1 << 24
"""Most windows of such pages that are kept: each takes 24 bytes. Later ones are not taken back."""
FILE = np.dtype(
    [
        ("pid", "i4"),  # the process and thread that used it last
        ("tid", "i4"),
        ("used", "i8"),  # ns, time at which they did
        ("cold", "u1"),  # 1: a page of it was read that was not in the cache before
    ],
    align=True,
)
MOST_PAGES = 1 << 20
"""Most pages of an event: a call reads less than 2 GiB, and no folio is larger."""
BATCH_FOLIOS = 31
"""PAGEVEC_SIZE of include/linux/pagevec.h: the folios of a batch."""


def untouched(count: int, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Returns an array of zeros of which only the touched parts take memory.

    Raises BadTrace if this process may not have so many addresses.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    size = max(1, count) * dtype.itemsize
    try:
        return np.frombuffer(mmap.mmap(-1, size, flags), dtype)
    except OSError as error:
        raise BadTrace(
            f"{show_size(size)} of addresses for the pages of the files: {error.strerror}",
            "raise ulimit -v and -d, or set vm.overcommit_memory to 0",
        ) from None
