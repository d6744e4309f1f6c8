"""Findings about making data durable: sync calls (fsync and similar) and checkpoints."""

from __future__ import annotations

from tracer.analysis.findings.finding import (
    AT_MOST,
    Finding,
    ask,
    finding,
    percent,
    seconds,
)
from tracer.analysis.findings.finding import name as named
from tracer.analysis.findings.window import Scope, of_jobs, window
from tracer.analysis.views.calls_by_kind import SYNC
from tracer.digits import counted
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
    calls = f"(FROM {of_jobs(trace, 'syscalls')} WHERE name IN {SYNC} AND dur_ns >= 0)"
    answer = ask(
        trace,
        f"SELECT 100 * least(1, sum(sum(inside)) OVER () / {over.ns}) AS value, name,"
        " sum(sum(dur_ns)) OVER () / 1e9 AS s, sum(count(*)) OVER () AS calls"
        f" FROM {over.inside(calls, 'dur_ns')} WHERE inside > 0"
        " GROUP BY name ORDER BY sum(dur_ns) DESC, name LIMIT 1",
    )
    if answer is None:
        return []
    count, total = answer.count("calls"), answer.number("s")
    sentence = (
        f"making data durable (mainly {named(answer.row['name'])}) takes at most"
        f" {percent(answer.value)} of {over.what}: {counted(count, 'call')} of"
        f" {seconds(total / count)} on average (sync less often, or in a thread"
        " that the training does not wait for)"
    )
    weight = answer.value / 100
    return [finding(trace, over, _TARGET, "sync", answer, sentence, "%", weight, AT_MOST)]


def checkpoints(trace: Trace) -> list[Finding]:
    """Returns the share of checkpoints in the time of the training and of all checkpoints.

    Checkpoints between two phases of training, before the first and after the last count, too.
    Nested checkpoints count once. Needs the table phases.
    """
    over = window(trace)
    if over is None:
        return []
    begun, ended = (over.begun, over.recorded) if over.stage else (over.start, over.end)
    saved = (
        "(SELECT greatest(start, before) AS ts, ended - greatest(start, before) AS dur_ns FROM"
        f' (SELECT greatest(start, {begun}) AS start, least("end", {ended}) AS ended,'
        ' coalesce(max("end") OVER (PARTITION BY pid, tid ORDER BY start, "end" DESC'
        f" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), {begun}) AS before FROM phases"
        " WHERE name = 'checkpoint' AND \"end\" > start) WHERE ended > greatest(start, before))"
    )
    answer = ask(
        trace,
        f"SELECT 100 * sum(dur_ns) / ({over.ns} + sum(dur_ns - inside)) AS value,"
        " count(*) AS checkpoints, sum(dur_ns) / 1e9 AS s,"
        " count(*) FILTER (inside = 0) AS outside, sum(dur_ns - inside) > 0 AS beyond"
        f" FROM {over.inside(saved, 'dur_ns')}",
    )
    if answer is None or not answer.count("checkpoints"):
        return []
    made, outside = answer.count("checkpoints"), answer.count("outside")
    of_both = " and checkpoints" if answer.count("beyond") else ""
    elsewhere = f", {outside:,} of them outside of {over.what}" if outside else ""
    sentence = (
        f"checkpoints take {percent(answer.value)} of {over.what}{of_both}: {made:,} saved,"
        f" {seconds(answer.number('s') / made)} each on average{elsewhere} (save less often, or in"
        " another thread)"
    )
    weight = answer.value / 100
    # No scopes: marks are not kernel events, so lost kernel events do not affect them.
    return [finding(trace, over, (), "checkpoints", answer, sentence, "%", weight)]
