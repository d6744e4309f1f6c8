"""Waits: the times in which a thread of a target did not run, with the cause of each.

Each interval of `off_cpu` is one wait or two: until the thread was woken, and from then until it
ran. The waits of a thread never overlap; with the time on the CPU they add up to its life.

The cause follows from the state of the thread, the system call that it slept in, the events in its
own context up to that moment, and whoever woke it:

- cpu: it could have run, but another thread had the CPU (`by_tid`; null: the CPU was idle).
- throttled: it could have run, and the CPU was idle, but its cgroup had used up its CPU quota.
- dirty: the kernel put it to sleep for having dirtied pages (balance_dirty_pages).
- reclaim: it waited for memory that others had to give up.
- sync: a call that makes data durable, another call in which a file system syncs (a write to an
  O_SYNC file), or another call that waited for the journal's thread. A wait for the journal's
  thread is several rows, by what that thread did meanwhile (`analysis/views/sync_parts.py`), and a
  wait for data by whose data it was (`analysis/views/data_owners.py`).
- fault: a major page fault; in user mode without a fault's event, an uninterruptible sleep that an
  interrupt ended.
- lock: futex; or an uninterruptible sleep in another call that a thread ended, which is how a
  thread waits for a lock in the kernel.
- timer: a sleep for a given time, or a poll that reached its time limit.
- child: wait4, waitid, or a clone that waits until its child runs a program.
- disk: an uninterruptible sleep in a call in which the thread queued a read at a device; without a
  read of its own, one that an interrupt or a kernel thread ended.
- ipc: a call on a pipe, a socket, an event, or a message queue.
- other: the events do not tell.

`certainty`: exact if events name the cause, inferred if it follows from state, call and waker,
unknown for the kind other. A wait of unknown length (dur_ns null) did not end before the recording
did, or events were lost meanwhile.
"""

from __future__ import annotations

from tracer.analysis.views.calls_around import LATEST, make_calls_before
from tracer.analysis.views.calls_by_kind import READ, SYNC, WRITE
from tracer.analysis.views.context import COLUMNS, make_in_context
from tracer.analysis.views.data_owners import COLUMNS as OWNER_COLUMNS
from tracer.analysis.views.requests import OPERATION
from tracer.analysis.views.sync_parts import AWAITED, FLUSH, JOURNAL, PAGES, split
from tracer.analysis.views.threads import make_threads, owns
from tracer.analysis.views.throttled import LEAST_NS, split_throttled
from tracer.analysis.views.view import View, apart
from tracer.analysis.views.waiting_lines import make_waiting_lines
from tracer.probes.schema import PID, TID, TS, Column, Type
from tracer.store.trace import Trace

VIEW = "waits"

KINDS = (
    *("cpu", "throttled", "dirty", "reclaim", "sync", "fault", "lock", "timer", "child", "disk"),
    *("ipc", "other"),
)
"""All kinds of waits."""

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
        "(tracer record --stacks; null with the backend perf)",
    ),
)
"""Columns of a wait's place in Python code and in the kernel."""

LOCK = ("futex", "futex_wait", "futex_waitv")
TIMER = ("nanosleep", "clock_nanosleep")
CHILD = ("wait4", "waitid", "vfork", "clone", "clone3")
POLL = (
    *("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"),
    *("rt_sigtimedwait", "recvmmsg", "mq_timedreceive", "mq_timedsend", "semtimedop"),
)
"""Calls that wait for another process, with a time limit."""
IPC = (
    *POLL, *READ, *WRITE, "readv", "vmsplice", "tee",
    *("accept", "accept4", "connect", "recvfrom", "recvmsg", "sendto", "sendmsg", "sendmmsg"),
    *("msgrcv", "msgsnd", "semop", "rt_sigsuspend", "pause"),
)  # fmt: skip
"""Calls that wait for another process, if the sleep can be interrupted."""

_EVIDENCE = f"""
CREATE OR REPLACE TEMP TABLE wait_evidence AS
SELECT e.* FROM (
    SELECT tid, ts, 'read' AS what, dev AS detail FROM block
    WHERE event = 'bio_queue' AND nr_sector > 0 AND {OPERATION} = 'read'
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

_SLEEPS = f"""
CREATE OR REPLACE TEMP TABLE sleeps AS
SELECT s.row, s.ts, if(s.dur_ns >= 0, s.dur_ns, NULL) AS dur_ns, s.pid, s.tid, s.state,
    s.wake_ns, s.waker_tid, s.interrupt, s.run_delay_ns, s.ran_tid,
    lag(s.ts::HUGEINT + coalesce(s.dur_ns, 0)) OVER (PARTITION BY s.tid ORDER BY s.ts, s.row)
        AS since
