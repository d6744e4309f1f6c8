"""The training threads' own time in system calls."""

from __future__ import annotations

from tracer.analysis.findings.finding import Finding, ask, finding, percent
from tracer.analysis.findings.finding import name as named
from tracer.analysis.findings.window import Scope, window
from tracer.analysis.views.waiting.gpu_waits import gpu_waits
from tracer.digits import counted
from tracer.probes.events.gpu_calls import TABLE as GPU_CALLS
from tracer.store.trace import Trace


def calls(trace: Trace) -> list[Finding]:
    """Returns the share of time that the training (or inferring) threads spend in system calls.

    The sentence names the call with the most time. The calls of one thread do not overlap, so the
    share is exact. A call counts if it begins in a stage of its own thread, and not between two of
    them, as in an evaluation. Calls within waits for a GPU do not count. Needs the tables syscalls
    and phases, with a stage marked.
    """
    over = window(trace)
    if over is None or not over.stage:
        return []
    rows, but = "syscalls", ""
    if not trace.is_empty(GPU_CALLS.name):
        gpu_waits(trace)
        rows, but = _OUTSIDE_GPU_WAITS, ", apart from waits for the GPU"
    answer = ask(
        trace,
        f"SELECT 100 * sum(sum(dur_ns)) OVER () / {over.ns} AS value, name,"
        f" 100 * sum(dur_ns) / {over.ns} AS of_most, sum(count(*)) OVER () AS calls"
        f" FROM (SELECT tid, ts, dur_ns, name FROM {rows} WHERE dur_ns >= 0 AND {over.holds()}"
        f" AND tid IN (SELECT tid FROM phase_times WHERE name = '{over.stage}')) c"
        f" JOIN ({over.stretches}) s ON c.tid = s.tid AND c.ts >= s.since AND c.ts < s.upto"
        " GROUP BY name ORDER BY sum(dur_ns) DESC, name LIMIT 1",
    )
    if answer is None:
        return []
    most = named(answer.row["name"], "an unknown call")
    sentence = (
        f"the {_THREAD[over.stage]} thread spends {percent(answer.value)} of {over.what} in system"
        f" calls ({counted(answer.count('calls'), 'call')}){but},"
        f" {percent(answer.number('of_most'))} in {most}{_MEANING.get(most, '')}"
    )
    weight = answer.value / 100
    return [finding(trace, over, (Scope.TARGET,), "calls", answer, sentence, "%", weight)]


_OUTSIDE_GPU_WAITS = """(
    SELECT c.* FROM syscalls c ASOF LEFT JOIN (
        SELECT tid, ts AS waits, ts + dur_ns AS ended FROM gpu_waits WHERE dur_ns IS NOT NULL
    ) g ON c.tid = g.tid AND c.ts >= g.waits
    WHERE coalesce(c.ts >= g.ended, true)
)"""
_THREAD = {"train": "training", "inference": "inferring"}
_MEANING = {
    "futex": ", where threads wait for each other",
    "poll": ", where it waits for a pipe or a socket, for example for a worker's batch",
    "select": ", where it waits for a pipe or a socket, for example for a worker's batch",
    "epoll_wait": ", where it waits for a pipe or a socket",
    "ioctl": ", where it controls a device, for example a GPU",
    "sched_yield": ", where it polls until other threads are done",
}
