"""Waits: the times in which a thread of a target did not run, with the cause of each.

Each interval of `off_cpu` is one wait or two: until the thread was woken, and from then until it
ran. A wait for a CPU that several threads had meanwhile is one for each of them
(`analysis/views/waiting/cpu_turns.py`). The waits of a thread never overlap; with the time on the
CPU they add up to its life.

The cause follows from the state of the thread, the system call that it slept in, the events in its
own context up to that moment, and whoever woke it:

- cpu: it could have run, but another thread had the CPU (`by_tid`). That is exact if a recorded
  thread had it all the time. It is inferred of other threads, since more of them may have had the
  CPU, and if the thread got another CPU than the one that it left, or may have been throttled.
  Without `by_tid`, the CPU was idle if the wait is exact, and nobody knows who had it if the wait
  is inferred, or several threads had it, each for a short time.
- throttled: it could have run, and the CPU was idle, but its cgroup had used up its CPU quota.
- dirty: the kernel put it to sleep for having dirtied pages (balance_dirty_pages).
- reclaim: it waited for memory that others had to give up, between the begin and the end of a
  reclaim. A begin whose end is missing counts until the system call or the fault is over in which
  it happened. If events were lost since it, it counts only if an end is the thread's next event of
  reclaim, and the wait is inferred.
- sync: a call that makes data durable, another call in which a file system syncs (a write to an
  O_SYNC file), or another call that waited for the journal's thread; or, after a call that unmounts
  returned, an uninterruptible sleep in no call without a fault's event (inferred), since the kernel
  writes out the file system before the thread runs on. A wait for the journal's thread is several
  rows, by what that thread did meanwhile (`analysis/views/waiting/sync_parts.py`), and a wait for
  data by whose data it was (`analysis/views/writing/data_owners.py`).
- fault: a major page fault; in user mode without a fault's event, an uninterruptible sleep that an
  interrupt ended.
- lock: futex, flock, fcntl (inferred, since it has other uses); or an uninterruptible sleep in
  another call that a thread ended, which is how a thread waits for a lock in the kernel. A futex
  that a timer ended is inferred: it may have been a sleep.
- timer: a sleep for a given time, or a poll or a wait for libaio that reached its time limit.
- child: wait4, waitid, or a clone that waits until its child runs a program.
- disk: an uninterruptible sleep in a call in which the thread queued a read at a device, or of a
  thread of an io_uring that has queued one since it slept last; in a call without a
  read of its own, one that an interrupt or a kernel thread ended. Also a wait for transfers of
  libaio, and one of io_uring in a call in which the thread queued a read, unless a thread of a
  program ended it.
- ipc: a call on a pipe, a socket, an event, or a message queue; or an open of a FIFO or a read at
  a place of a file (pread64), if a thread ended it. An interrupt ends
  a wait for a local socket of IP. If it came while a thread of a target was in a call that
  sends, or exited, it is inferred that this thread is the one that was waited for.
- gpu: a function of CUDA's driver that waits for the GPU (`gpu_waits`). A thread that spins there
  is on the CPU, and does not wait.
- frozen: an interruptible sleep outside of calls after a call that was interrupted, which is how a
  cgroup of version 2 stops its threads (inferred). `by_tid` thawed it.
- other: the events do not tell.

`certainty`: exact if events name the cause, or a call that waits for nothing else; inferred if
state and waker decide between several causes; unknown for the kind other. A wait of unknown length
(dur_ns null) did not end before the recording did, or events were lost meanwhile (inferred).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tracer.analysis.views.calls_around import LATEST, Calls, CallsAround, calls_of
from tracer.analysis.views.context import COLUMNS, make_in_context
from tracer.analysis.views.disks.requests import OPERATION
from tracer.analysis.views.lives import Lives, lives_of
from tracer.analysis.views.threads import make_threads, of_everybody, owns
from tracer.analysis.views.view import View, apart
from tracer.analysis.views.waiting.cpu_turns import Turns
from tracer.analysis.views.waiting.gpu_waits import GPU_MARKS, make_gpu_wait_rows
from tracer.analysis.views.waiting.sleeps import Marks, Sleeps, marks_of
from tracer.analysis.views.waiting.sync_parts import AWAITED
from tracer.analysis.views.waiting.throttled import split_throttled
from tracer.analysis.views.waiting.throttled_rests import split_rests
from tracer.analysis.views.waiting.wait_causes import Causes
from tracer.analysis.views.waiting.wait_rows import (
    CALL_CODE,
    CALLS,
    KINDS,
    fill_wait_tables,
    make_wait_events,
    make_wait_tables,
    split_syncs,
)
from tracer.analysis.views.waiting.waiting_lines import make_waiting_lines
from tracer.analysis.views.writing.data_owners import COLUMNS as OWNER_COLUMNS
from tracer.probes.schema import PID, TID, TS, Column, Type
from tracer.store.trace import Trace

VIEW = "waits"

LINE_COLUMNS = (
    Column(
        "line",
        Type.TEXT,
        "innermost Python function that waits and is not a library's (the innermost one if all "
        "are), as NAME (FILE:LINE); null: no look lies in this time off the CPU (tracer record "
        "--stacks looks 5 times a second)",
    ),
    Column(
        "stack",
        Type.TEXT,
        "all Python functions at the first such look, from the root, joined by ;",
    ),
    Column(
        "kernel_stack",
        Type.TEXT,
        "kernel functions in which it went to sleep, from the root, joined by ;, as in off_cpu "
        "(tracer record --stacks)",
    ),
)
"""Columns of a wait's place in Python code and in the kernel."""