FROM off_cpu_rows s SEMI JOIN waiting_threads o ON {owns("o", "s")}
"""

_MOMENTS = "SELECT tid, ts FROM sleeps UNION ALL SELECT tid, ts FROM wait_evidence"

# The call around each sleep and each piece of evidence; null: in no call, or the call is not known.
_PLACED = f"""
CREATE OR REPLACE TEMP TABLE {{table}}_in_calls AS
SELECT m.*, c.ts AS before, if(m.ts <= c.returned, c.ts, NULL) AS entered,
    if(m.ts <= c.returned, c.call, NULL) AS call, nullif(c.returned, {LATEST}) AS returned
FROM {{table}} m ASOF LEFT JOIN calls_at_waits c ON m.tid = c.tid AND m.ts >= c.ts
"""

_POLLS = f"""
CREATE OR REPLACE TEMP TABLE poll_results AS
SELECT s.tid, s.ts AS entered, arg_max(s.ret, s.dur_ns) AS ret FROM syscalls s
SEMI JOIN (SELECT tid, entered FROM sleeps_in_calls WHERE call IN {POLL}) c
    ON s.tid = c.tid AND s.ts = c.entered
GROUP BY ALL
"""

_TOLD = """
CREATE OR REPLACE TEMP TABLE told_sleeps AS
WITH of_calls AS (
    SELECT tid, entered, min(ts) FILTER (what = 'read') AS read_ns,
        arg_min(detail, ts) FILTER (what = 'read') AS device,
        min(ts) FILTER (what = 'sync') AS sync_ns, min(ts) FILTER (what = 'flush') AS flush_ns,
        min(ts) FILTER (what = 'sync' AND detail = 'fsync_start') AS ext4_ns,
        min(ts) FILTER (what = 'fast commit') AS commit_ns
    FROM wait_evidence_in_calls WHERE entered IS NOT NULL GROUP BY ALL
), faults AS (
    SELECT tid, ts, arg_max(detail, ts) AS detail FROM wait_evidence WHERE what = 'fault'
    GROUP BY ALL
), pauses AS (
    SELECT tid, ts, any_value(detail) AS detail FROM wait_evidence WHERE what = 'dirty' GROUP BY ALL
), reclaiming AS (
    SELECT tid, ts, what = 'reclaim' AS begins FROM wait_evidence
    WHERE what IN ('reclaim', 'reclaimed')
)
SELECT s.*, e.read_ns <= s.ts AS reads, e.device, e.sync_ns <= s.ts AS syncs,
    e.flush_ns <= s.ts AS flushes, e.ext4_ns <= s.ts AS on_ext4, e.commit_ns <= s.ts AS commits,
    r.ret,
    -- A fault lasts until the call that it happened in returns, or until the next call.
    f.ts >= coalesce(s.entered, s.returned, s.since, f.ts) AS faults, f.detail AS file,
    d.ts >= coalesce(greatest(s.since, s.entered), s.entered, s.since, d.ts) AS pauses,
    d.detail AS dirtied, coalesce(m.begins, false) AS reclaims,
    state IS NULL OR contains(state, 'D') AS deep, s.before IS NOT NULL AS calls_known
