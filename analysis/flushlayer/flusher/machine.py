"""The dirty state of the kernel: dirty pages, inodes on the lists of their device, and counts.

Lists and times: struct bdi_writeback (include/linux/backing-dev-defs.h), fs/fs-writeback.c. The
functions that `model.py` calls are compiled with it: after a change in this file, delete the
cache of `model.py` (`__pycache__/*.nb*`).
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled

DROP, FREE, MARK, DIRTY, WRITE_PAGES, SYNC_INODE, SYNC_DEVICE = range(7)
"""Kinds of events, in the order in which events of the same time are played. DROP: pages are no
longer dirty; FREE: the inode ends; WRITE_PAGES: somebody writes pages; SYNC_INODE: somebody writes
the dirty pages of a range of a file."""
IDLE, PERIODIC, BACKGROUND, FIRST_FREE_REASON = -1, 0, 1, 2
"""Current work of a flusher, and the number of its reason. Other reasons have numbers from
FIRST_FREE_REASON on."""
B_DIRTY, B_IO, B_MORE_IO = 1, 2, 3
"""The inode lists of a device: struct bdi_writeback."""

NEVER = (1 << 62) - 1
MIN_WRITEBACK_PAGES = 1024
"""4 MiB: fs/fs-writeback.c."""
FIRST_BANDWIDTH = 25_600
"""Pages a second that the kernel assumes of a device before it measures it: INIT_BW."""
UNLIMITED = 1 << 60

Machine = namedtuple(
    "Machine",
    "device first_page dirty who block until early_low early_high lowest highest cursor since "
    "where after before "
    "timer looked regular work left step_at under device_pages device_inodes share limits out n "
    "sums",
)
"""The changing state and the constants of the model: see `start`."""

(
    DIRTY_NOW, UNDER_NOW, PEAK, LAST_AT, ABOVE_BACKGROUND, ABOVE_FREERUN, ABOVE_LIMIT,
    DIRTIED, ABSORBED, DROPPED, WRITTEN, PAGES_ABOVE_FREERUN, DIRTYINGS_ABOVE_FREERUN, LOOKS,
    CHUNKS, HIDDEN, _SUMS,
) = range(17)  # fmt: skip
"""Indexes of `sums`: dirty pages now and at most, ns above each threshold, pages by outcome."""
(
    EXPIRE, WRITEBACK, BACKGROUND_PAGES, FREERUN_PAGES, LIMIT_PAGES, CHUNK, NS_PER_PAGE, TICK,
    TICK_ZERO, AT_MOST, LIMITS,
) = range(11)  # fmt: skip
"""Indexes of `limits`: times in ns, thresholds in pages (NEVER: not known), the length of a jiffies
tick in ns (0: not known), TICK_ZERO, the time in ns at which jiffies were 0, and AT_MOST, 1 if
hidden dirtyings are played. LIMITS is the number of entries."""
WRITE_COLUMNS = 7
OUT_TS, OUT_INODE, OUT_PAGE, OUT_PAGES, OUT_BLOCK, OUT_WHO, OUT_REASON = range(WRITE_COLUMNS)


def start(
    device: NDArray[np.int32],
    first_page: NDArray[np.int64],
    share: NDArray[np.float64],
    limits: NDArray[np.int64],
    first_look: NDArray[np.int64],
    interval_ns: int,
) -> Machine:
    """Returns a machine without dirty pages.

    `device`: the device of each inode. Inode i has the pages first_page[i] to first_page[i + 1],
    in the order of the file. `share`: the share of each device in the pages written, which sets
    its part of the threshold. `first_look`: the time in ns at which each device's flusher first
    looks for old inodes; NEVER: an interval after the device's first dirty inode.
    """
    inodes, devices, pages = len(device), len(share), int(first_page[-1])
    heads = inodes + 3 * devices
    after = np.arange(heads, dtype=np.int64)
    looked = np.where(first_look == NEVER, -NEVER, first_look - interval_ns)
    return Machine(
        device=device, first_page=first_page, dirty=np.zeros(pages, np.uint8),
        who=np.full(pages, -1, np.int64), block=np.full(pages, -1, np.int64),
        until=np.full(pages, -NEVER, np.int64),
        early_low=first_page[1:].copy(), early_high=first_page[:-1].copy() - 1,
        lowest=first_page[1:].copy(), highest=first_page[:-1].copy() - 1,
        cursor=first_page[:-1].copy(), since=np.zeros(inodes, np.int64),
        where=np.zeros(inodes, np.int8), after=after, before=after.copy(),
        timer=first_look.copy() if interval_ns else np.full(devices, NEVER, np.int64),
        looked=looked, regular=first_look.copy(),
        work=np.full(devices, IDLE, np.int64), left=np.zeros(devices, np.int64),
        step_at=np.full(devices, NEVER, np.int64),
        under=np.zeros(devices, np.int64), device_pages=np.zeros(devices, np.int64),
        device_inodes=np.zeros(devices, np.int64), share=share, limits=limits,
        out=np.empty((1024, WRITE_COLUMNS), np.int64), n=np.zeros(1, np.int64),
        sums=np.zeros(_SUMS, np.int64),
    )  # fmt: skip


@compiled
def unlist(m: Any, i: int) -> None:
    m.after[m.before[i]] = m.after[i]
    m.before[m.after[i]] = m.before[i]
    m.after[i] = i
    m.before[i] = i


@compiled
def to_head(m: Any, i: int, which: int) -> None:
    head = len(m.device) + 3 * m.device[i] + which - 1
    unlist(m, i)
    first = m.after[head]
    m.after[head] = i
    m.before[i] = head
    m.after[i] = first
    m.before[first] = i
    m.where[i] = which


@compiled
def tail(m: Any, d: int, which: int) -> Any:
    """Returns the inode at the tail of a list, which leaves first; -1: the list is empty."""
    head = len(m.device) + 3 * d + which - 1
    last = m.before[head]
    return -1 if last == head else last


@compiled
def wheel_shift(ticks: int) -> Any:
    """Returns the granularity, as a power of 2, of a timer of `ticks` ticks: calc_wheel_index()
    in kernel/time/timer.c."""
    shift = 0
    while shift < 24 and ticks >= 63 << shift:
        shift += 3
    return shift


@compiled
def timer_after(m: Any, now: int) -> Any:
    """Returns the time at which a timer of the flusher's interval fires if it is set now.

    calc_index() rounds up.
    """
    interval, tick, zero = m.limits[WRITEBACK], m.limits[TICK], m.limits[TICK_ZERO]
    if tick == 0:
        return now + interval
    ticks = interval // tick
    shift = wheel_shift(ticks)
    expires = (now - zero) // tick + ticks
    return zero + (((expires >> shift) + 1) << shift) * tick


@compiled
def period(m: Any) -> Any:
    """Returns the time in ns between two expirations of the flusher's timer."""
    interval, tick = m.limits[WRITEBACK], m.limits[TICK]
    if tick == 0:
        return interval
    ticks = interval // tick
    shift = wheel_shift(ticks)
    return (((ticks >> shift) + 1) << shift) * tick


