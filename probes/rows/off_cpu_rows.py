"""Intervals off the CPU: switches and wake-ups of a thread made into one row each.

A thread leaves its CPU in `sched_switch` as `prev`, and runs again in a later `sched_switch` as
`next`. The first `sched_waking` of the thread in between tells who woke it. Whether a thread is a
target's is known when it leaves its CPU, because the event happens in its own context, and for a
new thread by `task_newtask`. In a trace without that event, a new thread's first row waits for its
next event of its own.

Another CPU can wake a thread that has gone to sleep before its switch is logged. Such a wake-up
looks like one of a thread that runs. It counts if the thread then sleeps, and runs again without
another wake-up. If events were lost before the switch, it may have ended an earlier sleep.

A thread that was there before the recording may run at its start. Only a wake-up, or a switch to
the thread, shows that it was off the CPU. If events were lost during an interval, the switch that
seems to end it may end another one, and a wake-up after the loss may be another one's.

Some kernels do not log every switch away from the idle thread or from others. Then the interval
ends at the thread's next event, whatever event that is, but for page faults in kernel mode: another
tool that reads the thread's stack at the switch itself takes such faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.backends.backend import IN_INTERRUPT
from tracer.probes.backends.choice import EBPF
from tracer.probes.backends.event_format import EventFormat, Field
from tracer.probes.backends.timeline import Batch
from tracer.probes.events.page_faults import KERNEL_FAULT
from tracer.probes.limits import PID_LIMIT
from tracer.probes.loss import Gap
from tracer.probes.rows import columns
from tracer.probes.rows.doubt import overlaps_gaps
from tracer.probes.rows.kernel_stacks import NO_STACK, KernelStacks
from tracer.probes.rows.membership import with_fields
from tracer.probes.rows.off_cpu_intervals import (
    INTERVAL,
    NEWTASK,
    NO_SIGN,
    OFF,
    ROW,
    STACK,
    SWITCH,
    THREAD,
    UNSEEN,
    UNTOLD,
    WAITS_FOR_PID,
    WAKEUP_NEW,
    WAKING,
    follow,
)
from tracer.probes.rows.slots import NOBODY
from tracer.probes.rows.task_states import BEFORE, TaskStates
from tracer.probes.schema import AssemblyContext, Scope

_LAST_CPU = np.iinfo(np.int16).max


class OffCpuRows:
    """Makes the rows of the table `off_cpu`."""

    sees_others = True

    def __init__(self, context: AssemblyContext) -> None:
        self.schema = context.probe.table.arrow_schema()
        # An event may have several names; a recording has it by one of them.
        there = (event for event in context.probe.events if event.name in context.formats)
        known = {event.label: context.formats[event.name] for event in there}
        self._switch: EventFormat | None = known.get("switch")
        self._wakes = [
            (kind, found)
            for label, kind in (("waking", WAKING), ("wakeup_new", WAKEUP_NEW))
            if (found := known.get(label)) is not None
        ]
        self._stack: EventFormat | None = known.get("kernel_stack")
        self._stacks = KernelStacks(self._stack, context.kernel)
        self._clock, self._lost = context.manifest["clock"], context.gaps
        self._newtask = with_fields(context.formats, "task:task_newtask", "pid", "clone_flags")
        targets = context.manifest["targets"]
        self._everybody = not targets or any(target["kind"] == "machine" for target in targets)
        self._recorder = context.manifest["recorder"].get("pid") or UNTOLD
        self._tells_interrupts = _waking_has_flags(context.manifest)
        self._kernel_fault = context.formats.get(KERNEL_FAULT)
        self._names = TaskStates(self._switch)
        # A command's process is the recorder's until its exec.
        not_ours = {self._recorder, *(t["pid"] for t in targets if t["kind"] == "command")}
        # Untouched pages cost no memory.
        self._threads = np.zeros(PID_LIMIT, THREAD)
        self._at_start = {
            tid: pid
            for tid, pid, *_ in context.manifest["threads"]
            if 0 < tid < PID_LIMIT
            and pid not in not_ours
            and (self._everybody or context.membership.first_target(pid) != NOBODY)
        }
        self._begun = False
        self._gaps: list[Gap] = []

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Rows of the intervals that ended in this batch."""
        if self._switch is None or not (self._begun or len(of_probe)):
            return None
        if not self._begun:
            self._begin(int(batch.ts[of_probe[0]]))
        events, of_targets = _Events(len(batch)), self._are_targets(batch)
        types = batch.type[of_probe]
        self._read_switches(batch, of_probe[types == self._switch.id], events)
        for kind, event_format in self._wakes:
            self._read_wakes(batch, of_probe[types == event_format.id], kind, event_format, events)
        if self._stack is not None:
            rows = of_probe[types == self._stack.id]
            events.kind[rows], events.state[rows] = STACK, UNTOLD
            rows = rows[of_targets[rows]]  # ftrace adds that of a thread which a target's follows
            events.state[rows] = self._stacks.numbers(batch, rows)
        if self._newtask is not None:
            rows = np.flatnonzero(batch.type == self._newtask.id)
            child, flags = map(self._newtask.field, ("pid", "clone_flags"))
            events.kind[rows] = NEWTASK
            _read(batch, rows, [(child, events.about), (flags, events.state)], events.valid)
        if self._kernel_fault is not None:
            events.kind[batch.type == self._kernel_fault.id] = NO_SIGN
        # A switch can end an interval of the next thread, and tell the process of the last one.
        out = np.empty(len(batch) + len(of_probe), ROW)
        count = follow(
            batch.ts,
            batch.tid,
            batch.pid,
            batch.cpu,
            of_targets,
            events.kind,
            events.about,
            events.next,
            events.state,
            events.interrupt,
            events.valid,
            self._threads,
            out,
        )
        self._gaps = [gap for gap in batch.gaps if gap.of_scope(Scope.TARGET)] or self._gaps
        return self._batch(out[:count]) if count else None

    def _begin(self, ts: int) -> None:
        """Notes the threads of the targets that were there before."""
        self._begun = True
        for tid, pid in self._at_start.items():
            thread = self._threads[tid]
            for name, _ in INTERVAL:
                thread[name] = UNTOLD
            thread["ts"], thread["pid"], thread["state"] = ts, pid, BEFORE
            thread["status"] = UNSEEN

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
        events.kind[rows] = SWITCH
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
        if kind == WAKEUP_NEW:
            events.state[rows] = _queues(batch, rows, event_format)
        flags = event_format.first(("common_flags",))
        if flags is None or not self._tells_interrupts:
            return
        if kind == WAKEUP_NEW:
            events.interrupt[rows] = False  # it is part of the call that makes the thread
            return
        values, told = columns.integers(batch, rows, flags)
        events.interrupt[rows] = np.where(told, (values & IN_INTERRUPT) != 0, UNTOLD)

    def finish(self) -> pa.RecordBatch | None:
        """Rows of the intervals that have no end, or whose thread never told its process."""
        rows = self._unended()
        begun, ended = self._clock["start_ns"], self._clock["end_ns"]
        for phrase, count in self._stacks.losses().items():
            self._lost.append(Gap("kernel_stacks", -1, begun, ended, None, f"{count} {phrase}"))
        return rows

    def _unended(self) -> pa.RecordBatch | None:
        status = self._threads["status"]
        tids = np.flatnonzero((status == OFF) | (status == WAITS_FOR_PID))
        if not len(tids):
            return None
        waiting = self._threads[tids]
        out = np.empty(len(tids), ROW)
        for name, _ in INTERVAL:
            out[name] = waiting[name]
        out["tid"] = tids
        return self._batch(out[np.argsort(out["ts"], kind="stable")])

    def _batch(self, rows: NDArray[Any]) -> pa.RecordBatch:
        ended = self._in_no_gap(rows, "end")
        woken = self._in_no_gap(rows, "wake")
        could_run = np.isin(rows["state"], self._names.runnable)
        woken &= (rows["wake"] >= rows["ts"]) | (ended & ~could_run)
        wake = np.maximum(rows["wake"], rows["ts"])
        duration = rows["end"] - rows["ts"]
        delay = np.where(could_run, duration, rows["end"] - wake)
        told = rows["state"] != BEFORE
        # After a loss, a stack may belong to another sleep.
        stacks = np.where(self._in_no_gap(rows, "stack_at"), rows["stack"], NO_STACK)
        arrays = {
            "ts": pa.array(rows["ts"]),
            "dur_ns": _nullable(duration, ended),
            "cpu": _nullable(rows["cpu"], rows["cpu"] != UNTOLD),
            "pid": _nullable(rows["pid"], rows["pid"] != UNTOLD),
            "tid": pa.array(rows["tid"]),
            "state": columns.encoded(rows["state"], told, self._names.listed),
            "next_tid": _nullable(rows["next_tid"], rows["next_tid"] != UNTOLD),
            "wake_ns": _nullable(wake, woken),
            "waker_pid": _nullable(rows["waker_pid"], woken),
            "waker_tid": _nullable(rows["waker_tid"], woken),
            "interrupt": _nullable(rows["interrupt"] == 1, woken & (rows["interrupt"] != UNTOLD)),
            "run_delay_ns": _nullable(delay, ended & (woken | could_run)),
            "ran_cpu": _nullable(rows["ran_cpu"], ended),
            "ran_tid": _nullable(rows["ran_tid"], ended & (rows["ran_tid"] != UNTOLD)),
            "kernel_stack": self._stacks.column(stacks),
        }
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self.schema.names], schema=self.schema
        )

    def _in_no_gap(self, rows: NDArray[Any], until: str) -> NDArray[np.bool_]:
        """Returns which rows have such a time, and no events may be lost between it and `ts`."""
        told = rows[until] != UNTOLD
        times = np.where(told, rows[until], rows["ts"])
        begins, ends = np.minimum(rows["ts"], times), np.maximum(rows["ts"], times)
        found: NDArray[np.bool_] = told & ~overlaps_gaps(begins, ends, self._gaps)
        return found


