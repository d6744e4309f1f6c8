"""Findings about waiting for writes: an upper bound on its cost, and throttling by the kernel."""

from __future__ import annotations

from tracer.analysis.findings.ceiling import ceiling
from tracer.analysis.findings.finding import (
    AT_MOST,
    Answer,
    Finding,
    ask,
    at_most,
    finding,
    seconds,
)
from tracer.analysis.findings.window import Scope, Window, of_jobs, window
from tracer.analysis.views.disks.wait_times import KINDS
from tracer.analysis.views.threads import of_everybody
from tracer.store.trace import Trace

CEILING = "write waits"
_NAMED = 2
"""Number of kinds of waits that the sentence names."""
_BOTH = (Scope.TARGET, Scope.MACHINE)


def writes(trace: Trace) -> list[Finding]:
    """Returns an upper bound on the share of waiting for writes, and the write-back stalls.

    `tracer.analysis.findings.ceiling` computes the bound, and documents the waits that it includes.

    Needs the tables syscalls and processes. The table dirty gives the stalls.
    """
    over = window(trace)
    if over is None:
        return []
    stalls = _stalls(trace, over) if "dirty" in trace.tables else []
    return [*_ceiling(trace, over), *stalls]


def _ceiling(trace: Trace, over: Window) -> list[Finding]:
    most = ceiling(trace)
    if most is None:
        return []
    spent = sorted((-s, kind) for kind, s in most.by_kind.items() if s)
    parts = [f"{seconds(-s)} {KINDS[kind]}" for s, kind in spent[:_NAMED]]
    mainly = "mainly " * (len(spent) > _NAMED)
    named = f" ({mainly}{'; '.join(parts)})" if parts else ""
    of_all = ", whichever program waits" if of_everybody(trace) else ""
    sentence = (
        f"waiting for writes takes {at_most(most.percent)} of {most.what}{of_all}{named}:"
        " a faster disk or a flush layer cannot save more; not included:"
        f" {'; '.join(most.left_out)}"
    )
    answer = Answer(most.query, most.percent, {})
    found = finding(trace, over, _BOTH, CEILING, answer, sentence, "%", most.share, AT_MOST)
    return [found]


def _stalls(trace: Trace, over: Window) -> list[Finding]:
    pauses = (
        f"(FROM {of_jobs(trace, 'dirty')} WHERE event = 'balance_dirty_pages' AND pause_ns > 0)"
    )
    answer = ask(
        trace,
        f"SELECT 100 * least(1, sum(inside) / {over.ns}) AS value, sum(pause_ns) / 1e9 AS s,"
        f" count(*) AS stalls FROM {over.inside(pauses, 'pause_ns')} WHERE inside > 0"
        " HAVING count(*) > 0",
    )
    if answer is None:
        return []
    whose = "" if of_everybody(trace) else " of the job"
    sentence = (
        f"write-back stalls account for {at_most(answer.value)} of {over.what}: the kernel"
        f" put threads{whose} to sleep {answer.count('stalls'):,} times,"
        f" {seconds(answer.number('s'))} in total, because they dirtied pages faster than the pages"
        " were written (write less, write in another process, or raise vm.dirty_ratio)"
    )
    machine = (Scope.MACHINE,)
    weight = answer.value / 100
    return [finding(trace, over, machine, "stalls", answer, sentence, "%", weight, AT_MOST)]
