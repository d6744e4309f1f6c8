"""The times in which jobs may have waited for a disk's writing: no layer can save more.

A write that nobody waits for costs a job nothing. So a layer can only save time in which a thread
of the job may have waited for writes. `write_waits` has all of these times:

- throttle: the kernel put a thread to sleep that had dirtied pages.
- sync: a call that makes data durable, or that unmounts. After the latter returned, the kernel
  writes out the file system, before the thread runs on. The call lasts until its thread's next call
  or end.
- write: a call that writes, closes, renames, truncates or removes files, or that begins or awaits
  asynchronous transfers (libaio, io_uring). A call of less than 0.1 ms counts only if a disk had
  writes to do meanwhile.
- async: an asynchronous transfer of a thread of the job was under way, and a disk had writes to do.
  A thread can wait for it without a call, by looking at memory.
- disk: any other call, except those that wait only for threads, times or networks; or a page fault
  that read, or that may have written to a mapped file; while a disk had writes to do, or reads that
  came behind writes (`tracer.analysis.views.disks.disk_writing`). A call that reads, and queued
  nothing at a disk itself, counts only while there were such reads, since it may read a pipe. A
  fault lasts until its thread's next call or such fault.
- begun: the time from the recording's beginning to a thread's first call, while a disk had writes
  to do. The thread may have been in a call.
- lost: events were lost.

A call of the kinds sync and write counts as a whole. The kinds async, disk and begun count only the
times in which a disk had such work, or in which lost events may hide it. A call that did not return
lasts until its thread's next call, its thread's end, or the recording's end; if it writes, it
counts however short it is.

No event shows the following waits, and these times leave them out: for work of another program; for
memory that had to be written out before it could be used; of a read from memory for the journal,
which notes the file's access time; for a bio that a cgroup's limit held back before it was queued
(except in calls of the kinds write and sync); in calls of less than 0.1 ms that write to a device
without a request queue (a network file system, persistent memory); for a disk that writes out its
own cache while it reads; for requests that were under way when the recording began; in a call whose
entry was lost; for the kernel's work after another call returned or a thread exited (the last close
of a file by dup2, munmap or an exit, and before Linux 6.6 by close; the end of a file system that
was unmounted while it was in use, by the close of its last file); and of threads that made no call
while they were recorded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.analysis.views.calls_around import LATEST, CallsAround, calls_of
from tracer.analysis.views.calls_by_kind import ENDINGS, IDLE, READ, SUBMIT, SYNC, UNMOUNT, WRITE
from tracer.analysis.views.cuts import Cuts
from tracer.analysis.views.disks.disk_writing import NOTHING, DiskUse, disk_use
from tracer.analysis.views.disks.requests import OPERATION
from tracer.analysis.views.disks.wait_times import ANY, KINDS, READ_TIMES, Waits
from tracer.analysis.views.job_threads import JobThreads, job_threads, make_job_threads
from tracer.analysis.views.stretches import (
    NO_TIME,
    Ints,
    Stretches,
    in_any,
    joined,
)
from tracer.analysis.views.threads import owns
from tracer.analysis.views.view import View
from tracer.probes.compiled import compiled
from tracer.probes.schema import Column, Scope, Type
from tracer.store.trace import Trace

_SHORT_NS = 100_000
"""A cgroup's limit holds no bio back for less: its timers are slower."""
_SCOPES = (Scope.TARGET.value, Scope.MACHINE.value)
_OTHER_CALL, _SYNC_CALL, _WRITE_CALL, _SUBMIT_CALL, _SETUP_CALL, _READ_CALL, _IDLE_CALL = range(7)
"""Kinds of calls, by the waits in them. The kernel may throttle a submitting call like a write."""
_CALLS = {
    _SYNC_CALL: (*SYNC, *UNMOUNT),
    _WRITE_CALL: (*WRITE, *ENDINGS),
    _SUBMIT_CALL: SUBMIT,
    _SETUP_CALL: ("io_uring_setup",),
    _READ_CALL: READ,
    _IDLE_CALL: IDLE,
}
_KINDS_OF_NAMES = np.array(
    [_OTHER_CALL, *(kind for kind, names in _CALLS.items() for _ in names)], np.int8
)
_NUMBER = (
    f"coalesce(list_position({[name for names in _CALLS.values() for name in names]}, name), 0)"
    "::TINYINT"
)
"""SQL for the place of a call's name in _KINDS_OF_NAMES."""
_KIND_OF = {_SYNC_CALL: "sync", _WRITE_CALL: "write", _SUBMIT_CALL: "write", _READ_CALL: READ_TIMES}
_KIND_OF |= {_SETUP_CALL: "disk", _OTHER_CALL: "disk"}
_UNMOUNTED, _FAULT, _BEGUN, _TRANSFER, _BY_WORKER = range(-5, 0)
"""Kinds of moments other than calls."""
_KIND_OF |= {_UNMOUNTED: "sync", _FAULT: "disk", _BEGUN: "begun"}
_TRANSFER_KINDS = np.array([_TRANSFER, _BY_WORKER], np.int8)
_UNMOUNT_KINDS = np.array([_UNMOUNTED], np.int8)

