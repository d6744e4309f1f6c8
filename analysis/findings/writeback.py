"""Findings about write-backs: their reasons, their frequency, and the share waited for."""

from __future__ import annotations

from tracer.analysis.findings.finding import (
    AT_MOST,
    EXACT,
    Answer,
    Finding,
    ask,
    bound,
    finding,
    of_events,
    percent,
    seconds,
    size,
)
from tracer.analysis.findings.finding import name as named
from tracer.analysis.findings.window import Scope, Window, whole
from tracer.analysis.views.calls_around import make_calls_before
from tracer.analysis.views.calls_by_kind import SYNC_ALL, UNMOUNT
from tracer.analysis.views.writing.flushes import flushes
from tracer.analysis.views.writing.passes import gaps, passes
from tracer.analysis.views.writing.whose import MINE, everybody_because
from tracer.probes.events.block import SECTOR_BYTES
from tracer.store.trace import Trace

_MACHINE = (Scope.MACHINE,)
_WAITED_FOR = ("fsync", "sync", "direct", "journal")
_MINE = f"whose IN {MINE}"
_UNCERTAIN = 1.0

_WHY = {
    "periodic": "the timer found pages that were dirty for too long (vm.dirty_expire_centisecs)",
    "background": "more memory was dirty than vm.dirty_background_ratio allows",
    "sync": "a process called sync or syncfs, or unmounted a file system",
    "vmscan": "memory was short",
}
_UNMOUNTED = "unmounted a file system"

_QUEUED = """
SELECT tid::BIGINT AS tid, ts FROM writeback WHERE event = 'queue' AND reason = 'sync'
"""
# An unmounting thread queues its write-backs after the call returned.
_CALLS = f"""
SELECT DISTINCT CASE WHEN c.call IN {UNMOUNT} THEN '{_UNMOUNTED}'
    WHEN c.call IN {SYNC_ALL} AND q.ts <= c.returned THEN concat('called ', c.call) END AS did
FROM ({_QUEUED}) q ASOF LEFT JOIN queueing_calls c ON q.tid = c.tid AND q.ts >= c.ts ORDER BY ALL
"""


def reasons(trace: Trace) -> list[Finding]:
    """Returns the most frequent reason of write-backs, and the mean time between wakes.

    Write-backs are passes of the flusher; a wake makes one or more. Needs the table writeback.
    """
    over = whole(trace)
    if over is None:
        return []
    return [*_reason(trace, over), *_intervals(trace, over)]


def _reason(trace: Trace, over: Window) -> list[Finding]:
    answer = ask(
        trace,
        "SELECT 100 * count(*) / sum(count(*)) OVER () AS value, reason, count(*) AS n,"
        " sum(count(*)) OVER () AS of FROM writeback WHERE event = 'start'"
        " GROUP BY reason ORDER BY n DESC, reason LIMIT 1",
    )
    if answer is None:
        return []
    reason = named(answer.row["reason"], "of an unknown reason")
    why = f": {_syncs(trace) if reason == 'sync' else _WHY[reason]}" if reason in _WHY else ""
    sentence = (
        f"{percent(answer.value)} of write-backs are {reason} ({answer.count('n'):,} of"
        f" {answer.count('of'):,}){why}"
    )
    weight = of_events(answer.value / 100, answer.number("of"))
    return [finding(trace, over, _MACHINE, "write-back reasons", answer, sentence, "%", weight)]


def _syncs(trace: Trace) -> str:
    """Returns who asked for syncs, by the calls of the threads that queued them if all are known.

    Without the table syscalls, and for threads whose calls were not recorded, they are not.
    """
    trace.empty_if_missing("syscalls")
    make_calls_before(trace, {"queueing_calls": _QUEUED})
    did = [one for (one,) in trace.rows(_CALLS)]
    trace.drop("queueing_calls")
    known = did and None not in did
    return f"a process {' or '.join(map(str, did))}" if known else _WHY["sync"]


