"""Findings about memory shortage: swap, tasks that wait for memory, pages written for reclaim."""

from __future__ import annotations

from tracer.analysis.findings.finding import (
    ELSEWHERE,
    Finding,
    ask,
    finding,
    of_events,
    percent,
    size,
)
from tracer.analysis.findings.pressure import Mends, waiting
from tracer.analysis.findings.window import Scope, Window, whole
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.manifest import page_bytes
from tracer.store.trace import Trace

_MORE = "add memory, or use a smaller batch or fewer workers"
_MENDS = Mends(
    "raise the memory limit, add memory, or use a smaller batch or fewer workers",
    "add memory, or run less at a time; the samples do not tell which program waits",
)


def pressure(trace: Trace) -> list[Finding]:
    """Returns the data moved to or from swap, and the share of time in which a task lacks memory.

    Needs the table samples.
    """
    over = whole(trace)
    if over is None:
        return []
    return [*_swap(trace, over), *waiting(trace, over, "memory", _MENDS)]


def _swap(trace: Trace, over: Window) -> list[Finding]:
    page = page_bytes(trace.manifest)
    answer = ask(
        trace,
        f"SELECT sum(grown) * {page} / 1048576 AS value FROM (SELECT max(value) - min(value)"
        " AS grown FROM samples WHERE name IN ('pswpin', 'pswpout') AND target IS NULL"
        " AND isfinite(value) GROUP BY name)",
    )
    if answer is None or answer.value <= 0:
        return []
    swapped = answer.value * (1 << 20)
    memory = trace.manifest["host"].get("memory_bytes") or 0
    sentence = f"{size(swapped)} moved to or from swap: memory is short ({_MORE})"
    weight = ELSEWHERE * min(1.0, swapped / memory if memory else 1.0)
    return [finding(trace, over, (), "swap", answer, sentence, "MiB", weight)]


def reclaim(trace: Trace) -> list[Finding]:
    """Returns the share of written data that was written for memory reclaim.

    Needs the tables block and writeback.
    """
    over = whole(trace)
    if over is None:
        return []
    flushes(trace)
    answer = ask(
        trace,
        "SELECT 100 * sum(nr_sector) FILTER (reason = 'vmscan') / sum(nr_sector) AS value,"
        " count(*) AS bios FROM flushes WHERE NOT own AND NOT below",
    )
    if answer is None:
        return []
    sentence = (
        f"{percent(answer.value)} of the data written to disks was written because memory was"
        f" short ({_MORE})"
    )
    weight = of_events(answer.value / 100, answer.number("bios"))
    return [finding(trace, over, (Scope.MACHINE,), "reclaim", answer, sentence, "%", weight)]
