"""Intervals off the CPU: switches and wake-ups of a thread made into one row each.

A thread leaves its CPU in `sched_switch` as `prev`, and runs again in a later `sched_switch` as
`next`. The first `sched_waking` of the thread in between tells who woke it. Whether a thread is a
target's is known when it leaves its CPU, because the event happens in its own context. A new thread
has not done so yet when it first runs. Its first row waits for its next event of its own.

If events were lost during an interval, the switch that seems to end it may end another one: then
only its begin is known. Some machines never log the switches away from threads of their own, such
as the agent of a virtual machine's host. Then the interval ends at the next event in the thread's
context, whatever event that is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat, Field
from tracer.probes.backends.timeline import Batch
from tracer.probes.compiled import compiled
from tracer.probes.limits import PID_LIMIT
from tracer.probes.rows import columns
from tracer.probes.rows.doubt import overlaps_gaps
from tracer.probes.rows.slots import NOBODY
from tracer.probes.schema import AssemblyContext, Scope

_INTERRUPT = 0x08 | 0x10 | 0x40
"""Bits of common_flags in hard interrupts, soft interrupts and NMIs (enum trace_flag_type in
include/linux/trace_events.h, unchanged since they are read by other programs)."""
_FLAGS = "common_flags"
_NO_FLAGS = ("ebpf",)
"""Backends whose records have no common fields."""
_DEAD = ("X", "Z")
_NEW, _BEFORE = "new", ""
"""States of intervals that begin with no switch: of a new thread, and before the recording."""

_ON, _OFF, _WAITS_FOR_PID = 0, 1, 2
"""A thread is not known to be off the CPU; is off it; or runs, and its last interval has no process
yet."""
_UNTOLD = -1
_OTHER, _SWITCH, _WAKING, _WAKEUP_NEW = 0, 1, 2, 3

_INTERVAL = [
    ("ts", np.int64),
    ("end", np.int64),
    ("wake", np.int64),
    ("pid", np.int32),
    ("waker_pid", np.int32),
    ("waker_tid", np.int32),
    ("ran_tid", np.int32),
    ("state", np.int32),
    ("cpu", np.int16),
    ("ran_cpu", np.int16),
    ("interrupt", np.int8),
]
"""An interval; -1 stands for a value that is not known. `state` is a place in the list of names."""
_THREAD = np.dtype([*_INTERVAL, ("status", np.int8)])
_ROW = np.dtype([*_INTERVAL, ("tid", np.int32)])


class OffCpuRows:
    """Makes the rows of the table `off_cpu`."""

    sees_others = True

    def __init__(self, context: AssemblyContext) -> None:
        self.schema = context.probe.table.arrow_schema()
        known = {event.label: context.formats.get(event.name) for event in context.probe.events}
        self._switch: EventFormat | None = known["switch"]
        self._wakes = [
            (kind, found)
            for label, kind in (("waking", _WAKING), ("wakeup_new", _WAKEUP_NEW))
            if (found := known[label]) is not None
        ]
        targets = context.manifest["targets"]
        self._everybody = not targets or any(target["kind"] == "machine" for target in targets)
        self._recorder = context.manifest["recorder"].get("pid") or _UNTOLD
        self._tells_interrupts = context.manifest["backend"] not in _NO_FLAGS
        self._names = _StateNames(self._switch)
        # Untouched pages cost no memory.
        self._threads = np.zeros(PID_LIMIT, _THREAD)
        self._at_start = {
            tid: pid
            for tid, pid, *_ in context.manifest["threads"]
            if 0 < tid < PID_LIMIT
            and (self._everybody or context.membership.first_target(pid) != NOBODY)
        }
        self._begun = False

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Rows of the intervals that ended in this batch."""
        if self._switch is None or not (self._begun or len(of_probe)):
            return None
        if not self._begun:
            self._begin(int(batch.ts[of_probe[0]]))
        events = _Events(len(batch))
        types = batch.type[of_probe]
        self._read_switches(batch, of_probe[types == self._switch.id], events)
        for kind, event_format in self._wakes:
            self._read_wakes(batch, of_probe[types == event_format.id], kind, event_format, events)
        # A switch can end an interval of the next thread, and tell the process of the last one.
        out = np.empty(len(batch) + len(of_probe), _ROW)
        count = _follow(
            batch.ts,
            batch.tid,
            batch.pid,
            batch.cpu,
            self._are_targets(batch),
            events.kind,
            events.about,
            events.next,
            events.state,
            events.interrupt,
            events.valid,
            self._threads,
            out,
        )
        gaps = [gap for gap in batch.gaps if gap.of_scope(Scope.TARGET)]
        return self._batch(out[:count], gaps) if count else None

    def _begin(self, ts: int) -> None:
        """Threads of the targets that were there before have been off the CPU, or still run."""
        self._begun = True
        for tid, pid in self._at_start.items():
            thread = self._threads[tid]
            for name, _ in _INTERVAL:
                thread[name] = _UNTOLD
            thread["ts"], thread["pid"], thread["state"] = ts, pid, self._names.before
            thread["status"] = _OFF

    def _are_targets(self, batch: Batch) -> NDArray[np.bool_]:
        """Returns which events happened in a target's thread, after the launch of a command."""
        assert batch.launching is not None and batch.target is not None
        found: NDArray[np.bool_] = ~batch.launching & (batch.pid != self._recorder)
        return found if self._everybody else found & (batch.target != NOBODY)

    def _read_switches(self, batch: Batch, rows: NDArray[np.int64], events: _Events) -> None:
        assert self._switch is not None
        fields = [
            (self._switch.first(("prev_pid",)), events.about),
            (self._switch.first(("next_pid",)), events.next),
            (self._switch.first(("prev_state",)), events.state),
        ]
        events.kind[rows] = _SWITCH
        if _read(batch, rows, fields, events.valid):
            events.state[rows] = self._names.codes(events.state[rows])

    def _read_wakes(
        self,
        batch: Batch,
        rows: NDArray[np.int64],
        kind: int,
        event_format: EventFormat,
        events: _Events,
    ) -> None:
        events.kind[rows] = kind
        _read(batch, rows, [(event_format.first(("pid",)), events.about)], events.valid)
        flags = event_format.first((_FLAGS,))
        if flags is None or not self._tells_interrupts:
            return
        values, told = columns.integers(batch, rows, flags)
        events.interrupt[rows] = np.where(told, (values & _INTERRUPT) != 0, _UNTOLD)

    def finish(self) -> pa.RecordBatch | None:
        """Rows of the intervals that have no end, or whose thread never told its process."""
        tids = np.flatnonzero(self._threads["status"])
        waiting = self._threads[tids]
        # A thread that no event is about may have run all the time.
        kept = (waiting["state"] != self._names.before) | (waiting["wake"] != _UNTOLD)
        tids, waiting = tids[kept], waiting[kept]
        self._threads["status"][tids] = _ON
        if not len(tids):
            return None
        out = np.empty(len(tids), _ROW)
        for name, _ in _INTERVAL:
            out[name] = waiting[name]
        out["tid"] = tids
        return self._batch(out[np.argsort(out["ts"], kind="stable")], [])

    def _batch(self, rows: NDArray[Any], gaps: list[Any]) -> pa.RecordBatch:
        ended = rows["end"] != _UNTOLD
        ended &= ~overlaps_gaps(rows["ts"], np.where(ended, rows["end"], rows["ts"]), gaps)
        woken = rows["wake"] != _UNTOLD
        could_run = np.isin(rows["state"], self._names.runnable)
        duration = rows["end"] - rows["ts"]
        delay = np.where(could_run, duration, rows["end"] - rows["wake"])
        told = rows["state"] != self._names.before
        arrays = {
            "ts": pa.array(rows["ts"]),
            "dur_ns": _nullable(duration, ended),
            "cpu": _nullable(rows["cpu"], rows["cpu"] != _UNTOLD),
            "pid": _nullable(rows["pid"], rows["pid"] != _UNTOLD),
            "tid": pa.array(rows["tid"]),
            "state": columns.encoded(rows["state"], told, self._names.listed),
            "wake_ns": _nullable(rows["wake"], woken),
            "waker_pid": _nullable(rows["waker_pid"], woken),
            "waker_tid": _nullable(rows["waker_tid"], woken),
            "interrupt": _nullable(rows["interrupt"] == 1, woken & (rows["interrupt"] != _UNTOLD)),
            "run_delay_ns": _nullable(delay, ended & (woken | could_run)),
            "ran_cpu": _nullable(rows["ran_cpu"], ended),
            "ran_tid": _nullable(rows["ran_tid"], ended & (rows["ran_tid"] != _UNTOLD)),
        }
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self.schema.names], schema=self.schema
        )


