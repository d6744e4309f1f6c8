"""Findings about making data durable: sync calls (fsync and similar) and checkpoints."""

from __future__ import annotations

from tracer.analysis.findings.finding import AT_MOST, Finding, ask, finding, percent, seconds
from tracer.analysis.findings.finding import name as named
from tracer.analysis.findings.window import Scope, of_jobs, window
from tracer.analysis.views.calls_by_kind import SYNC
from tracer.store.trace import Trace

_TARGET = (Scope.TARGET,)


def syncs(trace: Trace) -> list[Finding]:
    """Returns the jobs' time in fsync, fdatasync, sync, syncfs, msync and sync_file_range.

    It is an upper bound, because the times of threads that wait at once add up, and the training
    may go on meanwhile. Needs the tables syscalls and processes.
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
        f"making data durable (mainly {named(answer.row['name'])}) takes at most"
        f" {percent(answer.value)} of {over.what}: {calls:,} calls of {seconds(total / calls)} on"
        " average (sync less often, or in a thread that the training does not wait for)"
    )
    weight = answer.value / 100
    return [finding(trace, over, _TARGET, "sync", answer, sentence, "%", weight, AT_MOST)]


def checkpoints(trace: Trace) -> list[Finding]:
    """Returns the share of the training in checkpoints. Nested checkpoints count once.

    Needs the table phases.
    """
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
        f"checkpoints take {percent(answer.value)} of {over.what}: {made:,} saved,"
        f" {seconds(total / made)} each on average (save less often, or in another thread)"
    )
    weight = answer.value / 100
    # No scopes: marks are not kernel events, so lost kernel events do not affect them.
    return [finding(trace, over, (), "checkpoints", answer, sentence, "%", weight)]