FROM sleeps_in_calls s
LEFT JOIN of_calls e ON s.tid = e.tid AND s.entered = e.entered
LEFT JOIN poll_results r ON s.tid = r.tid AND s.entered = r.entered
ASOF LEFT JOIN faults f ON s.tid = f.tid AND s.ts >= f.ts
ASOF LEFT JOIN pauses d ON s.tid = d.tid AND s.ts >= d.ts
ASOF LEFT JOIN reclaiming m ON s.tid = m.tid AND s.ts >= m.ts
"""

# Thread 0 is the idle thread of a CPU.
_BY_KERNEL = "coalesce(w.kernel, waker_tid = 0)"

_KIND = f"""
CASE
    WHEN state IS NULL THEN 'other'
    WHEN state = 'new' OR starts_with(state, 'R') THEN 'cpu'
    WHEN pauses THEN 'dirty'
    WHEN reclaims THEN 'reclaim'
    WHEN call IN {SYNC} OR syncs THEN 'sync'
    -- A fault that writes to a mapped file waits for the journal, too.
    WHEN deep AND w.role = 'journal' AND (interrupt = false OR reads IS NOT TRUE) THEN 'sync'
    WHEN call IS NULL THEN
        CASE WHEN faults THEN 'fault' WHEN NOT deep OR NOT calls_known THEN 'other'
            WHEN interrupt THEN 'fault' WHEN interrupt = false THEN 'lock' ELSE 'other' END
    WHEN call IN {LOCK} THEN 'lock'
    WHEN call IN {TIMER} THEN 'timer'
    WHEN call IN {CHILD} THEN 'child'
    WHEN call IN {POLL} AND ret = 0 AND interrupt IS DISTINCT FROM false THEN 'timer'
    WHEN deep AND reads THEN 'disk'
    WHEN deep AND faults THEN 'fault'
    WHEN deep AND interrupt = false AND NOT {_BY_KERNEL} THEN 'lock'
    WHEN deep AND wake_ns IS NOT NULL THEN 'disk'
    WHEN call IN {IPC} AND NOT deep THEN 'ipc'
    ELSE 'other'
END
"""

# ext4 writes the file's pages, waits for the journal, and then has the device empty its cache. A
# fast commit is written by the thread itself.
_PART_OF_SYNC = f"""
CASE
    WHEN w.role = 'journal' THEN '{JOURNAL}'
    WHEN NOT deep OR interrupt = false AND NOT {_BY_KERNEL} THEN NULL
    WHEN flushes AND w.role IS DISTINCT FROM 'flusher' THEN '{FLUSH}'
    WHEN commits THEN '{JOURNAL}'
    WHEN on_ext4 THEN '{PAGES}'
END
"""

_CERTAINTY = f"""
CASE
    WHEN kind = 'other' THEN 'unknown'
    WHEN kind IN ('cpu', 'dirty', 'reclaim', 'timer', 'child') THEN 'exact'
    WHEN kind = 'sync' AND (call IN {SYNC} OR syncs) THEN 'exact'
    WHEN kind = 'fault' AND faults OR kind = 'disk' AND reads THEN 'exact'
    WHEN kind = 'lock' AND call IN {LOCK} THEN 'exact'
    WHEN kind = 'ipc' AND interrupt = false THEN 'exact'
    ELSE 'inferred'
END
"""

# The times between two readings in which a target's cgroup was throttled.
_QUOTAS = f"""
CREATE OR REPLACE TEMP TABLE throttled_times AS
SELECT target, since, ts AS upto, value / 100 * {apart("ts", "since")} AS throttled_ns FROM (
    SELECT target, ts, max(value) AS value,
        lag(ts) OVER (PARTITION BY target ORDER BY ts) AS since
    FROM samples WHERE name = 'cgroup_throttled' AND target IS NOT NULL GROUP BY target, ts
) WHERE value > 0 AND since IS NOT NULL
"""

# An interrupt wakes on behalf of nobody. Where interrupts cannot be told from threads, only the
# calls that threads end name the waker.
_BY_WAKER = """
waker_tid > 0 AND (interrupt = false OR interrupt IS NULL
    AND (kind IN ('lock', 'ipc', 'child') OR kind = 'sync' AND by_journal))
"""

_PARTS = f"""
CREATE OR REPLACE TEMP TABLE wait_parts AS
WITH kinds AS (
    SELECT s.*, {_KIND} AS kind, {_PART_OF_SYNC} AS part,
        coalesce(w.role = 'journal', false) AS by_journal
    FROM told_sleeps s
    LEFT JOIN threads w ON {owns("w", "s", "waker_tid", "ts")} AND NOT coalesce(interrupt, false)
), causes AS (
    SELECT *, {_CERTAINTY} AS certainty,
        CASE kind WHEN 'disk' THEN if(reads, device, NULL) WHEN 'fault' THEN if(faults, file, NULL)
            WHEN 'dirty' THEN dirtied WHEN 'sync' THEN part END AS detail,
        CASE WHEN kind != 'cpu' AND run_delay_ns > 0 AND run_delay_ns <= dur_ns
            THEN run_delay_ns END AS delay
    FROM kinds
)
SELECT row, ts, {apart("dur_ns", "coalesce(delay, 0)")} AS dur_ns, pid, tid, kind, detail, call,
    state, CASE WHEN kind = 'cpu' THEN nullif(ran_tid, 0)
        WHEN {_BY_WAKER} THEN waker_tid END AS by_tid, certainty
