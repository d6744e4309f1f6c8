"""The times in which the jobs may have waited for a disk's writing: no layer can save more.

A write that nobody waits for costs a job nothing. So what could be saved lies within the times in
which a thread of the job may have waited for writes. `write_waits` has all of these times:

- throttle: the kernel put a thread to sleep that had made pages dirty.
- sync: a call that makes data durable.
- write: a call that writes, closes, renames, truncates or removes files, or that begins or awaits
  asynchronous transfers (libaio, io_uring).
- async: an asynchronous transfer of a thread of the job was under way, and a disk had writes to do:
  whoever waited for it may have looked at memory, or have polled.
- disk: any other call but those that wait for threads, times or networks alone; or a page fault
  that read, or wrote to a mapped file; while a disk had writes to do, or reads that came behind
  writes (`analysis.views.disk_writing`). A call that reads, and queued nothing at a disk itself,
  counts only while there were such reads: it may read a pipe. A fault lasts until its thread's
  next call or fault.
- begun: what a thread did between the recording's beginning and its first call, while a disk had
  writes to do: it may have been in a call.
- lost: events were lost.

Calls count whole. One that did not return lasts until its thread's next call, until the thread's
end, or until the recording's.

No event tells, and these times leave out: what a job waits for that another program does for it;
memory that had to be written out before it could be used; a read from memory that waited for the
journal, to note when its file was read; a bio that a cgroup's limit held back before it was queued
(but in calls that write or make durable); what a disk writes out of its own cache while it reads;
requests that were under way when the recording began; a call whose entry was lost; threads that
made no call at all while they were recorded, which were asleep.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa

from analysis.views.calls_by_kind import ENDINGS, IDLE, READ, SYNC, WRITE
from analysis.views.cuts import Cuts, define
from analysis.views.disk_writing import NOTHING, DiskUse, disk_use
from analysis.views.holding import LATEST, make_calls_after, make_calls_before
from analysis.views.requests import OPERATION
from analysis.views.stretches import NO_TIME, Ints, Stretches, at_most, in_any, in_both, joined
from analysis.views.view import View
from probes.schema import Column, Scope, Type
from tracer.store.trace import Trace

KINDS = {
    "throttle": "asleep for having made pages dirty",
    "sync": "in calls that make data durable",
    "write": "in calls that write, close, rename, truncate or remove files or await transfers",
    "async": "with asynchronous transfers under way, while a disk had writes to do",
    "disk": "in other calls and page faults, while a disk had writes or reads behind writes to do",
    "begun": "maybe in calls from before the recording, while a disk had writes to do",
    "lost": "in which events were lost",
}
"""Each kind of wait, in words that follow a time."""
ANY = "any"
"""Stands for all kinds together."""
_WHILE_WRITING = ("async", "disk", "begun")
_READ = "read"
"""Calls that read, until it is known which of their time counts as `disk`."""
_MOST = 1 << 22
"""Stretches of one kind that are kept apart: of more, those that are next to each other are one."""
_FOUND = ("sync", "write", _READ, "disk", "begun")
"""The kinds that queries number from 0."""
_ASYNC = ("io_submit", "io_uring_enter", "io_uring_setup")
_SCOPES = (Scope.TARGET.value, Scope.MACHINE.value)

_JOBS = """
CREATE OR REPLACE TEMP TABLE job_threads AS
SELECT tid, target, was_there, ended, dense_rank() OVER (ORDER BY target NULLS FIRST) - 1 AS job
FROM (
    SELECT tid, arg_max(target, coalesce(start_ns, 0)) AS target,
        bool_or(start_ns IS NULL) AS was_there,
        CASE WHEN count(end_ns) = count(*) THEN max(end_ns) END AS ended
    FROM processes WHERE role IN ('target', 'child') GROUP BY tid
)
"""

_KIND = (
    f"CASE WHEN name IN {SYNC} THEN 0 WHEN name IN {(*WRITE, *ENDINGS)} THEN 1"
    f" WHEN name IN {READ} THEN 2 ELSE 3 END"
)

_RETURNED = f"""
SELECT job, ts AS begin, until AS end, kind FROM (
    SELECT tid, ts, least(ts::HUGEINT + dur_ns, {LATEST})::BIGINT AS until, {_KIND} AS kind
    FROM syscalls WHERE dur_ns > 0 AND name NOT IN {IDLE}
) JOIN job_threads USING (tid)
WHERE kind < 2 OR disk_wrote(0, ts) % 2 = 0 OR disk_wrote(0, ts) != disk_wrote(0, until)
"""
"""Numbers of edges: those from an even one to the next lie in a stretch."""

_NOT_RETURNED = f"""
CREATE OR REPLACE TEMP TABLE wait_moments AS
SELECT * FROM (
    SELECT tid, ts, {_KIND} AS kind FROM syscalls
    WHERE dur_ns IS NULL AND coalesce(name, '') NOT IN {IDLE}
    UNION ALL
    SELECT tid, ts, 3 FROM page_faults
    WHERE kind = 'major' OR (file IS NOT NULL AND file NOT LIKE '[%'
        AND (kind = 'unknown' OR access = 'write'))
    UNION ALL
    SELECT tid, {{begun}} - 1, 4 FROM job_threads WHERE was_there
) SEMI JOIN job_threads USING (tid)
"""

_UNTIL = """
SELECT job, m.ts AS begin, least(n.next, ended, {ended}) AS end, kind
FROM wait_moments m JOIN wait_ends n USING (tid, ts) JOIN job_threads USING (tid)
WHERE kind < 4 OR n.next IS NOT NULL
"""

_PAUSES = f"""
SELECT job, ts AS begin, least(ts::HUGEINT + pause_ns, {LATEST})::BIGINT AS end
FROM dirty JOIN job_threads USING (tid) WHERE event = 'balance_dirty_pages' AND pause_ns > 0
"""

_TRANSFERS = f"""
CREATE OR REPLACE TEMP TABLE wait_transfers AS
SELECT job, tid, ts, coalesce(starts_with(comm, 'iou-'), false) AS by_worker
FROM block JOIN job_threads USING (tid)
WHERE event = 'bio_queue' AND nr_sector > 0 AND {OPERATION} IN ('read', 'write')
"""

_IN_CALLS = f"""
SELECT DISTINCT job, t.ts, by_worker OR c.call IN {_ASYNC} AS apart, c.ts AS begin,
    least(c.returned, n.next, {LATEST}) AS end