_NOT_RETURNED = (
    f"SELECT tid::BIGINT AS tid, ts, {_NUMBER} AS kind FROM syscalls WHERE dur_ns IS NULL"
)

_UNMOUNTS = f"""
SELECT tid::BIGINT AS tid, ts, least(ts::HUGEINT + dur_ns, {LATEST})::BIGINT AS until,
    0::TINYINT AS kind
FROM syscalls WHERE name IN {UNMOUNT} AND dur_ns >= 0
"""

_FAULTS = """
SELECT tid::BIGINT AS tid, ts FROM page_faults
WHERE kind = 'major'
    OR ((access IS NULL OR access = 'write' OR kind = 'unknown')
        AND file IS NOT NULL AND file NOT LIKE '[%')
"""

_PAUSES = f"""
SELECT job, ts AS begin, least(ts::HUGEINT + pause_ns, {LATEST})::BIGINT AS end
FROM dirty d JOIN job_threads o ON {owns("o", "d")}
WHERE event = 'balance_dirty_pages' AND pause_ns > 0
"""

_TRANSFERS = f"""
SELECT tid::BIGINT AS tid, ts,
    coalesce(starts_with(comm, 'iou-'), false)::TINYINT AS kind
FROM block b SEMI JOIN job_threads o ON {owns("o", "b")}
WHERE event = 'bio_queue' AND nr_sector > 0 AND {OPERATION} IN ('read', 'write')
"""


class _Moments(NamedTuple):
    """Moments of threads: arrays of equal length, by lane and time."""

    lane: Ints
    ts: Ints
    """ns."""
    kind: NDArray[np.int8]
    """Kind of a call that did not return; _UNMOUNTED, _FAULT, _BEGUN, _TRANSFER or _BY_WORKER."""


def _build(trace: Trace) -> None:
    for table in ("block", "dirty", "page_faults", "loss"):
        trace.empty_if_missing(table)
    make_job_threads(trace)
    targets = dict(trace.rows("SELECT DISTINCT job, target FROM job_threads"))
    clock = trace.manifest["clock"]
    begun = int(clock["start_ns"])
    ended = LATEST if clock["end_ns"] is None else int(clock["end_ns"])
    lost, machine = (_gaps(trace, scopes) for scopes in (_SCOPES, (Scope.MACHINE.value,)))
    use = disk_use(trace, ended, machine) if "block" in trace.tables else None
    waits = Waits(begun, ended)
    for job in targets:
        waits.add("lost", np.full(len(lost), job), lost[:, 0], lost[:, 1])
    _add_calls(trace, waits, job_threads(trace, ended), use, begun, ended)
    for batch in trace.batches(_PAUSES):
        waits.add("throttle", *(batch[name].to_numpy() for name in ("job", "begin", "end")))
    found = waits.of(len(targets), use or NOTHING)
    together = {
        (None, kind): in_any([found[job, kind] for job in targets])
        if len(targets) != 1
        else found[0, kind]
        for kind in (*KINDS, ANY)
    }
    named = {(targets[job], kind): times for (job, kind), times in found.items()}
    trace.keep("write_waits", _table(named | together))
    trace.drop("job_threads")


def _gaps(trace: Trace, scopes: tuple[str, ...]) -> Stretches:
    """Returns the times in which events of these scopes were lost."""
    of_scopes = " OR ".join(f"contains(stream, '{scope}')" for scope in scopes)
    rows = trace.arrow(
        f'SELECT coalesce("from", {-LATEST}) AS begin, coalesce("to", {LATEST}) AS end'
        f" FROM loss WHERE {of_scopes}"
    )
    return joined(rows["begin"].to_numpy(), rows["end"].to_numpy())