# Evidence in the thread's own context.
_EVIDENCE = f"""
CREATE OR REPLACE TEMP TABLE wait_evidence AS
SELECT e.* FROM (
    -- The first of several bios at one time: that of the uppermost of stacked devices.
    SELECT tid, ts, 'read' AS what, arg_min(dev, row) AS detail FROM block_rows
    WHERE event = 'bio_queue' AND nr_sector > 0 AND {OPERATION} = 'read'
        AND tid IN (SELECT tid FROM waiting_threads)
    GROUP BY tid, ts
    UNION ALL
    SELECT tid, ts, 'flush', dev FROM block
    WHERE event = 'bio_queue' AND nr_sector = 0 AND starts_with(rwbs, 'F')
    UNION ALL
    SELECT tid, ts, if(event = 'fast_commit_start', 'fast commit', 'sync'), event FROM file_writes
    WHERE event IN ('fsync_start', 'fsync', 'fast_commit_start')
    UNION ALL
    SELECT tid, ts, 'dirty', dev FROM dirty WHERE event = 'balance_dirty_pages' AND pause_ns > 0
    UNION ALL
    SELECT tid, ts, 'fault', file FROM page_faults WHERE kind = 'major'
    UNION ALL
    -- The last of several events at one time.
    SELECT tid, ts, if(ends_with(arg_max(event, row), '_begin'), 'reclaim', 'reclaimed'), NULL
    FROM reclaim_rows WHERE ends_with(event, '_begin') OR ends_with(event, '_end')
    GROUP BY tid, ts
) e SEMI JOIN waiting_threads o ON {owns("o", "e")}
"""

_IN_CALLS = ("read", "sync", "flush", "fast commit")
"""Evidence that tells of the call that it lies in."""

_OF_CALLS = f"""
SELECT e.tid::BIGINT AS tid, c.entered AS ts,
    min(e.ts) FILTER (what = 'read') AS read_ns,
    arg_min(n.code, e.ts) FILTER (what = 'read') AS device,
    min(e.ts) FILTER (what = 'sync') AS sync_ns, min(e.ts) FILTER (what = 'flush') AS flush_ns,
    min(e.ts) FILTER (what = 'sync' AND detail = 'fsync_start') AS ext4_ns,
    min(e.ts) FILTER (what = 'fast commit') AS commit_ns
FROM wait_evidence e JOIN calls_at_evidence c ON e.tid = c.tid AND e.ts = c.ts
LEFT JOIN wait_names n ON e.detail = n.name
WHERE what IN {_IN_CALLS} GROUP BY ALL ORDER BY 1, 2
"""
"""Evidence by the calls that it lies in, and the calls' times of entry."""

_WAKES = """
SELECT DISTINCT waker_tid::BIGINT AS tid, wake_ns AS ts FROM off_cpu
WHERE interrupt AND starts_with(state, 'S') AND wake_ns IS NOT NULL
    AND waker_tid IN (SELECT tid FROM waiting_threads)
ORDER BY ALL
"""
"""Moments at which an interrupt woke a thread in the context of one of a target."""

# The kernel logs the exit of a thread before it closes its files, and of a process the last thread
# to exit closes them, whatever ended it.
_AT_WAKES = f"""
SELECT tid, ts, bool_or(sent) AS sent, bool_or(received) AS received FROM (
    SELECT tid, ts, is_sending AS sent, is_receiving AS received
    FROM calls_at_wakes JOIN wait_calls USING (code)
    UNION ALL
    SELECT w.tid, w.ts, true, false FROM ({_WAKES}) w JOIN threads o ON {owns("o", "w")}
    WHERE o.ended <= w.ts
) WHERE sent OR received GROUP BY tid, ts ORDER BY tid, ts
"""