def _intervals(trace: Trace, over: Window) -> list[Finding]:
    view = passes(trace)
    answer = ask(
        trace,
        "SELECT avg(ns) / 1e9 AS value, count(ns) AS n,"
        f" (SELECT count(DISTINCT wake) FROM {view}) AS wakes, (SELECT count(DISTINCT wake)"
        f" FROM {view} WHERE reason IS DISTINCT FROM 'periodic') AS others"
        f" FROM ({' '.join(gaps(view, 'wakes').split())}) WHERE reason = 'all'",
    )
    timer = trace.manifest["vm"].get("dirty_writeback_centisecs", 0) / 100
    if answer is None or answer.value <= 0 or timer <= 0:
        return []
    often = answer.value < timer
    sentence = (
        f"the flusher wakes for a device every {seconds(answer.value)} on average,"
        f" {'more' if often else 'no more'} often than the timer's {seconds(timer)}"
        f" (vm.dirty_writeback_centisecs){_why_often(answer) if often else ''}"
    )
    rarer = min(1.0, answer.value / timer)
    weight = of_events(1 - rarer, answer.number("n"))
    return [finding(trace, over, _MACHINE, "write-back interval", answer, sentence, "s", weight)]


def _why_often(answer: Answer) -> str:
    """Returns the cause of wakes that are more frequent than the timer, as far as it is known."""
    others, wakes = answer.count("others"), answer.count("wakes")
    if not others:
        return (
            ": all are periodic, so several workers serve one device (one for each write-back"
            " cgroup), or the timer was changed"
        )
    return f": {others:,} of {wakes:,} wakes have another reason than the timer"


def waited_for(trace: Trace) -> list[Finding]:
    """Returns the share of written data that a thread may have waited for, and the unknown share.

    Nobody waits for the flusher's writes, unless the kernel throttles writers meanwhile (see the
    stalls). Data that are written for an unknown reason may be waited for. The recorder's own
    files do not count. The number is that of the whole machine; the sentence also gives the
    targets' share. Needs the table block.
    """
    over = whole(trace)
    if over is None:
        return []
    flushes(trace)
    perhaps = f"(reason IN {_WAITED_FOR} OR certainty = 'unknown')"
    answer = ask(
        trace,
        f"SELECT 100 * coalesce(sum(nr_sector) FILTER ({perhaps}), 0) / sum(nr_sector)"
        f" AS value, sum(nr_sector) * {SECTOR_BYTES} AS bytes, count(*) AS bios,"
        f" count(*) FILTER (certainty = 'unknown') AS unknown,"
        f" count(*) FILTER (reason = 'other' AND NOT {perhaps}) AS by_calls,"
        f" sum(nr_sector) FILTER ({_MINE}) * {SECTOR_BYTES} AS target_bytes,"
        f" 100 * coalesce(sum(nr_sector) FILTER ({_MINE} AND {perhaps}), 0)"
        f" / sum(nr_sector) FILTER ({_MINE}) AS target_value"
        " FROM flushes WHERE NOT own AND NOT below",
    )
    if answer is None:
        return []
    written = size(answer.number("bytes"))
    unknown_too = ", or for an unknown reason" if answer.count("unknown") else ""
    by_calls = " or by calls that need not wait for it" if answer.count("by_calls") else ""
    rest = "the rest" if answer.value else "it"
    sentence = (
        f"{_part(answer.value)} of the {written} written to disks was waited for (fsync,"
        f" sync, direct I/O, journal{unknown_too}): {rest} was written in the background"
        f"{by_calls}{_of_targets(trace, answer)}"
    )
    weight = of_events(answer.value / 100, answer.number("bios"))
    certainty = AT_MOST if answer.count("unknown") else EXACT
    found = [finding(trace, over, _MACHINE, "waited for", answer, sentence, "%", weight, certainty)]
    unknown = ask(
        trace,
        "SELECT 100 * sum(nr_sector) FILTER (certainty = 'unknown') / sum(nr_sector) AS value,"
        " count(*) AS bios FROM flushes WHERE NOT own AND NOT below",
    )
    if unknown is not None and unknown.value >= _UNCERTAIN:
        sentence = (
            f"the reason is unknown for {percent(unknown.value)} of the data written to disks"
        )
        weight = of_events(unknown.value / 100, unknown.number("bios"))
        found.append(finding(trace, over, _MACHINE, "unknown", unknown, sentence, "%", weight))
    return found


def _of_targets(trace: Trace, answer: Answer) -> str:
    if everybody_because(trace, all_writers=False):
        return ""
    written = answer.number("target_bytes")
    if not written:
        return "; none of the data is known to be the targets'"
    return (
        f"; of the targets' {size(written)}, {_part(answer.number('target_value'))} was waited for"
    )


def _part(percentage: float) -> str:
    """Returns words for at most so much: "none", "less than 0.1 %" or "up to 78 %"."""
    if not percentage:
        return "none"
    said = bound(percentage)
    return said if said.startswith("less") else f"up to {said}"
