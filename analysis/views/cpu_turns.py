"""Turns of recorded threads on CPUs, and waits for a CPU split by who had it meanwhile.

A recorded thread has a turn on a CPU from the end of an interval of `off_cpu` until its next
interval. The end is known if that interval begins on the same CPU, and no other recorded thread has
the CPU by then. After its last interval, a thread has its CPU until it exits. If events are lost, a
turn is known up to then. Where no recorded thread is known to have the CPU, it counts as that of
the thread that had it just before the next turn (`ran_tid`), which need not be a recorded one.

A thread that ran on the CPU that it had left, or on the one that it was put on when it was made,
waited for that CPU. The parts of such a wait follow one another and fill it, in the order of the
turns. If there are more than `MOST_PARTS`, there is one for each thread instead, the largest first.
What the smallest had is put together, for nobody.

A thread that ran on another CPU had come to it by then, and no event tells when. Its wait is split
by the turns on that CPU, too, and all parts are inferred.

A CPU that is idle takes a thread that waits for it. So if a turn begins on an idle CPU during a
wait, the thread waited elsewhere until then, and nobody knows for whom. If the CPU was idle just
before the thread itself, the wait is not split.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tracer.analysis.views.arrays import concatenated
from tracer.analysis.views.calls_around import LATEST
from tracer.analysis.views.cuts import Cuts
from tracer.analysis.views.lengths import Lengths, Short, length_at
from tracer.analysis.views.lives import Lives
from tracer.analysis.views.sleeps import NOBODY, fill_ends, ordered, placed
from tracer.analysis.views.stretches import Ints
from tracer.analysis.views.throttled import LEAST_NS
from tracer.analysis.views.wait_causes import named
from tracer.probes.compiled import compiled, read_only
from tracer.probes.limits import PID_LIMIT
from tracer.probes.loss import OF_EVENTS
from tracer.probes.schema import Scope
from tracer.store.trace import Trace

MOST_PARTS = 8
"""Parts of a wait in the order of the turns. More are put together by thread."""

MOST_TURNS = 1 << 12
"""Turns of a wait that are looked at, the latest ones. A wait has few of them as a rule."""

_UNKNOWN, _IDLE = -1, -2
"""Keys for whoever has a CPU, beside the place of a thread in `Lives`. A thread without a place has
`_IDLE` minus its number."""

_ROWS = f"""
SELECT coalesce(tid, {NOBODY})::BIGINT AS tid, ts, coalesce(dur_ns, 0) AS length,
    if(state = 'new', -1, coalesce(cpu, -1))::SMALLINT AS left_cpu,
    if(dur_ns >= 0, coalesce(ran_cpu, -1), -1)::SMALLINT AS cpu,
    if(ran_tid >= 0 AND ran_tid <= {PID_LIMIT}, ran_tid, -1)::BIGINT AS ran
