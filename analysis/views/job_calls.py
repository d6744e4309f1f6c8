"""The system calls of some threads, in one pass over a table of any length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.views.calls_by_kind import ENDINGS, IDLE, READ, SUBMIT, SYNC, WRITE
from analysis.views.cuts import Cuts
from analysis.views.holding import LATEST
from analysis.views.stretches import Ints
from probes.compiled import compiled
from tracer.store.trace import Trace

_NEVER = -LATEST - 1
"""Stands for the length of a call that did not return."""
OTHER_CALL, SYNC_CALL, WRITE_CALL, SUBMIT_CALL, SETUP_CALL, READ_CALL, IDLE_CALL = range(7)
"""What a call may wait for. One that submits transfers may be slowed down as one that writes."""
_NAMES = {
    SYNC_CALL: SYNC,
    WRITE_CALL: (*WRITE, *ENDINGS),
    SUBMIT_CALL: SUBMIT,
    SETUP_CALL: ("io_uring_setup",),
    READ_CALL: READ,
    IDLE_CALL: IDLE,
}
KIND_OF_CALL = (
    "CASE"
    + "".join(f" WHEN name IN {[*names]} THEN {kind}" for kind, names in _NAMES.items())
    + f" ELSE {OTHER_CALL} END::TINYINT"
)
"""SQL for the kind of a call from its `name`."""


@dataclass(frozen=True)
class Calls:
    """Some system calls: arrays of equal length."""

    lane: Ints
    """The number of the thread; -1: none of those that were asked for."""
    entered: Ints
    """ns."""
    returned: Ints
    """ns; the latest time there is for a call that did not."""
    did_return: NDArray[np.bool_]
    kind: NDArray[np.int8]


def calls_of(trace: Trace, tids: Ints) -> Iterator[Calls]:
    """Yield all calls of a trace, batch by batch, with those of `tids` (ascending) numbered.

    Until the last one no other query of the trace may be asked. Needs table syscalls.
    """
    query = (
        f"SELECT tid, ts, coalesce(dur_ns, {_NEVER}) AS length, {KIND_OF_CALL} AS kind"
        " FROM syscalls"
    )
    for batch in trace.batches(query):
        tid, ts, length, kind = (
            batch[name].to_numpy(False) for name in ("tid", "ts", "length", "kind")
        )
        returned = np.empty(len(ts), np.int64)
        _add_up(ts, length, returned)
        yield Calls(lanes_of(tids, tid), ts, returned, length != _NEVER, kind)


def lanes_of(tids: Ints, of: Ints) -> Ints:
    """Return the place of each thread in `tids`, which ascends; -1: it is not among them."""
    if not len(tids):
        return np.full(len(of), -1)
    at = np.minimum(np.searchsorted(tids, of), len(tids) - 1)
    return np.where(tids[at] == of, at, -1)


class CallsAround:
    """For each of some moments of threads, the last call up to it and the first one after it.

    All are arrays of as many values as moments, and right once `close` was called.
    """

    def __init__(self, lane: Ints, ts: Ints) -> None:
        """`lane` (from 0) ascends, and so does `ts` (ns) in each."""
        lanes = int(lane[-1]) + 1 if len(lane) else 0
        self._lane = lane
        self._first = np.searchsorted(lane, np.arange(lanes + 1))
        self._cuts = Cuts(lane, ts)
        self.entered = np.full(len(ts), -LATEST)
        """When the last call was entered, ns; -LATEST: there was none."""
        self.returned = np.full(len(ts), -LATEST)
        """When it returned, ns; LATEST: it did not. -LATEST: there was none."""
        self.kind = np.full(len(ts), OTHER_CALL, np.int8)
        """Its kind."""
        self.next = np.full(len(ts), LATEST)
        """When the first call after the moment was entered, ns; LATEST: there was none."""

    def see(self, calls: Calls) -> None:
        """Take these calls into account."""
        if len(self._lane):
            before = self._cuts.last(calls.lane, calls.entered, before=True)
            _keep_first(before, calls.entered, self.next)
            seen = (calls.lane, calls.entered, calls.returned, calls.kind)
            _keep_last(before, *seen, self._first, self.entered, self.returned, self.kind)

    def close(self) -> None:
        """Complete the moments between which there was no call; after the last of all calls."""
        _carry_back(self._lane, self.next)
        _carry_on(self._lane, self.entered, self.returned, self.kind)


@compiled
def _add_up(ts: Ints, length: Ints, returned: Ints) -> None:
    for row in range(len(ts)):
        if length[row] == _NEVER or (ts[row] > 0 and length[row] > LATEST - ts[row]):
            returned[row] = LATEST
        elif ts[row] < 0 and length[row] < -LATEST - ts[row]:
            returned[row] = -LATEST
        else:
            returned[row] = ts[row] + length[row]


@compiled
def _keep_first(at: Ints, entered: Ints, found: Ints) -> None:
    for row in range(len(at)):
        if at[row] >= 0 and entered[row] < found[at[row]]:
            found[at[row]] = entered[row]


@compiled
def _carry_back(lane: Ints, entered: Ints) -> None:
    for row in range(len(lane) - 2, -1, -1):
        if lane[row] == lane[row + 1] and entered[row + 1] < entered[row]:
            entered[row] = entered[row + 1]


@compiled
def _keep_last(
    before: Ints,
    lane: Ints,
    entered: Ints,
    returned: Ints,
    kind: NDArray[np.int8],
    first: Ints,
    last_entered: Ints,
    last_returned: Ints,
    last_kind: NDArray[np.int8],
) -> None:
    for row in range(len(lane)):
        if lane[row] < 0 or lane[row] >= len(first) - 1:
            continue
        at = before[row] + 1 if before[row] >= 0 else first[lane[row]]
        if at < first[lane[row] + 1] and entered[row] >= last_entered[at]:
            last_entered[at] = entered[row]
            last_returned[at] = returned[row]
            last_kind[at] = kind[row]


@compiled
def _carry_on(lane: Ints, entered: Ints, returned: Ints, kind: NDArray[np.int8]) -> None:
    for row in range(1, len(lane)):
        if lane[row] == lane[row - 1] and entered[row - 1] > entered[row]:
            entered[row] = entered[row - 1]
            returned[row] = returned[row - 1]
            kind[row] = kind[row - 1]
