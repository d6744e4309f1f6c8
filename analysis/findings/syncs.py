"""What making data durable costs a training: fsync and the like, and checkpoints."""

from __future__ import annotations

from analysis.findings.finding import AT_MOST, Finding, ask, finding, percent, seconds
from analysis.findings.finding import name as named
from analysis.findings.window import Scope, of_jobs, window
from analysis.views.calls_by_kind import SYNC
from tracer.store.trace import Trace

_TARGET = (Scope.TARGET,)


def syncs(trace: Trace) -> list[Finding]:
    """The jobs' time in fsync, fdatasync, sync, syncfs, msync and sync_file_range.

    At most, since threads that wait at the same time add up, and the training may go on meanwhile.
    Needs tables syscalls, processes.
    """
    over = window(trace)
    if over is None:
        return []
    answer = ask(
        trace,
        f"SELECT 100 * least(1, sum(sum(dur_ns)) OVER () / {over.ns}) AS value, name,"
        " sum(sum(dur_ns)) OVER () / 1e9 AS s, sum(count(*)) OVER () AS calls"
        f" FROM {of_jobs(trace, 'syscalls')}"
        f" WHERE name IN {SYNC} AND dur_ns >= 0 AND {over.holds()}"
        " GROUP BY name ORDER BY sum(dur_ns) DESC, name LIMIT 1",
    )
    if answer is None:
        return []
    calls, total = answer.count("calls"), answer.number("s")
    sentence = (
        f"making data durable ({named(answer.row['name'])} and the like) takes at most"
        f" {percent(answer.value)} of {over.what}: {calls:,} calls of {seconds(total / calls)} on"
        " average (sync less often, or from a thread that the training does not wait for)"
    )
    weight = answer.value / 100
    return [finding(trace, over, _TARGET, "sync", answer, sentence, "%", weight, AT_MOST)]


def checkpoints(trace: Trace) -> list[Finding]:
    """The share of the training in checkpoints, nested ones counted once. Needs table phases."""
    over = window(trace)
    if over is None:
        return []
    answer = ask(
        trace,
        f"SELECT 100 * sum(greatest(0, ended - greatest(start, coalesce(before, start)))) /"
        f" {over.ns} AS value, count(*) FILTER (before IS NULL OR ended > before) AS checkpoints,"
        " sum(greatest(0, ended - greatest(start, coalesce(before, start)))) / 1e9 AS s FROM"
        ' (SELECT start, "end" AS ended, max("end") OVER (PARTITION BY pid, tid ORDER BY start,'
        ' "end" DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM phases'
        f" WHERE name = 'checkpoint' AND \"end\" > start AND {over.holds('start')})",
    )
    if answer is None or not answer.count("checkpoints"):
        return []
    made, total = answer.count("checkpoints"), answer.number("s")
    sentence = (
        f"checkpoints take {percent(answer.value)} of {over.what}: {made:,} of"
        f" {seconds(total / made)} on average (save less often, or from another thread)"
    )
    weight = answer.value / 100
    # Marks are no events of the kernel's: none are lost with these.
    return [finding(trace, over, (), "checkpoints", answer, sentence, "%", weight)]