# Kernel: io_wq_worker, io_sq_thread.
_OF_URING = (
    "(SELECT * FROM waiting_threads"
    " WHERE starts_with(comm, 'iou-wrk-') OR starts_with(comm, 'iou-sqp-'))"
)

_MARKS = (
    "SELECT tid::BIGINT AS tid, ts, ts AS fault_ns, arg_max(n.code, ts) AS file FROM wait_evidence"
    " LEFT JOIN wait_names n ON detail = n.name WHERE what = 'fault' GROUP BY ALL ORDER BY 1, 2",
    "SELECT tid::BIGINT AS tid, ts, ts AS pause_ns, any_value(n.code) AS dirtied FROM wait_evidence"
    " LEFT JOIN wait_names n ON detail = n.name WHERE what = 'dirty' GROUP BY ALL ORDER BY 1, 2",
    "SELECT tid::BIGINT AS tid, ts, ts AS reclaim_ns, what = 'reclaim' AS begins,"
    " coalesce(lead(what) OVER (PARTITION BY tid ORDER BY ts) = 'reclaimed', false) AS ends"
    " FROM wait_evidence WHERE what IN ('reclaim', 'reclaimed') ORDER BY 1, 2",
    GPU_MARKS,
    # A thread of an io_uring makes no calls. It waits for a read that it has queued since it slept.
    f"SELECT e.tid::BIGINT AS tid, e.ts, e.ts AS own_read_ns, any_value(n.code) AS own_device"
    f" FROM wait_evidence e JOIN {_OF_URING} o ON {owns('o', 'e')}"
    " LEFT JOIN wait_names n ON detail = n.name WHERE what = 'read' GROUP BY ALL ORDER BY 1, 2",
    f"SELECT s.tid::BIGINT AS tid, s.ts + s.dur_ns AS ts, s.ts + s.dur_ns AS slept_ns"
    f" FROM off_cpu s JOIN {_OF_URING} o ON {owns('o', 's')}"
    " WHERE s.dur_ns >= 0 AND NOT starts_with(s.state, 'R') GROUP BY ALL ORDER BY 1, 2",
)
"""Evidence of which the last one up to a time counts."""

# The times between two readings in which a target's cgroup was throttled. The first reading has the
# counter alone, and no rate.
_QUOTAS = f"""
CREATE OR REPLACE TEMP TABLE throttled_times AS
SELECT target, since, ts AS upto, value / 100 * {apart("ts", "since")} AS throttled_ns FROM (
    SELECT target, ts, max(value) FILTER (name = 'cgroup_throttled') AS value,
        lag(ts) OVER (PARTITION BY target ORDER BY ts) AS since
    FROM samples WHERE target IS NOT NULL
        AND (name = 'cgroup_throttled' OR name = 'cgroup_throttled_time')
    GROUP BY target, ts
) WHERE value > 0 AND since IS NOT NULL
"""

# For what is rare: few traces have times in which a quota was used up, or looks at stacks.
_SLEEPS = f"""
CREATE OR REPLACE TEMP VIEW sleeps AS
SELECT s.row, s.ts, if(s.dur_ns >= 0, s.dur_ns, NULL) AS dur_ns, s.pid, s.tid
FROM off_cpu_rows s SEMI JOIN waiting_threads o ON {owns("o", "s")}
"""

_ON_THE_WAY = ("waiting_threads", "wait_evidence", "calls_at_evidence", "throttled_times")


def _build(trace: Trace) -> None:
    for table in (
        *("syscalls", "block", "file_writes", "dirty", "page_faults", "reclaim", "samples", "loss"),
    ):
        trace.empty_if_missing(table)
    make_threads(trace)
    make_gpu_wait_rows(trace)
    # A thread of several targets has no name of one.
    trace.execute(
        "CREATE OR REPLACE TEMP TABLE waiting_threads AS FROM threads"
        f" WHERE target IS NOT NULL OR coalesce(job, false) OR {of_everybody(trace)}"
    )
    trace.execute(_EVIDENCE)
    make_wait_tables(trace)
    trace.execute(_QUOTAS)
    turns = _make_parts(trace)
    trace.execute(_SLEEPS)
    split_throttled(trace)
    split_rests(trace, turns)
    del turns
    split_syncs(trace)
    make_waiting_lines(trace)
    make_wait_events(trace)
    trace.execute("DROP VIEW sleeps")
    trace.drop(*_ON_THE_WAY)
    make_in_context(trace, "wait_events", VIEW)


