"""Turns of recorded threads on CPUs, and waits for a CPU split by who had it meanwhile.

A recorded thread has a turn on a CPU from the end of an interval of `off_cpu` until its next
interval. The end is known if that interval begins on the same CPU, and no other recorded thread has
the CPU by then. After its last interval, a thread has its CPU until it exits. If events are lost, a
turn is known up to then. `turn_parts.py` has the rules for the time between turns.

A thread that ran on the CPU that it had left, or on the one that it was put on when it was made,
waited for that CPU. The parts of such a wait follow one another and fill it, in the order of the
turns. If there are more than `MOST_PARTS`, there is one for each thread instead, the largest first.
What the smallest had is put together, for nobody. Only turns are exact.

A thread that ran on another CPU had come to it by then, and no event tells when. Its wait is split
by the turns on that CPU, too, and all parts are inferred.

A CPU that is idle takes a thread that waits for it. So if a turn begins on an idle CPU during a
wait, or leaves the CPU idle, the thread waited elsewhere until then, and nobody knows for whom. If
the CPU was idle just before the thread itself, and it is the one that the thread had left, or was
put on, the wait is not split. If it is another one, the thread waited elsewhere until the end. If
it had not slept, it began in the queue of the CPU that it had left: its wait is split by the turns
on that one, up to the first time at which that one was idle, and all parts are inferred.
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
from tracer.analysis.views.lengths import Lengths
from tracer.analysis.views.lives import Lives
from tracer.analysis.views.stretches import Ints
from tracer.analysis.views.waiting.sleeps import NOBODY, fill_ends, ordered, placed
from tracer.analysis.views.waiting.throttled import LEAST_NS
from tracer.analysis.views.waiting.turn_parts import IDLE, MOST_PARTS, UNKNOWN, Small, split_waits
from tracer.analysis.views.waiting.wait_causes import named
from tracer.probes.compiled import compiled, read_only
from tracer.probes.limits import PID_LIMIT
from tracer.probes.loss import OF_EVENTS
from tracer.probes.schema import Scope
from tracer.store.trace import Trace

_ROWS = f"""
SELECT coalesce(tid, {NOBODY})::BIGINT AS tid, ts, coalesce(dur_ns, 0) AS length,
    if(state = 'new', -1, coalesce(cpu, -1))::SMALLINT AS left_cpu,
    if(dur_ns >= 0, coalesce(ran_cpu, -1), -1)::SMALLINT AS cpu,
    if(ran_tid >= 0 AND ran_tid <= {PID_LIMIT}, ran_tid, -1)::BIGINT AS ran,
    if(next_tid >= 0 AND next_tid <= {PID_LIMIT}, next_tid, -1)::BIGINT AS next