def _add_calls(
    trace: Trace, waits: Waits, threads: JobThreads, use: DiskUse | None, begun: int, ended: int
) -> None:
    """Adds calls, page faults, and the transfers that threads of jobs began."""
    writing = (use or NOTHING).writing.ravel()
    known = use is not None
    disks = Cuts(np.zeros(len(writing), np.int64), writing)
    moments = _moments(trace, threads, disks, begun)
    around = CallsAround(moments.lane, moments.ts)
    last_kind = np.full(len(moments.ts), _OTHER_CALL, np.int8)
    for calls in calls_of(trace, threads, _NUMBER):
        kind = _KINDS_OF_NAMES[calls.what.to_numpy()]
        found, rows = around.see(calls)
        last_kind[found] = kind[rows]
        chosen = _may_have_waited(
            calls.lane, calls.entered, calls.returned, calls.did_return, kind, writing, known
        )
        jobs = threads.job[calls.lane[chosen]]
        _add_kinds(waits, jobs, calls.entered[chosen], calls.returned[chosen], kind[chosen])
    last_kind = last_kind[around.close()]
    _add_unfinished(waits, threads, moments, around.next)
    idle = np.append((use or NOTHING).busy[:, 1], ended)
    _add_transfers(waits, threads, moments, around, last_kind, idle)


@compiled
def _may_have_waited(
    lane: Ints,
    entered: Ints,
    returned: Ints,
    did_return: NDArray[np.bool_],
    kinds: NDArray[np.int8],
    edges: Ints,
    known: bool,
) -> Ints:
    """Returns the calls that count. `edges`: when the disks' writing began and ended, if `known`.

    Calls roughly in order of time are fast: the search starts at the previous result.
    """
    chosen = np.empty(len(lane), np.int64)
    count = at = 0
    for row in range(len(lane)):
        kind, begin, end = kinds[row], entered[row], returned[row]
        if lane[row] < 0 or not did_return[row] or end <= begin or kind == _IDLE_CALL:
            continue
        writes = kind in (_WRITE_CALL, _SUBMIT_CALL)
        if kind == _SYNC_CALL or (writes and not (known and begin > end - _SHORT_NS)):
            chosen[count] = row
            count += 1
            continue
        if at < len(edges) and edges[at] <= begin:  # `at`: the first edge after the call's entry
            if at + 1 < len(edges) and edges[at + 1] <= begin:
                at += np.searchsorted(edges[at:], begin, "right")
            else:
                at += 1
        elif at > 0 and edges[at - 1] > begin:
            at = np.searchsorted(edges[:at], begin, "right")
        # Writing goes on after an edge of an even number until right before the next one.
        if at % 2 == 1 or (at < len(edges) and edges[at] < end):
            chosen[count] = row
            count += 1
    return chosen[:count]


def _moments(trace: Trace, threads: JobThreads, disks: Cuts, begun: int) -> _Moments:
    """Returns the moments from which a thread may have waited for a time that no event gives."""
    found = []
    for batch in trace.batches(_FAULTS):
        tid, ts = (batch[name].to_numpy() for name in ("tid", "ts"))
        lane = threads.of(tid, ts)
        gap = disks.last(np.zeros(len(ts), np.int64), ts)
        chosen = _last_in_gaps(lane, ts, gap, len(threads.tid))
        found.append(_Moments(lane[chosen], ts[chosen], np.full(len(chosen), _FAULT)))
    for query, kinds, moment in (
        (_NOT_RETURNED, _KINDS_OF_NAMES, "ts"),
        (_UNMOUNTS, _UNMOUNT_KINDS, "until"),
        (_TRANSFERS, _TRANSFER_KINDS, "ts"),
    ):
        rows = trace.arrow(query)
        tid, ts, kind = (rows[name].to_numpy() for name in ("tid", "ts", "kind"))
        found.append(_Moments(threads.of(tid, ts), rows[moment].to_numpy(), kinds[kind]))
    there = threads.was_there
    found.append(_Moments(there, np.full(len(there), begun - 1), np.full(len(there), _BEGUN)))
    lane, ts, kind = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((ts, lane))
    order = order[np.searchsorted(lane[order], 0) :]
    return _Moments(lane[order], ts[order], kind[order])