def _make_parts(trace: Trace) -> Turns:
    """Fills the tables of waits, with those of each interval, and returns the turns."""
    count = trace.rows("SELECT count(*) FROM threads")[0][0]
    waiting = np.zeros(count, np.bool_)
    waiting[trace.arrow("SELECT life - 1 AS at FROM waiting_threads")["at"].to_numpy()] = True
    turns = Turns(trace, lives_of(trace))
    sleeps = Sleeps(trace, waiting)
    of_wakers = _see_calls(trace, sleeps)
    marks = [marks_of(trace, sleeps.lives, query) for query in _MARKS]
    causes = Causes(trace)
    batches = sleeps.batches(marks, marks_of(trace, sleeps.lives, _OF_CALLS), of_wakers)
    fill_wait_tables(trace, (turns.split(causes.parts(rows)) for rows in batches))
    return turns


def _see_calls(trace: Trace, sleeps: Sleeps) -> Marks:
    """Finds the calls around sleeps and evidence, and makes the table calls_at_evidence.

    Its columns: tid, ts, entered (ns) of the call that the evidence lies in. Returns what threads
    of the targets did as an interrupt in their context woke others: `sent`, `received`.
    """
    evidence = _Moments(
        trace,
        sleeps.lives,
        "SELECT DISTINCT tid::BIGINT AS tid, ts FROM wait_evidence"
        f" WHERE what IN {_IN_CALLS} ORDER BY ALL",
    )
    wakes = _Moments(trace, sleeps.lives, _WAKES)
    for calls in calls_of(trace, sleeps.lives, CALL_CODE, source=CALLS, results=True):
        sleeps.see(calls)
        evidence.see(calls)
        wakes.see(calls)
    sleeps.close()
    evidence.close()
    wakes.close()
    trace.keep("calls_at_evidence", evidence.calls.select(["tid", "ts", "entered"]))
    with trace.lent("calls_at_wakes", wakes.calls):
        return marks_of(trace, sleeps.lives, _AT_WAKES)


class _Moments:
    """Moments of threads, and the calls that they lie in."""

    def __init__(self, trace: Trace, lives: Lives, query: str) -> None:
        """`query` gives tid and ts, in this order."""
        found = trace.arrow(query)
        self._tid, self._ts = (found[column].to_numpy() for column in ("tid", "ts"))
        self._around = CallsAround(lives.of(self._tid, self._ts), self._ts, after=False)
        self._call = np.full(len(self._ts), -1, np.int32)

    def see(self, calls: Calls) -> None:
        """Takes a batch of calls into account."""
        found, rows = self._around.see(calls)
        self._call[found] = calls.what.to_numpy()[rows]

    def close(self) -> None:
        """Makes the table `calls`: tid, ts, and entered (ns) and code of the call at that time."""
        around = self._around
        call = self._call[around.close()]
        inside = np.flatnonzero((around.entered > -LATEST) & (self._ts <= around.returned))
        columns = {"tid": self._tid, "ts": self._ts, "entered": around.entered, "code": call}
        self.calls = pa.table({name: column[inside] for name, column in columns.items()})


WAITS = View(
    VIEW,
    "One row per wait of a target's thread (of any thread, if the whole machine was recorded or the"
    " trace names no target), in no order. The waits of a thread never overlap.",
    (
        TS,
        Column("dur_ns", Type.INT64, "how long; null: not known", "ns"),
        PID,
        TID,
        Column("kind", Type.TEXT, f"cause: {', '.join(KINDS)}"),
        Column(
            "detail",
            Type.TEXT,
            "device of the call's first read, file of the fault, or function of CUDA's driver; "
            "sync, if it is known: "
            + ", ".join(f"{part} ({words})" for part, words in AWAITED.items()),
        ),
        Column("call", Type.TEXT, "system call that it waited in; null: in none, or not known"),
        Column("state", Type.TEXT, "state of the thread, as in off_cpu; R: woken, but not running"),
        Column("by_pid", Type.INT32, "process that it waited for"),
        Column(
            "by_tid",
            Type.INT32,
            "thread that it waited for: that woke it, or (kind cpu) that had the CPU meanwhile; "
            "null: an interrupt woke it (for a local socket, the sender is named if it is known), "
            "the CPU was idle (kind cpu, exact), or it is not known",
        ),
        Column("by_comm", Type.TEXT, "name of that thread"),
        Column("by_target", Type.TEXT, "target of that thread; null: none"),
        Column("by_container", Type.TEXT, "container of that thread, by its id"),
        Column("certainty", Type.TEXT, "exact, inferred or unknown: how the cause is known"),
        *OWNER_COLUMNS,
        *LINE_COLUMNS,
        *COLUMNS,
    ),
    needs=("processes", "off_cpu"),
    build=_build,
    example="SELECT phase, kind, by_comm, sum(dur_ns)/1e9 s FROM waits GROUP BY ALL ORDER BY 4",
)


def waits(trace: Trace) -> str:
    """Makes the view `waits` and returns its name. Columns and units: `WAITS`."""
    return WAITS.make(trace)