@compiled
def dirtied_before(m: Any, now: int, age: int) -> Any:
    """Returns the last moment of the tick that lies `age` before the current tick.

    The kernel keeps dirtied_when in jiffies.
    """
    tick, zero = m.limits[TICK], m.limits[TICK_ZERO]
    if tick == 0:
        return now - age
    return zero + ((now - zero) // tick - age // tick) * tick + tick - 1


@compiled
def pass_time(m: Any, now: int) -> None:
    held = m.sums[DIRTY_NOW] + m.sums[UNDER_NOW]
    time = now - m.sums[LAST_AT]
    if time > 0:
        if m.sums[DIRTY_NOW] > m.limits[BACKGROUND_PAGES]:
            m.sums[ABOVE_BACKGROUND] += time
        if held > m.limits[FREERUN_PAGES]:
            m.sums[ABOVE_FREERUN] += time
        if held > m.limits[LIMIT_PAGES]:
            m.sums[ABOVE_LIMIT] += time
        m.sums[LAST_AT] = now


@compiled
def mark(m: Any, i: int, now: int) -> None:
    """Puts a clean inode on b_dirty; a dirty inode keeps its time: __mark_inode_dirty()."""
    if m.where[i] != 0:
        return
    d = m.device[i]
    m.since[i] = now
    to_head(m, i, B_DIRTY)
    m.device_inodes[d] += 1
    if m.limits[WRITEBACK] > 0 and m.timer[d] == NEVER and m.work[d] == IDLE:
        m.timer[d] = timer_after(m, now)


@compiled
def dirty_again(m: Any, i: int, now: int) -> None:
    """Dirties the pages of an inode that the model has written, but that are still dirty in the
    recording (with AT_MOST)."""
    for p in range(m.early_low[i], m.early_high[i] + 1):
        if not m.dirty[p] and m.until[p] > now:
            m.dirty[p] = 1
            m.sums[DIRTY_NOW] += 1
            m.device_pages[m.device[i]] += 1
            m.sums[DIRTIED] += 1
            m.sums[HIDDEN] += 1
            m.lowest[i] = min(m.lowest[i], p)
            m.highest[i] = max(m.highest[i], p)
    m.early_low[i] = m.first_page[i + 1]
    m.early_high[i] = m.first_page[i] - 1
    m.sums[PEAK] = max(m.sums[PEAK], m.sums[DIRTY_NOW] + m.sums[UNDER_NOW])


@compiled
def clean(m: Any, i: int) -> None:
    if m.where[i] != 0:
        unlist(m, i)
        m.where[i] = 0
        m.device_inodes[m.device[i]] -= 1


@compiled
def drop(m: Any, i: int, first: int, last: int) -> None:
    for p in range(first, last):
        m.until[p] = -NEVER
        if m.dirty[p]:
            m.dirty[p] = 0
            m.sums[DIRTY_NOW] -= 1
            m.device_pages[m.device[i]] -= 1
            m.sums[DROPPED] += 1


@compiled
def write_range(m: Any, out: Any, i: int, first: int, last: int, most: int, now: int,
                 reason: int) -> Any:  # fmt: skip
    """Writes at most `most` dirty pages of [first, last).

    Returns (rows, pages written, page where it ended).
    """
    wrote = 0
    run = -1
    p = first
    while p < last and wrote < most:
        if m.dirty[p]:
            m.dirty[p] = 0
            wrote += 1
            if m.limits[AT_MOST] and m.until[p] > now:
                m.early_low[i] = min(m.early_low[i], p)
                m.early_high[i] = max(m.early_high[i], p)
            block = m.block[p]
            follows = (
                run >= 0
                and out[run, OUT_PAGE] + out[run, OUT_PAGES] == p
                and out[run, OUT_WHO] == m.who[p]
                and (
                    (block < 0 and out[run, OUT_BLOCK] < 0)
                    or (
                        out[run, OUT_BLOCK] >= 0
                        and block == out[run, OUT_BLOCK] + out[run, OUT_PAGES]
                    )
                )
            )
            if follows:
                out[run, OUT_PAGES] += 1
            else:
                run = m.n[0]
                if run == len(out):
                    more = np.empty((2 * run, out.shape[1]), np.int64)
                    more[:run] = out
                    out = more
                m.n[0] += 1
                out[run, OUT_TS] = now
                out[run, OUT_INODE] = i
                out[run, OUT_PAGE] = p
                out[run, OUT_PAGES] = 1
                out[run, OUT_BLOCK] = block
                out[run, OUT_WHO] = m.who[p]
                out[run, OUT_REASON] = reason
        p += 1
    m.sums[DIRTY_NOW] -= wrote
    m.device_pages[m.device[i]] -= wrote
    m.sums[WRITTEN] += wrote
    return out, wrote, p


@compiled
def write_inode(m: Any, out: Any, i: int, most: int, now: int, reason: int) -> Any:
    """Writes an inode's pages from the end of its last chunk on, then from its first page.

    Returns (rows, pages written, whether dirty pages are left).
    """
    first, last = m.lowest[i], m.highest[i] + 1
    begin = min(max(m.cursor[i], first), max(first, last))
    out, wrote, ended = write_range(m, out, i, begin, last, most, now, reason)
    if wrote < most and begin > first:
        out, rest, ended = write_range(m, out, i, first, begin, most - wrote, now, reason)
        wrote += rest
    if wrote < most:
        m.lowest[i] = m.first_page[i + 1]
        m.highest[i] = m.first_page[i] - 1
        m.cursor[i] = m.first_page[i]
        return out, wrote, False
    m.cursor[i] = ended
    more = False
    for p in range(first, last):
        if m.dirty[p]:
            more = True
            break
    return out, wrote, more
