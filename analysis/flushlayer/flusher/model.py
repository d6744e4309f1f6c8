"""The kernel's flusher, event by event.

Each rule names its kernel function. Files: fs/fs-writeback.c, mm/page-writeback.c (6.18).

- An inode that becomes dirty goes to the head of its device's b_dirty. It keeps that time until it
  is clean, even if it is dirtied again: __mark_inode_dirty().
- A device's first dirty inode sets its timer: wb_wakeup_delayed(). A run of the flusher sets the
  timer again if inodes are left: wb_workfn(). With 0 centisecs there is no timer.
- A run looks for old inodes if the last such look is an interval ago: wb_check_old_data_flush().
  Then it writes while the background threshold is exceeded: wb_check_background_flush().
- The timer has the granularity of the timer wheel: 5 s become 5.12 s at 250 Hz:
  kernel/time/timer.c.
- An inode is old if it became dirty at least `expire` ago: move_expired_inodes(). The oldest inode
  is written first: queue_io().
- Inodes are written in chunks, in turn. A chunk starts where the inode's last chunk ended and
  follows the file's pages: writeback_sb_inodes(), writeback_chunk_size(), requeue_inode().
- Background write-out ends below the threshold: wb_over_bg_thresh(). The model checks after each
  chunk (the kernel: after the chunk that ends 100 ms).
- A task that dirties a page above the background threshold wakes the flusher:
  balance_dirty_pages(). The model checks at each dirtying; the kernel every few dozen pages of a
  task.
- fsync writes pages, but leaves the inode on its list with its time: file_write_and_wait_range().
  sync writes all pages and cleans inodes: sync_inodes_sb(). Both happen when they were recorded.

Not modelled: write-back cgroups (one flusher a device), dirty-time (lazytime), memory reclaim,
laptop mode. Dirtiers are never slowed down (open): the model counts their pages above the free-run
ceiling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.flusher.machine import (
    ABSORBED,
    B_DIRTY,
    B_IO,
    B_MORE_IO,
    BACKGROUND,
    BACKGROUND_PAGES,
    CHUNK,
    CHUNKS,
    DIRTIED,
    DIRTY,
    DIRTY_NOW,
    DIRTYINGS_ABOVE_FREERUN,
    DROP,
    EXPIRE,
    FREE,
    FREERUN_PAGES,
    IDLE,
    LAST_AT,
    LOOKS,
    MARK,
    MIN_WRITEBACK_PAGES,
    NEVER,
    NS_PER_PAGE,
    PAGES_ABOVE_FREERUN,
    PEAK,
    PERIODIC,
    SYNC_INODE,
    UNDER_NOW,
    UNLIMITED,
    WRITE_PAGES,
    WRITEBACK,
    Machine,
    clean,
    dirtied_before,
    dirty_again,
    drop,
    mark,
    pass_time,
    period,
    tail,
    timer_after,
    to_head,
    write_inode,
    write_range,
)
from tracer.probes.compiled import compiled


def run(machine: Machine, events: dict[str, NDArray[Any]], end_ns: int) -> tuple[Any, Any]:
    """Plays events, sorted by time and kind, until `end_ns`; returns (writes, sums).

    `events` has the columns ts, kind, inode (the device for SYNC_DEVICE), page (the first), pages,
    block (first page on the disk, -1: not known), who, until (for DIRTY: the time at which the
    page is clean again in the recording), reason. `writes` has one row for each run of consecutive
    pages written at once, with the OUT columns of machine.py; `sums` has the indexes of machine.py.
    """
    out, sums = _run(
        machine, events["ts"], events["kind"], events["inode"], events["page"], events["pages"],
        events["block"], events["who"], events["until"], events["reason"], end_ns,
    )  # fmt: skip
    return np.asarray(out), np.asarray(sums)


@compiled
def _over_background(m: Any, d: int) -> Any:
    """Returns whether the background threshold, or the device's part of it, is exceeded.

    wb_over_bg_thresh(), and __wb_calc_thresh() with a constant share.
    """
    limit = m.limits[BACKGROUND_PAGES]
    now = m.sums[DIRTY_NOW]
    if now > limit:
        return True
    if limit >= NEVER:
        return False
    part = max(int(m.share[d] * limit), (limit - now) // 8)
    return m.device_pages[d] > part


@compiled
def _set_timer(m: Any, d: int, now: int) -> None:
    """Sets the timer to the next interval (wb_workfn()); skips looks that would find no old
    inode."""
    m.regular[d] = m.timer[d] = timer_after(m, now)
    oldest = tail(m, d, B_DIRTY)
    if oldest >= 0 and not _over_background(m, d):
        due = m.since[oldest] + m.limits[EXPIRE]
        if due > m.timer[d]:
            m.timer[d] += -(-(due - m.timer[d]) // period(m)) * period(m)


@compiled
def _look_soon(m: Any, d: int, now: int) -> None:
    """Undoes the skipping of `_set_timer`: moves the timer to the next interval, because the device
    now exceeds its part of the background threshold."""
    if m.timer[d] != NEVER and m.timer[d] > m.regular[d]:
        behind = max(0, now - m.regular[d])
        m.timer[d] = min(m.timer[d], m.regular[d] + -(-behind // period(m)) * period(m))


@compiled
def _begin_run(m: Any, d: int, now: int) -> None:
    """Starts a run (wb_do_writeback()): a look for old inodes if it is due, then background
    write-out, to which `_go_on` changes after the look."""
    m.timer[d] = NEVER
    m.work[d] = BACKGROUND
    m.left[d] = UNLIMITED
    if m.limits[WRITEBACK] > 0 and now >= m.looked[d] + m.limits[WRITEBACK]:
        m.looked[d] = now
        m.sums[LOOKS] += 1
        inodes = 0
        for other in range(len(m.device_inodes)):
            inodes += m.device_inodes[other]
        if m.sums[DIRTY_NOW] + inodes > 0:
            m.work[d] = PERIODIC
            m.left[d] = m.sums[DIRTY_NOW] + inodes


@compiled
def _queue_io(m: Any, d: int, before: int) -> None:
    """Queues the inodes that wait for their next turn, then old inodes, the oldest first:
    queue_io()."""
    i = tail(m, d, B_MORE_IO)
    while i >= 0:
        to_head(m, i, B_IO)
        i = tail(m, d, B_MORE_IO)
    i = tail(m, d, B_DIRTY)
    while i >= 0 and m.since[i] <= before:
        to_head(m, i, B_IO)
        i = tail(m, d, B_DIRTY)


@compiled
def _go_on(m: Any, out: Any, d: int, now: int) -> Any:
    """Continues a run until a chunk takes time or no work is left: wb_writeback()."""
    m.step_at[d] = NEVER
    m.sums[UNDER_NOW] -= m.under[d]
    m.under[d] = 0
    while m.work[d] != IDLE:
        i = -1
        before = dirtied_before(m, now, m.limits[EXPIRE] if m.work[d] == PERIODIC else 0)
        if m.left[d] > 0 and (m.work[d] == PERIODIC or _over_background(m, d)):
            if tail(m, d, B_IO) < 0:
                _queue_io(m, d, before)
            i = tail(m, d, B_IO)
        if i < 0:
            if m.work[d] == PERIODIC:
                m.work[d] = BACKGROUND
                m.left[d] = UNLIMITED
                continue
            m.work[d] = IDLE
            if m.limits[WRITEBACK] > 0 and m.device_inodes[d] > 0 and m.timer[d] == NEVER:
                _set_timer(m, d, now)
            break
        # writeback_chunk_size(): rounded to a multiple of MIN_WRITEBACK_PAGES.
        most = (
            (min(m.limits[CHUNK], m.left[d]) + MIN_WRITEBACK_PAGES)
            // MIN_WRITEBACK_PAGES
            * MIN_WRITEBACK_PAGES
        )
        out, wrote, more = write_inode(m, out, i, most, now, m.work[d])
        m.left[d] -= wrote
        m.sums[CHUNKS] += 1
        if not more:
            clean(m, i)
        elif m.since[i] <= before:
            to_head(m, i, B_MORE_IO)
        else:
            # redirty_tail_locked(): an inode that is older than the newest one gets a new time.
            head = len(m.device) + 3 * d
            newest = m.after[head]
            if newest != head and m.since[i] < m.since[newest]:
                m.since[i] = now
            to_head(m, i, B_DIRTY)
        if wrote > 0 and m.limits[NS_PER_PAGE] > 0:
            m.under[d] = wrote
            m.sums[UNDER_NOW] += wrote
            m.step_at[d] = now + wrote * m.limits[NS_PER_PAGE]
            break
    return out


@compiled
def _until(m: Any, out: Any, now: int) -> Any:
    """Runs every flusher until `now`, in order of time; returns the rows written."""
    while True:
        next_at, which = NEVER, -1
        for d in range(len(m.timer)):
            at = m.step_at[d] if m.work[d] != IDLE else m.timer[d]
            if at < next_at:
                next_at, which = at, d
        if which < 0 or next_at > now:
            return out
        pass_time(m, next_at)
        if m.work[which] == IDLE:
            _begin_run(m, which, next_at)
        out = _go_on(m, out, which, next_at)


@compiled
def _run(m: Any, ts: Any, kind: Any, inode: Any, page: Any, pages: Any, block: Any, who: Any,
         until: Any, reason: Any, end_ns: int) -> Any:  # fmt: skip
    out = m.out
    if len(ts):
        m.sums[LAST_AT] = ts[0]
    for e in range(len(ts)):
        now = ts[e]
        out = _until(m, out, now)
        pass_time(m, now)
        # Of one type in all calls, so that numba compiles the functions once.
        i: Any = np.int64(inode[e])
        why: Any = np.int64(reason[e])
        if kind[e] == DROP:
            drop(m, i, page[e], page[e] + pages[e])
        elif kind[e] == FREE:
            drop(m, i, m.first_page[i], m.first_page[i + 1])
            m.lowest[i] = m.first_page[i + 1]
            m.highest[i] = m.first_page[i] - 1
            clean(m, i)
        elif kind[e] == MARK:
            dirty_again(m, i, now)
            mark(m, i, now)
        elif kind[e] == DIRTY:
            d: Any = np.int64(m.device[i])
            fresh = 0
            for k in range(pages[e]):
                p = page[e] + k
                if not m.dirty[p]:
                    m.dirty[p] = 1
                    fresh += 1
                m.who[p] = who[e]
                m.until[p] = until[e]
                m.block[p] = block[e] + k if block[e] >= 0 else -1
            m.lowest[i] = min(m.lowest[i], page[e])
            m.highest[i] = max(m.highest[i], page[e] + pages[e] - 1)
            m.sums[DIRTY_NOW] += fresh
            m.device_pages[d] += fresh
            m.sums[DIRTIED] += pages[e]
            m.sums[ABSORBED] += pages[e] - fresh
            m.sums[PEAK] = max(m.sums[PEAK], m.sums[DIRTY_NOW] + m.sums[UNDER_NOW])
            if m.sums[DIRTY_NOW] + m.sums[UNDER_NOW] > m.limits[FREERUN_PAGES]:
                m.sums[PAGES_ABOVE_FREERUN] += pages[e]
                m.sums[DIRTYINGS_ABOVE_FREERUN] += 1
            mark(m, i, now)
            if m.sums[DIRTY_NOW] > m.limits[BACKGROUND_PAGES] and m.work[d] == IDLE:
                _begin_run(m, d, now)
                out = _go_on(m, out, d, now)
            elif m.work[d] == IDLE and _over_background(m, d):
                _look_soon(m, d, now)
        elif kind[e] == WRITE_PAGES:
            out, _, _ = write_range(m, out, i, page[e], page[e] + pages[e], UNLIMITED, now, why)
        elif kind[e] == SYNC_INODE:
            out, _, _ = write_range(
                m, out, i, max(page[e], m.lowest[i]),
                min(page[e] + pages[e], m.highest[i] + 1), UNLIMITED, now, why
            )  # fmt: skip
            if page[e] <= m.lowest[i] and page[e] + pages[e] > m.highest[i]:
                m.lowest[i] = m.first_page[i + 1]
                m.highest[i] = m.first_page[i] - 1
        else:
            for which in (B_IO, B_MORE_IO, B_DIRTY):
                some = tail(m, i, which)
                while some >= 0:
                    out, _, _ = write_inode(m, out, some, UNLIMITED, now, why)
                    clean(m, some)
                    some = tail(m, i, which)
            if m.work[i] == IDLE:
                _begin_run(m, i, now)
                out = _go_on(m, out, i, now)
    out = _until(m, out, end_ns)
    pass_time(m, end_ns)
    return out[: m.n[0]].copy(), m.sums