class _StateNames:
    """The names of states, as the print format of the switch tells them."""

    def __init__(self, switch: EventFormat | None) -> None:
        self._flags = {} if switch is None else dict(switch.flags.get("prev_state", {}))
        self._beyond = 2 * max(self._flags, default=0)
        """The first bit beyond the named ones: the kernel took the CPU away."""
        self.listed = [_BEFORE, _NEW]
        self.before = 0
        self.runnable: list[int] = []
        """Codes of states in which a thread can run."""
        self._code_of: dict[int, int] = {}

    def codes(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the places in `listed` of values of `prev_state`; -1: the thread has ended."""
        unique, inverse = np.unique(states, return_inverse=True)
        for state in unique.tolist():
            if state not in self._code_of:
                self._code_of[state] = self._new_code(state)
        found = np.array([self._code_of[state] for state in unique.tolist()], np.int64)
        codes: NDArray[np.int64] = found[inverse.reshape(-1)]
        return codes

    def _new_code(self, state: int) -> int:
        names = [name for bit, name in sorted(self._flags.items()) if state & bit]
        if any(name in _DEAD for name in names):
            return _UNTOLD
        beyond = self._beyond and state & ~(self._beyond - 1)
        name = ("|".join(names) or "R") + ("+" if beyond else "")
        if name not in self.listed:
            self.listed.append(name)
            if not names:
                self.runnable.append(len(self.listed) - 1)
        return self.listed.index(name)


class _Events:
    """The events of a batch as arrays. `about`: the thread that leaves its CPU, or is woken."""

    def __init__(self, count: int) -> None:
        self.kind = np.zeros(count, np.int8)
        self.about = np.zeros(count, np.int64)
        self.next = np.zeros(count, np.int64)
        self.state = np.zeros(count, np.int64)
        self.interrupt = np.full(count, _UNTOLD, np.int8)
        self.valid = np.zeros(count, np.bool_)


def _read(
    batch: Batch,
    rows: NDArray[np.int64],
    fields: list[tuple[Field | None, NDArray[np.int64]]],
    valid: NDArray[np.bool_],
) -> bool:
    """Reads fields of the events at `rows`; `valid`: those that have all. False if none has."""
    whole = np.ones(len(rows), np.bool_)
    for field, out in fields:
        if field is None:
            return False
        values, told = columns.integers(batch, rows, field)
        out[rows] = values
        whole &= told
    valid[rows] = whole
    return True


def _nullable(values: NDArray[Any], told: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=None if told.all() else ~told)


@compiled
def _follow(
    ts: Any,
    tids: Any,
    pids: Any,
    cpus: Any,
    are_targets: Any,
    kinds: Any,
    about: Any,
    nexts: Any,
    states: Any,
    interrupts: Any,
    valid: Any,
    threads: Any,
    out: Any,
) -> int:
    """Follows the threads through events in order of time; returns the number of rows in `out`."""
    n = 0
    for i in range(len(ts)):
        own = tids[i]
        if kinds[i] != _SWITCH and 0 < own < len(threads) and threads[own].status == _OFF:
            n = _runs(i, ts, cpus, _UNTOLD, threads, own, out, n)
        tid = about[i]
        if kinds[i] == _OTHER or not valid[i] or tid < 0 or tid >= len(threads):
            continue
        if kinds[i] == _SWITCH:
            if tid > 0:
                n = _leaves(i, ts, pids, cpus, are_targets, states, threads, tid, out, n)
            tid = nexts[i]
            if 0 < tid < len(threads) and threads[tid].status == _OFF:
                n = _runs(i, ts, cpus, about[i], threads, tid, out, n)
            continue
        thread = threads[tid]
        if kinds[i] == _WAKEUP_NEW:
            _off(thread, ts[i], _UNTOLD, _UNTOLD, 1)
            if not are_targets[i]:
                thread.status = _ON
        if thread.status == _OFF and thread.wake == _UNTOLD:
            thread.wake = ts[i]
            thread.waker_tid = tids[i]
            thread.waker_pid = pids[i]
            thread.interrupt = interrupts[i]
    return n


@compiled
def _runs(
    i: int, ts: Any, cpus: Any, ran_tid: int, threads: Any, tid: int, out: Any, n: int
) -> int:
    """The thread runs again, and its interval is a row if its process is known."""
    thread = threads[tid]
    thread.end = ts[i]
    thread.ran_cpu = cpus[i]
    thread.ran_tid = ran_tid
    if thread.pid == _UNTOLD:
        thread.status = _WAITS_FOR_PID
        return n
    thread.status = _ON
    return _copy(thread, tid, out, n)


@compiled
def _leaves(
    i: int,
    ts: Any,
    pids: Any,
    cpus: Any,
    are_targets: Any,
    states: Any,
    threads: Any,
    tid: int,
    out: Any,
    n: int,
) -> int:
    """The thread leaves its CPU. What waits for its process is a row now."""
    thread = threads[tid]
    if thread.status != _ON:  # its process is told now, or the switch that ended it is lost
        if thread.pid == _UNTOLD and are_targets[i]:
            thread.pid = pids[i]
        if thread.pid != _UNTOLD:
            n = _copy(thread, tid, out, n)
    thread.status = _ON
    if are_targets[i] and states[i] != _UNTOLD:
        _off(thread, ts[i], pids[i], cpus[i], states[i])
    return n


@compiled
def _off(thread: Any, ts: int, pid: int, cpu: int, state: int) -> None:
    thread.ts = ts
    thread.end = _UNTOLD
    thread.wake = _UNTOLD
    thread.pid = pid
    thread.waker_pid = _UNTOLD
    thread.waker_tid = _UNTOLD
    thread.ran_tid = _UNTOLD
    thread.ran_cpu = _UNTOLD
    thread.cpu = cpu
    thread.state = state
    thread.interrupt = _UNTOLD
    thread.status = _OFF


@compiled
def _copy(thread: Any, tid: int, out: Any, n: int) -> int:
    row = out[n]
    row.ts = thread.ts
    row.end = thread.end
    row.wake = thread.wake
    row.pid = thread.pid
    row.waker_pid = thread.waker_pid
    row.waker_tid = thread.waker_tid
    row.ran_tid = thread.ran_tid
    row.ran_cpu = thread.ran_cpu
    row.cpu = thread.cpu
    row.state = thread.state
    row.interrupt = thread.interrupt
    row.tid = tid
    return n + 1