FROM off_cpu
"""

# Events of the scheduler are those of the targets.
_LOST = f"""
SELECT "from" AS begin FROM loss
WHERE {OF_EVENTS} AND contains(stream, '{Scope.TARGET.value}') AND "from" IS NOT NULL ORDER BY 1
"""

_EXITS = f"SELECT coalesce(ended, {LATEST})::BIGINT AS ended FROM threads ORDER BY life"

_QUOTAS = "SELECT life FROM threads SEMI JOIN throttled_times USING (target)"

Small = NDArray[np.int32]
Cpus = NDArray[np.int16]


class Turns:
    """The turns of recorded threads, in the order of CPUs and of time. Each takes some 20 bytes."""

    def __init__(self, trace: Trace, lives: Lives) -> None:
        """Reads off_cpu. Needs the tables threads, loss and throttled_times."""
        self._tids = read_only(lives.tid)
        self._with_quota = np.zeros(len(lives.tid) + 1, np.bool_)
        self._with_quota[trace.arrow(_QUOTAS)["life"].to_numpy()] = True
        lane, begin, until, cpu, before = _turns(trace, lives)
        place, self._first, _ = placed(cpu, begin, int(cpu.max(initial=-1)) + 1)
        del cpu
        lane = lane.astype(np.min_scalar_type(-1 - len(lives.tid)))  # mostly two bytes
        self._lane, self._before = ordered(lane, place), ordered(before, place)
        del lane, before
        self._begin = ordered(begin, place)
        del begin
        until = ordered(until, place)
        del place
        _settle(self._first, self._begin, until, self._lane, self._before)
        until -= self._begin
        self._lengths = Lengths(until)
        del until
        cpus = np.arange(len(self._first) - 1, dtype=np.int32)
        self._cuts = Cuts(np.repeat(cpus, np.diff(self._first)), self._begin)

    def split(self, parts: pa.Table, ended: Ints | None = None) -> pa.Table:
        """Returns waits, those for a CPU split by who had it meanwhile.

        `parts` has the columns of the table wait_parts, and two that the result has not. `cpu`: the
        CPU on which the thread of a wait for a CPU ran in the end; null: the wait is not split.
        `in_doubt`: true if the thread need not have waited for that CPU all the time.

        `ended`: when the threads ran (ns), for waits that may be parts of longer ones. None: all
        are whole, and those that can be `throttled` are left so.
        """
        nulls = {"cpu": -1, "dur_ns": 0, "ts": LATEST, "life": 0, "by_tid": _UNKNOWN}
        cpu, length, ts, life, by_tid = (
            pc.fill_null(parts[name], null).to_numpy().astype(np.int64)
            for name, null in nulls.items()
        )
        wanted = (cpu >= 0) & (cpu < len(self._first) - 1)
        if ended is None:
            wanted &= ~self._with_quota[life] | (length < LEAST_NS)
        of = np.flatnonzero(wanted & (length > 0) & (ts <= LATEST - length))
        cpu, since, upto = cpu[of], ts[of], ts[of] + length[of]
        ran = upto if ended is None else ended[of]
        last = self._cuts.last(cpu, ran, before=True)
        room = (MOST_PARTS + 1) * len(of)
        owner, begin, taken, key = (np.empty(room, np.int64) for _ in range(4))
        turns = self._first, self._begin, self._lengths.arrays, self._lane, self._before, self._tids
        waits = cpu, since, upto, ran, last, by_tid[of]
        count = _split(*turns, *waits, owner, begin, taken, key)
        rest = parts.drop_columns(["cpu", "in_doubt"])
        if not count:
            return rest
        rows = of[owner[:count]]
        changed = self._named(key[:count], parts["in_doubt"].to_numpy()[rows])
        changed |= {"ts": pa.array(begin[:count]), "dur_ns": pa.array(taken[:count])}
        others = rest.drop_columns(list(changed)).take(pa.array(rows))
        kept = np.ones(len(parts), np.bool_)
        kept[rows] = False
        split = {
            name: changed[name] if name in changed else others[name] for name in rest.column_names
        }
        return pa.concat_tables([rest.filter(pa.array(kept)), pa.table(split)])

    def _named(self, key: Ints, in_doubt: NDArray[np.bool_]) -> dict[str, pa.Array]:
        """Returns the columns that tell who had the CPU, by the keys of parts."""
        number = np.where(key >= 0, self._tids[np.maximum(key, 0)], _IDLE - key)
        return {
            "kind": named(np.zeros(len(key)), "cpu"),
            "by_tid": pa.array(number.astype(np.int32), mask=key == _UNKNOWN),
            "by_life": pa.array((key + 1).astype(np.int32), mask=key < 0),
            "certainty": named((key == _UNKNOWN) | in_doubt, "exact", "inferred"),
        }


def _turns(trace: Trace, lives: Lives) -> tuple[Small, Ints, Ints, Small, Small]:
    """Returns the turns in stored order: of the thread at a place in `lives`, and on a CPU.

    These are the place, the begin, the end (ns; the begin, if it is not known), the CPU, and the
    key of whoever had it before. The arrays grow with the rows that are read, whatever number of
    rows the file claims.
    """
    kinds = (np.int32, np.int64, np.int64, np.int32, np.int16, np.int16)
    parts: list[list[NDArray[Any]]] = [[np.empty(0, kind)] for kind in kinds]
    for batch in trace.batches(_ROWS):
        tid, ts, length, left_cpu, cpu, ran = (
            batch[name].to_numpy() for name in batch.schema.names
        )
        life = lives.of(tid, ts)
        known = np.flatnonzero(life >= 0)
        ended = np.empty(len(known), np.int64)
        fill_ends(ts[known], length[known], ended)
        ran = ran[known]
        who = lives.of(ran, ended)
        before = np.where((ran > 0) & (who >= 0), who, _IDLE - ran).astype(np.int32)
        found = (life[known].astype(np.int32), ts[known], ended, before, left_cpu[known])
        for part, column in zip(parts, (*found, cpu[known]), strict=True):
            part.append(column)
    lane, ts, ended, before, left_cpu, cpu = concatenated(parts)
    place, first, _ = placed(lane, ts, len(lives.tid))
    ts, left_cpu = ordered(ts, place), ordered(left_cpu, place)
    exits = read_only(trace.arrow(_EXITS)["ended"].to_numpy())
    lost = np.append(trace.arrow(_LOST)["begin"].to_numpy(), LATEST)
    until = np.empty(len(lane), np.int64)
    _stop(lane, ended, cpu, place, first, ts, left_cpu, exits, lost, until)
    del ts, left_cpu, place
    known = np.flatnonzero(cpu >= 0)
    return lane[known], ended[known], until[known], cpu[known].astype(np.int32), before[known]


@compiled
def _stop(
    lane: Small,
    ended: Ints,
    cpu: Cpus,
    place: Small,
    first: Ints,
    ts: Ints,
    left_cpu: Cpus,
    exits: Ints,
    lost: Ints,
    until: Ints,
) -> None:
    """Fills `until` with the ends of the turns that begin when intervals end.

    `ts` and `left_cpu` are those of intervals in the order of `place`. `lost` ends with LATEST.
    """
    for row in range(len(lane)):
        begin, following = ended[row], place[row] + 1
        loss = lost[np.searchsorted(lost, begin)]
        if following == first[lane[row] + 1]:
            stop = min(exits[lane[row]], loss)
        elif loss <= ts[following]:
            stop = loss
        else:
            stop = ts[following] if left_cpu[following] == cpu[row] else begin
        until[row] = max(begin, stop)


@compiled
def _settle(first: Ints, begin: Ints, until: Ints, lane: Small, before: Small) -> None:
    """Settles the ends of turns by the next turn on the CPU."""
    for cpu in range(len(first) - 1):
        for at in range(first[cpu], first[cpu + 1] - 1):
            following = begin[at + 1]
            if before[at + 1] == lane[at]:
                until[at] = following
            elif until[at] > following:  # a switch was not logged
                until[at] = begin[at]


@compiled
def _split(
    first: Ints,
    begin: Ints,
    lengths: tuple[Short, Ints, Ints],
    lane: Small,
    before: Small,
    tids: Ints,
    cpu: Ints,
    since: Ints,
    upto: Ints,
    ran: Ints,
    last: Ints,
    by_tid: Ints,
    owner: Ints,
    ts: Ints,
    length: Ints,
    key: Ints,
) -> int:
    """Splits waits for CPUs from `since` to `upto` (ns), and returns the number of parts.

    Their threads ran at `ran`. `last` has the last turn on the CPU that began before that, `by_tid`
    the thread that the wait is charged to so far. The last four arrays are filled with the parts of
    the waits that change: number of the wait, begin, length and key.
    """
    edges = np.empty(2 * MOST_TURNS + 2, np.int64)
    keys = np.empty_like(edges)
    count = 0
    for wait in range(len(cpu)):
        least = first[cpu[wait]]
        own = last[wait] + 1 if last[wait] >= 0 else least
        if own == first[cpu[wait] + 1] or begin[own] != ran[wait]:
            continue
        times = since[wait], upto[wait]
        found = _walk(begin, lengths, lane, before, least, own, times, edges, keys)
        if found == 1 and _is_of(keys[0], by_tid[wait], tids):
            continue
        if found > MOST_PARTS:
            found = _merge(upto[wait], since[wait], found, edges, keys)
        stop = upto[wait]
        for part in range(found):
            at = count + found - 1 - part
            owner[at], key[at] = wait, keys[part]
            ts[at], length[at] = edges[part], stop - edges[part]
            stop = edges[part]
        count += found
    return count


@compiled
def _is_of(key: int, number: int, tids: Ints) -> bool:
    """Returns whether a key means the thread of a number; -1: nobody knows whose."""
    return key == _IDLE - number or (key >= 0 and tids[key] == number)


@compiled
def _walk(
    begin: Ints,
    lengths: tuple[Short, Ints, Ints],
    lane: Small,
    before: Small,
    least: int,
    own: int,
    times: tuple[int, int],
    edges: Ints,
    keys: Ints,
) -> int:
    """Finds the parts of a wait, the last one first, and returns their number.

    `times`: the begin and the end of the wait (ns), which ends with the begin of the turn `own` or
    before. `least` is the first turn on that CPU. `edges` and `keys` are filled with the begins and
    the keys of the parts.
    """
    since, upto = times
    found, at, reached = 0, own, begin[own]
    while reached > since:
        elsewhere = before[at] == _IDLE
        if at == least or elsewhere or own - at == MOST_TURNS:
            known = at == least and not elsewhere
            return _add(edges, keys, found, since, upto, int(before[at]) if known else _UNKNOWN)
        stop = max(since, begin[at - 1] + length_at(lengths, at - 1))
        if stop < reached:
            found = _add(edges, keys, found, stop, upto, int(before[at]))
            reached = stop
        begun = max(since, begin[at - 1])
        if begun < reached:
            found = _add(edges, keys, found, begun, upto, int(lane[at - 1]))
            reached = begun
        at -= 1
    return found


@compiled
def _add(edges: Ints, keys: Ints, found: int, begin: int, upto: int, key: int) -> int:
    """Adds a part before those found, or makes the first one longer; returns their number.

    A part that begins at `upto` or later does not count.
    """
    if begin >= upto:
        return found
    if found and keys[found - 1] == key:
        edges[found - 1] = begin
        return found
    edges[found], keys[found] = begin, key
    return found + 1


@compiled
def _merge(ended: int, since: int, found: int, edges: Ints, keys: Ints) -> int:
    """Puts the parts of a wait together by their keys, the largest first in time.

    The arrays then have the parts as before, the last one first. Returns their number.
    """
    length = np.empty(found, np.int64)
    stop = ended
    for part in range(found):
        length[part] = stop - edges[part]
        stop = edges[part]
    whose, sums = np.empty(found, np.int64), np.zeros(found, np.int64)
    several = 0
    for part in np.argsort(keys[:found], kind="mergesort"):
        if several == 0 or keys[part] != whose[several - 1]:
            whose[several] = keys[part]
            several += 1
        sums[several - 1] += length[part]
    made, at = 0, since
    for one in np.argsort(-sums[:several], kind="mergesort"):
        if whose[one] != _UNKNOWN and made < MOST_PARTS:
            edges[made], keys[made] = at, whose[one]
            at += sums[one]
            made += 1
    if at < ended:
        edges[made], keys[made] = at, _UNKNOWN
        made += 1
    edges[:made] = edges[:made][::-1].copy()
    keys[:made] = keys[:made][::-1].copy()
    return made