FROM causes WHERE delay IS NULL OR delay < dur_ns
UNION ALL
SELECT row, wake_ns, delay, pid, tid, 'cpu', NULL, call, 'R', nullif(ran_tid, 0), 'exact'
FROM causes WHERE delay IS NOT NULL
"""

_WAITS = f"""
CREATE OR REPLACE TEMP TABLE wait_events AS
WITH late AS (  -- An idle CPU takes a thread that can run at once, unless its cgroup may not run.
    SELECT p.row, p.ts, o.target, {apart("p.ts", f"-{LEAST_NS}")} AS moment
    FROM wait_parts p JOIN threads o ON {owns("o", "p")}
    WHERE p.kind = 'cpu' AND p.by_tid IS NULL AND p.dur_ns >= {LEAST_NS}
), throttled AS (
    SELECT l.row, l.ts FROM late l
    ASOF JOIN throttled_times q ON l.target = q.target AND l.moment <= q.upto
    WHERE l.moment >= q.since
)
SELECT p.ts, p.dur_ns, p.pid, p.tid, if(t.row IS NULL, p.kind, 'throttled') AS kind, p.detail,
    p.call, p.state, b.pid AS by_pid, p.by_tid, b.comm AS by_comm, b.target AS by_target,
    b.container AS by_container, if(t.row IS NULL, p.certainty, 'inferred') AS certainty,
    d.for_pid, d.for_comm, d.for_target, d.for_container, l.line, l.stack, k.kernel_stack
FROM wait_parts p LEFT JOIN throttled t ON p.row = t.row AND p.ts = t.ts
LEFT JOIN waiting_lines l ON p.row = l.row
LEFT JOIN (SELECT row, kernel_stack FROM off_cpu_rows WHERE kernel_stack IS NOT NULL) k
    ON p.row = k.row
LEFT JOIN data_owners d ON p.row = d.row AND p.ts = d.ts AND p.detail = 'data'
LEFT JOIN threads b ON {owns("b", "p", "by_tid", "ts")}
ORDER BY p.ts, p.tid, p.row
"""

_ON_THE_WAY = (
    *("waiting_threads", "wait_evidence", "sleeps", "calls_at_waits", "sleeps_in_calls"),
    *("wait_evidence_in_calls", "poll_results", "told_sleeps", "throttled_times", "wait_parts"),
    *("waiting_lines", "data_owners"),
)


def _build(trace: Trace) -> None:
    for table in (
        *("syscalls", "block", "file_writes", "dirty", "page_faults", "reclaim", "samples"),
    ):
        trace.empty_if_missing(table)
    make_threads(trace)
    trace.execute(
        "CREATE OR REPLACE TEMP TABLE waiting_threads AS FROM threads WHERE target IS NOT NULL"
        f" OR {str(not trace.manifest['targets']).lower()}"
    )
    trace.execute(_EVIDENCE)
    trace.execute(_SLEEPS)
    make_calls_before(trace, {"calls_at_waits": _MOMENTS})
    for table in ("sleeps", "wait_evidence"):
        trace.execute(_PLACED.format(table=table))
    trace.execute(_POLLS)
    trace.execute(_TOLD)
    trace.execute(_QUOTAS)
    trace.execute(_PARTS)
    split(trace)
    split_throttled(trace)
    make_waiting_lines(trace)
    trace.execute(_WAITS)
    for table in _ON_THE_WAY:
        trace.execute(f"DROP TABLE {table}")
    make_in_context(trace, "wait_events", VIEW)


WAITS = View(
    VIEW,
    "One row per wait of a target's thread. The waits of a thread never overlap.",
    (
        TS,
        Column("dur_ns", Type.INT64, "how long; null: not known", "ns"),
        PID,
        TID,
        Column("kind", Type.TEXT, f"cause: {', '.join(KINDS)}"),
        Column(
            "detail",
            Type.TEXT,
            "device of the read, or file of the fault; sync, if it is known: "
            + ", ".join(f"{part} ({words})" for part, words in AWAITED.items()),
        ),
        Column("call", Type.TEXT, "system call that it waited in; null: in none, or not known"),
        Column("state", Type.TEXT, "state of the thread, as in off_cpu; R: woken, but not running"),
        Column("by_pid", Type.INT32, "process that it waited for"),
        Column(
            "by_tid",
            Type.INT32,
            "thread that it waited for: that woke it, or (kind cpu) that had the CPU before it; "
            "null: an interrupt woke it, the CPU was idle, or it is not known",
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
