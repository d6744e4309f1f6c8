"""The lives of thread numbers as arrays: which thread an event belongs to, by number and time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.calls_around import EARLIEST, LATEST
from tracer.analysis.views.stretches import Ints
from tracer.analysis.views.threads import make_threads
from tracer.probes.compiled import compiled, read_only
from tracer.probes.limits import PID_LIMIT
from tracer.store.trace import Trace

_RECENT = 1 << 10


@dataclass(frozen=True)
class Lives:
    """Threads, as arrays in the order of their numbers and of time."""

    tid: Ints
    """Thread numbers, ascending. A number that several threads had is there several times."""
    begun: Ints
    """Time in ns from which the number is this thread's; ascends in each number."""
    until: Ints
    """Time in ns from which another thread has the number."""

    def of(self, tid: Ints, ts: Ints) -> Ints:
        """Returns the places of events' threads by their numbers and times (ns); -1: none."""
        found = np.empty(len(tid), np.int64)
        lives = read_only(self.tid), read_only(self.begun), read_only(self.until)
        _of(read_only(tid), read_only(ts), *lives, found)
        return found

    @property
    def keys(self) -> int:
        """The number of keys that `keys_of` can return."""
        return len(self.tid) + PID_LIMIT

    def keys_of(self, number: Ints, ts: Ints) -> Ints:
        """Returns keys of threads by their numbers and times (ns); each life has one of its own.

        It is the `life` in the view `threads`, or for a number without one, beyond all of them. The
        number 0, which stands for nobody, has the key 0; what is no number of a thread has -1.
        """
        place = self.of(number, ts)
        found = np.where(place >= 0, place + 1, len(self.tid) + number)
        return np.where((number > 0) & (number < PID_LIMIT), found, np.where(number == 0, 0, -1))

    def numbers(self, key: Ints) -> Ints:
        """Returns the numbers of threads by their keys."""
        lived = np.append(self.tid, 0)[np.clip(key - 1, -1, len(self.tid))]
        return np.where(self.alive(key), lived, key - len(self.tid) * (key > 0))

    def alive(self, key: Ints) -> NDArray[np.bool_]:
        """Returns which keys are of lives that are known."""
        return (key > 0) & (key <= len(self.tid))

    def moments(self, key: Ints, ts: Ints) -> Ints:
        """Returns the times (ns) that are nearest to these, and at which the keys' threads live."""
        at = np.where(self.alive(key), key - 1, len(self.tid))
        begun, until = np.append(self.begun, EARLIEST), np.append(self.until, LATEST)
        return np.clip(ts, begun[at], np.where(until[at] < LATEST, until[at] - 1, LATEST))


def lives_of(trace: Trace) -> Lives:
    """Returns all rows of the view `threads`: the row with `life` n is at the place n - 1."""
    make_threads(trace)
    rows = trace.arrow("SELECT tid::BIGINT AS tid, begun, until FROM threads ORDER BY life")
    return Lives(*(rows[name].to_numpy() for name in rows.column_names))


@compiled
def _of(tid: Ints, ts: Ints, tids: Ints, begun: Ints, until: Ints, found: Ints) -> None:
    recent = np.full(_RECENT, -1)  # the last place that was found, by the number's last bits
    for row in range(len(tid)):
        slot = tid[row] % _RECENT
        at = recent[slot]
        if at < 0 or tids[at] != tid[row] or ts[row] < begun[at] or ts[row] >= until[at]:
            low, high = 0, len(tids)
            while low < high:  # the first life after the moment
                middle = (low + high) // 2
                if tids[middle] < tid[row] or (
                    tids[middle] == tid[row] and begun[middle] <= ts[row]
                ):
                    low = middle + 1
                else:
                    high = middle
            at = low - 1
            if at >= 0 and (tids[at] != tid[row] or ts[row] >= until[at]):
                at = -1
            recent[slot] = at
        found[row] = at
