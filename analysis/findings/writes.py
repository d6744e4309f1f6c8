"""What waiting for writes costs a training: the sleeps that the kernel imposes, and a ceiling."""

from __future__ import annotations

from analysis.findings.finding import AT_MOST, Finding, ask, finding, percent, seconds
from analysis.findings.window import JOBS, Scope, Window, window
from analysis.views.calls_by_kind import ENDINGS, SYNC, WRITE
from tracer.store.trace import Trace

CEILING = "write waits"
_LONG_NS = 100_000_000
_THREADS = 1 << 22
"""No kernel has more: PID_MAX_LIMIT of include/linux/threads.h."""

_SLOT = f"(ts // {_LONG_NS} * {_THREADS} + tid)"

# Of many calls only those are put in order that can hold a pause: those that are long, or began
# within as long before it. One number stands for thread and time, which is joined fast.
_OUTSIDE = (
    "(WITH pauses AS (SELECT ts, tid, pause_ns FROM dirty WHERE {pauses}),"
    f" near AS (SELECT unnest([{_SLOT}, {_SLOT} - {_THREADS}]) AS slot FROM pauses)"
    " SELECT sum(pause_ns) FROM pauses p ASOF LEFT JOIN (SELECT ts, tid, {spent} AS ns"
    " FROM syscalls WHERE {calls}"
    f" AND ({{spent}} >= {_LONG_NS} OR {_SLOT} IN (SELECT slot FROM near))) c"
    " ON p.tid = c.tid AND p.ts >= c.ts WHERE c.ts IS NULL OR p.ts - c.ts > c.ns)"
)
"""SQL: the time of pauses that are in none of the calls."""
_BOTH = (Scope.TARGET, Scope.MACHINE)


def writes(trace: Trace) -> list[Finding]:
    """How much of the training waiting for writes can take, and write-back stalls in it.

    The ceiling is all that the jobs' threads spent in calls that write, sync, close, rename,
    truncate or remove files, copying and pipes among it, and the stalls outside of these calls
    (pages that were dirtied through a mapping). Threads that wait at the same time add up. What is
    not in it: reads that queue behind writes.

    Needs tables dirty, syscalls, processes.
    """
    over = window(trace)
    if over is None:
        return []
    stalls = _stalls(trace, over)
    return [*_ceiling(trace, over, bool(stalls)), *stalls]


def _ceiling(trace: Trace, over: Window, stalled: bool) -> list[Finding]:
    calls = f"name IN {(*WRITE, *SYNC, *ENDINGS)} AND {over.holds()} AND tid IN {JOBS}"
    pauses = f"event = 'balance_dirty_pages' AND pause_ns > 0 AND {over.holds()} AND tid IN {JOBS}"
    spent = f"coalesce(dur_ns, {over.end} - ts)"
    # Without a pause there is none outside of the calls, and one look at them will do.
    outside = _OUTSIDE.format(pauses=pauses, calls=calls, spent=spent) if stalled else "NULL"
    answer = ask(
        trace,
        f"SELECT 100 * least(1, (coalesce(calls_ns, 0) + coalesce(outside_ns, 0)) / {over.ns})"
        " AS value, calls_ns / 1e9 AS calls_s, outside_ns / 1e9 AS stalls_s FROM (SELECT"
        f" (SELECT sum(greatest({spent}, 0)) FROM syscalls WHERE {calls}) AS calls_ns,"
        f" {outside} AS outside_ns)",
    )
    if answer is None:
        return []
    sentence = (
        f"waiting for writes takes at most {percent(answer.value)} of {over.what}"
        f" ({seconds(answer.number('calls_s'))} in calls that write, sync or close files):"
        " a faster disk or a flush layer cannot save more of it, but for reads behind writes"
    )
    weight = answer.value / 100
    found = finding(trace, over, _BOTH, CEILING, answer, sentence, "%", weight, AT_MOST)
    return [found]


def _stalls(trace: Trace, over: Window) -> list[Finding]:
    answer = ask(
        trace,
        f"SELECT 100 * least(1, sum(pause_ns) / {over.ns}) AS value, sum(pause_ns) / 1e9 AS s,"
        " count(*) AS stalls FROM dirty WHERE event = 'balance_dirty_pages' AND pause_ns > 0"
        f" AND {over.holds()} AND tid IN {JOBS} HAVING count(*) > 0",
    )
    if answer is None:
        return []
    sentence = (
        f"write-back stalls account for at most {percent(answer.value)} of {over.what}: the kernel"
        f" put the job to sleep {answer.count('stalls'):,} times, {seconds(answer.number('s'))} in"
        " all, because it dirtied pages faster than they were written (write less, write from"
        " another process, or raise vm.dirty_ratio)"
    )
    machine = (Scope.MACHINE,)
    weight = answer.value / 100
    return [finding(trace, over, machine, "stalls", answer, sentence, "%", weight, AT_MOST)]