FROM off_cpu
"""

# Events of the scheduler are those of the targets.
_LOST = f"""
SELECT "from" AS begin FROM loss
WHERE {OF_EVENTS} AND contains(stream, '{Scope.TARGET.value}') AND "from" IS NOT NULL ORDER BY 1
"""

_EXITS = f"SELECT coalesce(ended, {LATEST})::BIGINT AS ended FROM threads ORDER BY life"
_KERNELS = "SELECT coalesce(kernel, false) AS kernel FROM threads ORDER BY life"

_QUOTAS = "SELECT life FROM threads SEMI JOIN throttled_times USING (target)"

Cpus = NDArray[np.int16]


class Turns:
    """The turns of recorded threads, in the order of CPUs and of time. Each takes some 20 bytes."""

    def __init__(self, trace: Trace, lives: Lives) -> None:
        """Reads off_cpu. Needs the tables threads, loss and throttled_times."""
        self._tids = read_only(lives.tid)
        self._with_quota = np.zeros(len(lives.tid) + 1, np.bool_)
        self._with_quota[trace.arrow(_QUOTAS)["life"].to_numpy()] = True
        self._of_kernel = read_only(trace.arrow(_KERNELS)["kernel"].to_numpy())
        lane, begin, until, cpu, before, after = _turns(trace, lives)
        place, self._first, _ = placed(cpu, begin, int(cpu.max(initial=-1)) + 1)
        del cpu
        lane = lane.astype(np.min_scalar_type(-1 - len(lives.tid)))  # mostly two bytes
        self._lane = ordered(lane, place)
        del lane
        keys = _kind_of(before, after)
        self._before = ordered(before, place).astype(keys)
        del before
        self._after = ordered(after, place).astype(keys)
        del after
        self._begin = ordered(begin, place)
        del begin
        until = ordered(until, place)
        del place
        _settle(self._first, self._begin, until, self._lane, self._before, self._after)
        until -= self._begin
        self._lengths = Lengths(until)
        del until
        cpus = np.arange(len(self._first) - 1, dtype=np.int32)
        self._cuts = Cuts(np.repeat(cpus, np.diff(self._first)), self._begin)

    def split(self, parts: pa.Table, ended: Ints | None = None) -> pa.Table:
        """Returns waits, those for a CPU split by who had it meanwhile.

        `parts` has the columns of the table wait_parts, and three that the result has not. `cpu`:
        the CPU that the thread of a wait for a CPU waited for; null: the wait is not split.
        `left`: false if the thread ran on that CPU in the end; true if it had been in its queue,
        and left it.
        `in_doubt`: true if the thread need not have waited for that CPU all the time. A wait for a
        thread is exact in the result only if that thread had a turn all the time.

        `ended`: when the threads ran (ns), for waits that may be parts of longer ones. None: all
        are whole, and those that can be `throttled` are left so.
        """
        nulls = {"cpu": -1, "dur_ns": 0, "ts": LATEST, "life": 0, "by_tid": UNKNOWN}
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
        owner, begin, taken, holder = (np.empty(room, np.int64) for _ in range(4))
        turns = self._first, self._begin, self._lengths.arrays, self._lane
        neighbours = self._before, self._after, self._of_kernel, self._tids
        left = parts["left"].to_numpy()[of]
        waits = cpu, since, upto, ran, last, by_tid[of], left, life[of] - 1
        had_all = np.zeros(len(of), np.bool_)
        count = split_waits(*turns, *neighbours, *waits, had_all, owner, begin, taken, holder)
        in_doubt = parts["in_doubt"].to_numpy()
        rest = _exact(parts.drop_columns(["cpu", "in_doubt", "left"]), of[had_all & ~in_doubt[of]])
        if not count:
            return rest
        rows = of[owner[:count]]
        changed = self._named(holder[:count], in_doubt[rows])
        changed |= {"ts": pa.array(begin[:count]), "dur_ns": pa.array(taken[:count])}
        others = rest.drop_columns(list(changed)).take(pa.array(rows))
        kept = np.ones(len(parts), np.bool_)
        kept[rows] = False
        split = {
            name: changed[name] if name in changed else others[name] for name in rest.column_names
        }
        return pa.concat_tables([rest.filter(pa.array(kept)), pa.table(split)])

    def _named(self, holder: Ints, in_doubt: NDArray[np.bool_]) -> dict[str, pa.Array]:
        """Returns the columns that tell who had the CPU, by the holders of parts."""
        key, inferred = holder >> 1, holder & 1 == 1
        number = np.where(key >= 0, self._tids[np.maximum(key, 0)], IDLE - key)
        return {
            "kind": named(np.zeros(len(key)), "cpu"),
            "by_tid": pa.array(number.astype(np.int32), mask=key == UNKNOWN),
            "by_life": pa.array((key + 1).astype(np.int32), mask=key < 0),
            "certainty": named(inferred | in_doubt, "exact", "inferred"),
        }


def _exact(parts: pa.Table, rows: Ints) -> pa.Table:
    """Returns waits of which those at `rows` are exact."""
    exact = np.zeros(len(parts), np.bool_)
    exact[rows] = True
    told = pc.if_else(pa.array(exact), "exact", parts["certainty"].cast(pa.string()))
    place = parts.column_names.index("certainty")
    return parts.set_column(place, "certainty", told.dictionary_encode())


def _turns(trace: Trace, lives: Lives) -> tuple[Small, Ints, Ints, Small, Small, Small]:
    """Returns the turns in stored order: of the thread at a place in `lives`, and on a CPU.

    These are the place, the begin, the end (ns; the begin, if it is not known), the CPU, and the
    keys of whoever had it before and got it next. The arrays grow with the rows that are read,
    whatever number of rows the file claims.
    """
    kinds = (np.int32, np.int64, np.int64, np.int32, np.int32, np.int16, np.int16)
    parts: list[list[NDArray[Any]]] = [[np.empty(0, kind)] for kind in kinds]
    for batch in trace.batches(_ROWS):
        tid, ts, length, left_cpu, cpu, ran, following = (
            batch[name].to_numpy() for name in batch.schema.names
        )
        life = lives.of(tid, ts)
        known = np.flatnonzero(life >= 0)
        ended = np.empty(len(known), np.int64)
        fill_ends(ts[known], length[known], ended)
        ts = ts[known]
        keys = (_keys(lives, ran[known], ended), _keys(lives, following[known], ts))
        found = (life[known].astype(np.int32), ts, ended, *keys, left_cpu[known], cpu[known])
        for part, column in zip(parts, found, strict=True):
            part.append(column)
    lane, ts, ended, before, got, left_cpu, cpu = concatenated(parts)
    place, first, _ = placed(lane, ts, len(lives.tid))
    # One after the other: each copy takes the place of what it is made of.
    ts = ordered(ts, place)
    left_cpu = ordered(left_cpu, place)
    got = ordered(got, place)
    exits = read_only(trace.arrow(_EXITS)["ended"].to_numpy())
    lost = np.append(trace.arrow(_LOST)["begin"].to_numpy(), LATEST)
    until, after = np.empty(len(lane), np.int64), np.empty(len(lane), np.int32)
    _stop(lane, ended, cpu, place, first, ts, left_cpu, got, exits, lost, until, after)
    del ts, left_cpu, got, place
    ran = cpu >= 0
    lane = lane[ran]
    ended = ended[ran]
    until = until[ran]
    before = before[ran]
    after = after[ran]
    return lane, ended, until, cpu[ran].astype(np.int32), before, after


def _kind_of(*keys: Small) -> np.dtype[Any]:
    """Returns the type of the fewest bytes, two or more, that holds all keys."""
    least = min(int(column.min(initial=0)) for column in keys)
    most = max(int(column.max(initial=0)) for column in keys)
    return np.promote_types(np.int16, np.min_scalar_type(min(least, -1 - most)))


def _keys(lives: Lives, tid: Ints, ts: Ints) -> Small:
    """Returns the keys of threads by their numbers (0: idle, -1: not known) and times."""
    life = lives.of(tid, ts)
    return np.where((tid > 0) & (life >= 0), life, IDLE - tid).astype(np.int32)


@compiled
def _stop(
    lane: Small,
    ended: Ints,
    cpu: Cpus,
    place: Small,
    first: Ints,
    ts: Ints,
    left_cpu: Cpus,
    got: Small,
    exits: Ints,
    lost: Ints,
    until: Ints,
    after: Small,
) -> None:
    """Fills `until` with the ends of the turns that begin when intervals end.

    `after` is filled with the keys of whoever got the CPU then. `ts`, `left_cpu` and `got` are
    those of intervals in the order of `place`. `lost` ends with LATEST.
    """
    for row in range(len(lane)):
        begin, following = ended[row], place[row] + 1
        after[row] = UNKNOWN
        loss = lost[np.searchsorted(lost, begin)]
        if following == first[lane[row] + 1]:
            stop = min(exits[lane[row]], loss)
        elif loss <= ts[following]:
            stop = loss
        elif left_cpu[following] == cpu[row]:
            stop, after[row] = ts[following], got[following]
        else:
            stop = begin
        until[row] = max(begin, stop)


@compiled
def _settle(
    first: Ints, begin: Ints, until: Ints, lane: Small, before: Small, after: Small
) -> None:
    """Settles the ends of turns by the next turn on the CPU."""
    for cpu in range(len(first) - 1):
        for at in range(first[cpu], first[cpu + 1] - 1):
            following = begin[at + 1]
            if before[at + 1] == lane[at]:
                if until[at] < following:  # it left the CPU, and came back unseen
                    after[at] = UNKNOWN
                until[at] = following
            elif until[at] > following:  # a switch was not logged
                until[at], after[at] = begin[at], UNKNOWN