class _Events:
    """The events of a batch as arrays.

    `about`: the thread that leaves its CPU, or is woken. `state`: that in which it leaves its CPU;
    of other events, the CPU of a new thread, the flags of its making, or the number of a stack.
    """

    def __init__(self, count: int) -> None:
        self.kind = np.zeros(count, np.int8)
        self.about = np.zeros(count, np.int64)
        self.next = np.zeros(count, np.int64)
        self.state = np.zeros(count, np.int64)
        self.interrupt = np.full(count, UNTOLD, np.int8)
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


def _queues(batch: Batch, rows: NDArray[np.int64], wakeup_new: EventFormat) -> NDArray[np.int64]:
    """Returns the CPUs in whose queues new threads were put; UNTOLD: an event does not tell."""
    field = wakeup_new.first(("target_cpu",))
    if field is None:
        return np.full(len(rows), UNTOLD)
    cpus, told = columns.integers(batch, rows, field)
    return np.where(told & (cpus >= 0) & (cpus <= _LAST_CPU), cpus, UNTOLD)


def _waking_has_flags(manifest: Mapping[str, Any]) -> bool:
    """Returns False if BPF programs, which record no flags, recorded `sched_waking`."""
    streams = manifest.get("capture", {}).get("streams", ())
    return manifest["backend"] != EBPF or any(
        "samples" not in stream and Scope.TARGET.value in stream["stream"] for stream in streams
    )


def _nullable(values: NDArray[Any], told: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=None if told.all() else ~told)
