"""The loop over events in order of time that finds intervals off the CPU (`off_cpu_rows.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.probes.compiled import compiled
from tracer.probes.rows.task_states import ENDED, NEW
from tracer.probes.rows.threads import CLONE_THREAD

ON, OFF, WAITS_FOR_PID, UNSEEN, MADE, MADE_FOR_OTHERS = range(6)
"""A thread is not known to be off the CPU; is off it; runs, and its last interval has no process
yet; was there before the recording, and either runs or is off the CPU; is made, but not woken: for
a target, or not."""
UNTOLD = -1
OTHER, SWITCH, WAKING, WAKEUP_NEW, NEWTASK, STACK, NO_SIGN = range(7)
"""Kinds of events. Each but a stack and `NO_SIGN` shows that its thread runs."""

INTERVAL = [
    ("ts", np.int64),
    ("end", np.int64),
    ("wake", np.int64),
    ("pid", np.int32),
    ("waker_pid", np.int32),
    ("waker_tid", np.int32),
    ("ran_tid", np.int32),
    ("next_tid", np.int32),
    ("state", np.int32),
    ("cpu", np.int16),
    ("ran_cpu", np.int16),
    ("interrupt", np.int8),
    ("stack", np.int32),
    ("stack_at", np.int64),
]
"""An interval; -1 stands for a value that is not known. `state` is a place in the list of names,
`stack` the number of a kernel stack, and `stack_at` its time."""
THREAD = np.dtype([*INTERVAL, ("status", np.int8)])
ROW = np.dtype([*INTERVAL, ("tid", np.int32)])


@compiled
def follow(
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
        if kinds[i] == NO_SIGN:
            continue
        if kinds[i] == STACK:
            if 0 < own < len(threads):
                _slept_in(threads[own], ts[i], cpus[i], states[i])
            continue
        if 0 < own < len(threads):
            if threads[own].status != ON:
                n = _is_on(i, ts, pids, cpus, are_targets, threads, own, out, n)
            if kinds[i] != SWITCH:
                threads[own].wake = UNTOLD
        tid = about[i]
        if kinds[i] == OTHER or not valid[i] or tid < 0 or tid >= len(threads):
            continue
        if kinds[i] == SWITCH:
            if tid > 0:
                threads[tid].status = ON
                if are_targets[i] and states[i] != ENDED:
                    _off(threads[tid], ts[i], pids[i], cpus[i], states[i])
                    threads[tid].next_tid = nexts[i] if 0 <= nexts[i] < len(threads) else UNTOLD
            tid = nexts[i]
            if 0 < tid < len(threads) and threads[tid].status in (OFF, UNSEEN):
                n = _runs(i, ts, cpus, about[i], threads, tid, out, n)
            continue
        if tid == 0:
            continue
        thread = threads[tid]
        if kinds[i] == NEWTASK:
            thread.pid = pids[i] if states[i] & CLONE_THREAD else tid
            thread.status = MADE if are_targets[i] else MADE_FOR_OTHERS
            continue
        if kinds[i] == WAKEUP_NEW:
            made = thread.status == MADE
            ours = made or (are_targets[i] and thread.status != MADE_FOR_OTHERS)
            thread.status = ON
            thread.wake = UNTOLD
            if ours:
                _off(thread, ts[i], thread.pid if made else UNTOLD, states[i], NEW)
        leaves = thread.status == ON and own != tid
        if leaves or (thread.status in (OFF, UNSEEN) and thread.wake < thread.ts):
            thread.status = ON if leaves else OFF
            thread.wake = ts[i]
            thread.waker_tid = tids[i]
            thread.waker_pid = pids[i]
            thread.interrupt = interrupts[i]
    return n


@compiled
def _is_on(
    i: int,
    ts: Any,
    pids: Any,
    cpus: Any,
    are_targets: Any,
    threads: Any,
    tid: int,
    out: Any,
    n: int,
) -> int:
    """The thread has an event of its own, so it runs, and its process is known."""
    thread = threads[tid]
    if thread.status == OFF:
        n = _runs(i, ts, cpus, UNTOLD, threads, tid, out, n)
    if thread.status == WAITS_FOR_PID and are_targets[i]:
        thread.pid = pids[i]
        n = _copy(thread, tid, out, n)
    thread.status = ON
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
    if thread.pid == UNTOLD:
        thread.status = WAITS_FOR_PID
        return n
    thread.status = ON
    return _copy(thread, tid, out, n)


@compiled
def _off(thread: Any, ts: int, pid: int, cpu: int, state: int) -> None:
    """Begins an interval. A wake-up since the thread's last event may be that of a leaving one."""
    if thread.wake <= 0:  # 0: memory that was never written to
        thread.wake = UNTOLD
    thread.ts = ts
    thread.end = UNTOLD
    thread.pid = pid
    thread.ran_tid = UNTOLD
    thread.next_tid = UNTOLD
    thread.ran_cpu = UNTOLD
    thread.cpu = cpu
    thread.state = state
    thread.stack = UNTOLD
    thread.stack_at = UNTOLD
    thread.status = OFF


@compiled
def _slept_in(thread: Any, ts: int, cpu: int, stack: int) -> None:
    """The stack that follows the switch in which a thread left its CPU."""
    sleeps = thread.status == OFF and thread.state != NEW
    if sleeps and thread.cpu == cpu and thread.stack == UNTOLD:
        thread.stack = stack
        thread.stack_at = ts


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
    row.next_tid = thread.next_tid
    row.ran_cpu = thread.ran_cpu
    row.cpu = thread.cpu
    row.state = thread.state
    row.interrupt = thread.interrupt
    row.stack = thread.stack
    row.stack_at = thread.stack_at
    row.tid = tid
    thread.wake = UNTOLD
    return n + 1
