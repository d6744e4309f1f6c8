"""Waits for a CPU in parts: the turns of recorded threads, and whoever had the CPU in between.

Between two turns, threads have the CPU that are not recorded. Two of them are known: the one that
got the CPU from the turn before (`next_tid`), and the one that had it just before the next turn
(`ran_tid`). No event tells of switches from one to the other, or of others in between. So each of
the two is charged the half of the time that is nearer to it, and both parts are inferred. Threads
of the kernel run for a short time as a rule: if one of the two is such a thread, and the other is
not, the other is charged the whole time. If the wait began later than that time, only the last of
the two can be charged so.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.lengths import Short, length_at
from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled

MOST_PARTS = 8
"""Parts of a wait in the order of the turns. More are put together by thread."""

MOST_TURNS = 1 << 12
"""Turns of a wait that are looked at, the latest ones. A wait has few of them as a rule."""

UNKNOWN, IDLE = -1, -2
"""Keys for whoever has a CPU, beside the place of a thread in `Lives`. A thread without a place has
`IDLE` minus its number."""

_NOBODY = 2 * UNKNOWN + 1
"""A holder is twice the key of whoever has a CPU, plus one if it is inferred. This one is not
known."""

Small = NDArray[np.int32]
Flags = NDArray[np.bool_]


@compiled
def split_waits(
    first: Ints,
    begin: Ints,
    lengths: tuple[Short, Ints, Ints],
    lane: Small,
    before: Small,
    after: Small,
    of_kernel: Flags,
    tids: Ints,
    cpu: Ints,
    since: Ints,
    upto: Ints,
    ran: Ints,
    last: Ints,
    by_tid: Ints,
    left: Flags,
    whose: Ints,
    had_all: Flags,
    owner: Ints,
    ts: Ints,
    length: Ints,
    holder: Ints,
) -> int:
    """Splits waits for CPUs from `since` to `upto` (ns), and returns the number of parts.

    Their threads ran at `ran`. `last` has the last turn on the CPU that began before that, `by_tid`
    the thread that the wait is charged to so far. `left` tells which threads waited for a CPU and
    then ran on another one; `whose` has their lanes. `had_all` is set for the waits in which the
    thread that they are charged to had a turn all the time. The last four arrays are filled with
    the parts of the waits that change: number of the wait, begin, length, and who had the CPU.
    """
    edges = np.empty(3 * MOST_TURNS + 2, np.int64)
    holders = np.empty_like(edges)
    count = 0
    for wait in range(len(cpu)):
        least = first[cpu[wait]]
        own = last[wait] + 1 if last[wait] >= 0 else least
        times = since[wait], upto[wait]
        neighbours = before, after, of_kernel
        if left[wait]:
            ends = least, own
            found = _walk_left(
                begin, lengths, lane, neighbours, ends, whose[wait], times, edges, holders
            )
        elif own == first[cpu[wait] + 1] or begin[own] != ran[wait]:
            continue
        else:
            found = _walk(begin, lengths, lane, neighbours, least, own, times, edges, holders)
        if found == 1 and _is_of(holders[0] >> 1, by_tid[wait], tids):
            had_all[wait] = holders[0] & 1 == 0
            continue
        if found > MOST_PARTS:
            found = _merge(upto[wait], since[wait], found, edges, holders)
        stop = upto[wait]
        for part in range(found):
            at = count + found - 1 - part
            owner[at], holder[at] = wait, holders[part]
            ts[at], length[at] = edges[part], stop - edges[part]
            stop = edges[part]
        count += found
    return count


@compiled
def _is_of(key: int, number: int, tids: Ints) -> bool:
    """Returns whether a key means the thread of a number; -1: nobody knows whose."""
    return key == IDLE - number or (key >= 0 and tids[key] == number)


@compiled
def _walk(
    begin: Ints,
    lengths: tuple[Short, Ints, Ints],
    lane: Small,
    neighbours: tuple[Small, Small, Flags],
    least: int,
    own: int,
    times: tuple[int, int],
    edges: Ints,
    holders: Ints,
) -> int:
    """Finds the parts of a wait, the last one first, and returns their number.

    `neighbours`: the keys of whoever had the CPU before turns and got it after them, and which
    threads are of the kernel. `times`: the begin and the end of the wait (ns), which ends with the
    begin of the turn `own` or before. `least` is the first turn on that CPU. `edges` and `holders`
    are filled with the begins of the parts and who had the CPU.
    """
    since, upto = times
    before, after, of_kernel = neighbours
    found, at, reached = 0, own, begin[own]
    while reached > since:
        last = int(before[at])
        elsewhere = last == IDLE
        if at == least or elsewhere or own - at == MOST_TURNS:
            known = at == least and not elsewhere
            return _add(edges, holders, found, since, upto, 2 * last + 1 if known else _NOBODY)
        ended, first = begin[at - 1] + length_at(lengths, at - 1), int(after[at - 1])
        if ended < reached:
            passed = _passed(first, last, (ended, begin[at]), since, of_kernel)
            if passed < reached:
                found = _add(edges, holders, found, max(since, passed), upto, 2 * last + 1)
            if max(since, ended) < passed:
                found = _add(edges, holders, found, max(since, ended), upto, 2 * first + 1)
            reached = max(since, ended)
        if first == IDLE and since < ended:  # the thread waited elsewhere until then
            return _add(edges, holders, found, since, upto, _NOBODY)
        begun = max(since, begin[at - 1])
        if begun < reached:
            found = _add(edges, holders, found, begun, upto, 2 * int(lane[at - 1]))
            reached = begun
        at -= 1
    return found


@compiled
def _walk_left(
    begin: Ints,
    lengths: tuple[Short, Ints, Ints],
    lane: Small,
    neighbours: tuple[Small, Small, Flags],
    ends: tuple[int, int],
    whose: int,
    times: tuple[int, int],
    edges: Ints,
    holders: Ints,
) -> int:
    """Finds the parts of a wait for a CPU that a thread left without a turn, as `_walk` does.

    `ends`: the first turn on that CPU, and the first one that begins when the wait ends or later.
    `whose`: the lane of the thread, which does not wait for itself. Whoever got the CPU from the
    last turn in the wait is charged for the time after it. Once the CPU is idle, the thread has
    left it, and nobody knows for whom it waits.
    """
    since, upto = times
    before, after, of_kernel = neighbours
    least, own = ends
    found, at, reached = 0, own, upto
    while reached > since:
        last = int(before[at]) if at < own else UNKNOWN
        if last == IDLE:
            found, last = _add(edges, holders, 0, begin[at], upto, _NOBODY), UNKNOWN
        if at == least or own - at == MOST_TURNS:
            return _add(edges, holders, found, since, upto, 2 * last + 1)
        ended, first = begin[at - 1] + length_at(lengths, at - 1), int(after[at - 1])
        if ended < since or (ended == since and lane[at - 1] != whose):
            first = UNKNOWN  # nobody knows who got the CPU from the thread itself
        if ended < reached:
            gap = max(since, ended)
            if first == IDLE:
                found, last = _add(edges, holders, 0, gap, upto, _NOBODY), UNKNOWN
            elif last == UNKNOWN:
                found = _add(edges, holders, found, gap, upto, 2 * first + 1)
            else:
                passed = _passed(first, last, (ended, begin[at]), since, of_kernel)
                if passed < reached:
                    found = _add(edges, holders, found, max(since, passed), upto, 2 * last + 1)
                if gap < passed:
                    found = _add(edges, holders, found, gap, upto, 2 * first + 1)
            reached = gap
        begun = max(since, begin[at - 1])
        if begun < reached:
            holder = _NOBODY if lane[at - 1] == whose else 2 * int(lane[at - 1]) + 1
            found = _add(edges, holders, found, begun, upto, holder)
            reached = begun
        at -= 1
    return found


@compiled
def _passed(first: int, last: int, between: tuple[int, int], since: int, of_kernel: Flags) -> int:
    """Returns until when the first of two threads is charged for the time `between` two turns.

    `since`: when the wait began (ns).
    """
    begin, end = between
    if first in (UNKNOWN, IDLE) or last == UNKNOWN or first == last:
        return begin
    of_first, of_last = first >= 0 and of_kernel[first], last >= 0 and of_kernel[last]
    if of_first and not of_last:
        return begin
    if of_last and not of_first and since <= begin:
        return end
    return begin + (end - begin) // 2


@compiled
def _add(edges: Ints, holders: Ints, found: int, begin: int, upto: int, holder: int) -> int:
    """Adds a part before those found, or makes the first one longer; returns their number.

    A part that begins at `upto` or later does not count.
    """
    if begin >= upto:
        return found
    if found and holders[found - 1] == holder:
        edges[found - 1] = begin
        return found
    edges[found], holders[found] = begin, holder
    return found + 1


@compiled
def _merge(ended: int, since: int, found: int, edges: Ints, holders: Ints) -> int:
    """Puts the parts of a wait together by who had the CPU, the largest first in time.

    The arrays then have the parts as before, the last one first. Returns their number.
    """
    whose, sums = np.empty(found, np.int64), np.zeros(found, np.int64)
    several = 0
    for part in np.argsort(holders[:found]):
        if several == 0 or holders[part] != whose[several - 1]:
            whose[several] = holders[part]
            several += 1
        # The part before it in the arrays is the next one in time.
        sums[several - 1] += (edges[part - 1] if part else ended) - edges[part]
    made, at = 0, since
    for _ in range(MOST_PARTS):
        one = _largest(whose, sums, several)
        if one < 0:
            break
        edges[made], holders[made] = at, whose[one]
        at += sums[one]
        sums[one] = 0
        made += 1
    if at < ended:
        edges[made], holders[made] = at, _NOBODY
        made += 1
    for part in range(made // 2):
        other = made - 1 - part
        edges[part], edges[other] = edges[other], edges[part]
        holders[part], holders[other] = holders[other], holders[part]
    return made


@compiled
def _largest(whose: Ints, sums: Ints, several: int) -> int:
    """Returns the first holder with the largest sum above 0 that is known; -1: there is none."""
    found = -1
    for one in range(several):
        longer = sums[one] > (sums[found] if found >= 0 else 0)
        if longer and whose[one] != _NOBODY:
            found = one
    return found