FROM wait_transfers t ASOF LEFT JOIN calls_at_transfers c ON t.tid = c.tid AND t.ts >= c.ts
    LEFT JOIN wait_ends n ON c.tid = n.tid AND c.ts = n.ts
WHERE by_worker OR (t.ts <= c.returned AND c.call IN {(*_ASYNC, *READ)})
"""


class _Waits:
    """Times of each job and kind, which grow."""

    def __init__(self, begun: int, ended: int) -> None:
        self._recording = (begun, max(begun, ended))
        self._found: dict[tuple[int, str], list[Stretches]] = defaultdict(list)

    def add(self, kind: str, jobs: Ints, begin: Ints, end: Ints) -> None:
        for job in np.unique(jobs):
            mine = jobs == job
            kept = self._found[int(job), kind]
            kept.append(joined(*(np.clip(edge[mine], *self._recording) for edge in (begin, end))))
            if sum(map(len, kept)) > 2 * _MOST:
                kept[:] = [at_most(in_any(kept), _MOST)]

    def of(self, jobs: int, use: DiskUse) -> dict[tuple[int, str], Stretches]:
        """Return the times within the recording of each job and kind, and of all kinds."""
        found = {}
        for job in range(jobs):
            for kind in (*KINDS, _READ):
                times = in_any(self._found[job, kind])
                within = kind in _WHILE_WRITING
                found[job, kind] = in_both(times, use.writing) if within else times
            read = in_both(found.pop((job, _READ)), use.late)
            found[job, "disk"] = in_any([found[job, "disk"], read])
            found[job, ANY] = in_any([found[job, kind] for kind in KINDS])
        return found


def _build(trace: Trace) -> None:
    for table in ("block", "dirty", "page_faults", "loss"):
        trace.empty_if_missing(table)
    trace.execute(_JOBS)
    targets = dict(trace.rows("SELECT DISTINCT job, target FROM job_threads"))
    clock = trace.manifest["clock"]
    begun = int(clock["start_ns"])
    ended = LATEST if clock["end_ns"] is None else int(clock["end_ns"])
    lost, machine = (_gaps(trace, scopes) for scopes in (_SCOPES, (Scope.MACHINE.value,)))
    use = disk_use(trace, ended, machine) if "block" in trace.tables else NOTHING
    waits = _Waits(begun, ended)
    for job in targets:
        waits.add("lost", np.full(len(lost), job), lost[:, 0], lost[:, 1])
    _add_calls(trace, waits, use, begun, ended)
    for batch in trace.batches(_PAUSES):
        waits.add("throttle", *(batch[name].to_numpy() for name in ("job", "begin", "end")))
    _add_transfers(trace, waits, use, ended)
    found = waits.of(len(targets), use)
    together = {
        (None, kind): in_any([found[job, kind] for job in targets])
        if len(targets) != 1
        else found[0, kind]
        for kind in (*KINDS, ANY)
    }
    named = {(targets[job], kind): times for (job, kind), times in found.items()}
    trace.keep("write_waits", _table(named | together))
    for table in ("job_threads", "wait_moments", "wait_ends", "wait_transfers"):
        trace.execute(f"DROP TABLE IF EXISTS {table}")


def _gaps(trace: Trace, scopes: tuple[str, ...]) -> Stretches:
    """Return when events of these scopes were lost."""
    of_scopes = " OR ".join(f"contains(stream, '{scope}')" for scope in scopes)
    rows = trace.arrow(
        f'SELECT coalesce("from", {-LATEST}) AS begin, coalesce("to", {LATEST}) AS end'
        f" FROM loss WHERE {of_scopes}"
    )
    return joined(rows["begin"].to_numpy(), rows["end"].to_numpy())


def _add_calls(trace: Trace, waits: _Waits, use: DiskUse, begun: int, ended: int) -> None:
    edges = use.writing.ravel()
    define(trace, "disk_wrote", Cuts(np.zeros(len(edges), np.int64), edges))
    names = ("job", "begin", "end", "kind")
    for batch in trace.batches(_RETURNED):
        _add_kinds(waits, *(batch[name].to_numpy() for name in names))
    trace.execute(_NOT_RETURNED.format(begun=begun))
    make_calls_after(trace, "SELECT tid, ts FROM wait_moments", "wait_ends")
    for batch in trace.batches(_UNTIL.format(ended=ended)):
        _add_kinds(waits, *(batch[name].to_numpy() for name in names))


def _add_kinds(waits: _Waits, jobs: Ints, begin: Ints, end: Ints, kinds: Ints) -> None:
    for number, kind in enumerate(_FOUND):
        chosen = kinds == number
        waits.add(kind, jobs[chosen], begin[chosen], end[chosen])


def _add_transfers(trace: Trace, waits: _Waits, use: DiskUse, ended: int) -> None:
    """Add asynchronous transfers, until no disk has anything to do; and calls that read a disk."""
    trace.execute(_TRANSFERS)
    make_calls_before(trace, "SELECT tid, ts FROM wait_transfers", "calls_at_transfers")
    for batch in trace.batches(_IN_CALLS):
        job, ts, apart = (batch[name].to_numpy(False) for name in ("job", "ts", "apart"))
        busy_until = np.append(use.busy[:, 1], ended)
        until = busy_until[np.searchsorted(use.busy[:, 1], ts, "right")]
        waits.add("async", job[apart], ts[apart], until[apart])
        begin, end = (
            batch[name].fill_null(0).to_numpy()[~apart].astype(np.int64)
            for name in ("begin", "end")
        )
        waits.add("disk", job[~apart], begin, end)
    trace.execute("DROP TABLE calls_at_transfers")


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
    "One row each stretch of time in which a job may have waited for a disk's writing.",
    (
        Column("ts", Type.INT64, "when it began", "ns"),
        Column("dur_ns", Type.INT64, "how long it was, at most", "ns"),
        Column("target", Type.TEXT, "whose it is; null: of all targets together"),
        Column("kind", Type.TEXT, f"{', '.join(KINDS)}; or {ANY}: one of these at least"),
    ),
    needs=("processes", "syscalls"),
    build=_build,
    example="SELECT target, kind, sum(dur_ns)/1e9 s FROM write_waits GROUP BY ALL ORDER BY ALL",
)
"""Rows of one target and kind do not touch. The module says what is in them, and what is not."""