def _add_kinds(waits: Waits, jobs: Ints, begin: Ints, end: Ints, kinds: NDArray[np.int8]) -> None:
    for code, kind in _KIND_OF.items():
        chosen = kinds == code
        waits.add(kind, jobs[chosen], begin[chosen], end[chosen])


def _add_unfinished(waits: Waits, threads: JobThreads, moments: _Moments, next_call: Ints) -> None:
    """Adds faults, calls that did not return or went on, and those from before the recording."""
    until = next_call.copy()
    faults = np.flatnonzero(moments.kind == _FAULT)
    again = np.flatnonzero(moments.lane[faults[1:]] == moments.lane[faults[:-1]])
    until[faults[again]] = np.minimum(until[faults[again]], moments.ts[faults[again + 1]])
    until = np.minimum(until, threads.ended[moments.lane])
    until[(moments.kind == _BEGUN) & (next_call == LATEST)] = -LATEST
    _add_kinds(waits, threads.job[moments.lane], moments.ts, until, moments.kind)


def _add_transfers(
    waits: Waits,
    threads: JobThreads,
    moments: _Moments,
    around: CallsAround,
    last_kind: NDArray[np.int8],
    idle: Ints,
) -> None:
    """Adds asynchronous transfers, until the disks are idle, and calls that read a disk.

    `idle` has the times (ns) at which all disks became idle, and the end of the recording.
    """
    by_worker = moments.kind == _BY_WORKER
    in_call = (moments.kind == _TRANSFER) & (moments.ts <= around.returned)
    submits = np.isin(last_kind, (_SUBMIT_CALL, _SETUP_CALL))
    job = threads.job[moments.lane]
    apart = by_worker | (in_call & submits)
    begun = moments.ts[apart]
    until = idle[np.minimum(np.searchsorted(idle[:-1], begun, "right"), len(idle) - 1)]
    waits.add("async", job[apart], begun, until)
    reads = in_call & (last_kind == _READ_CALL)
    returned = np.minimum(around.returned, around.next)
    waits.add("disk", job[reads], around.entered[reads], returned[reads])


@compiled
def _last_in_gaps(lane: Ints, ts: Ints, edge: Ints, lanes: int) -> Ints:
    """Returns the moments to keep: only the last one of a lane between two stretches.

    `edge` is the number of the last edge before a moment; it is even within a stretch.
    """
    kept = np.empty(len(lane), np.int64)
    count = 0
    last = np.full(lanes, -1)
    for row in range(len(lane)):
        at = lane[row]
        if at < 0:
            continue
        before = last[at]
        if before >= 0 and edge[before] == edge[row] and ts[before] > ts[row]:
            continue
        if before >= 0 and edge[before] != edge[row]:
            kept[count] = before
            count += 1
        last[at] = row
        if edge[row] % 2 == 0:
            kept[count] = row
            count += 1
            last[at] = -1
    for at in range(lanes):
        if last[at] >= 0:
            kept[count] = last[at]
            count += 1
    return kept[:count]


def _table(found: dict[tuple[str | None, str], Stretches]) -> pa.Table:
    lengths = [len(times) for times in found.values()]
    times = np.concatenate([NO_TIME, *found.values()])
    names = {
        column: pa.array([key[place] for key in found], pa.string()).take(
            np.repeat(np.arange(len(found)), lengths)
        )
        for place, column in enumerate(("target", "kind"))
    }
    return pa.table({"ts": times[:, 0], "dur_ns": times[:, 1] - times[:, 0], **names})


WRITE_WAITS = View(
    "write_waits",
    "One row per stretch of time in which a job may have waited for a disk's writing.",
    (
        Column("ts", Type.INT64, "when it began", "ns"),
        Column("dur_ns", Type.INT64, "how long it was, at most", "ns"),
        Column("target", Type.TEXT, "the job's target; null: all targets together"),
        Column("kind", Type.TEXT, f"{', '.join(KINDS)}; {ANY}: one or more of these"),
    ),
    needs=("processes", "syscalls"),
    build=_build,
    example="SELECT target, kind, sum(dur_ns)/1e9 s FROM write_waits GROUP BY ALL ORDER BY ALL",
)
"""Rows of one target and kind do not touch. The module docstring defines the kinds."""
