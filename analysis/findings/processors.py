"""Findings about CPUs: tasks that wait for a CPU, and CPU use."""

from __future__ import annotations

from tracer.analysis.findings.finding import ELSEWHERE, Finding, ask, finding, percent
from tracer.analysis.findings.pressure import Mends, waiting
from tracer.analysis.findings.window import Window, whole
from tracer.store.trace import Trace

_SHORT = 80.0
_LEAST_NS = 10**9
"""The kernel counts CPU time in ticks of some milliseconds: less time says little."""
_MENDS = Mends(
    "raise the CPU limit, add CPUs, or use fewer threads and workers",
    "add CPUs, or run less at a time; the samples do not tell which program waits",
)


def processors(trace: Trace) -> list[Finding]:
    """Returns the share of time in which a task of a target waits for a CPU, and the CPU use.

    Throttling by a cgroup's CPU limit also counts as such waiting. The kernel's own count of
    throttled periods is not sampled. Needs the table samples.
    """
    over = whole(trace)
    if over is None:
        return []
    return [*waiting(trace, over, "cpu", _MENDS, ELSEWHERE), *_use(trace, over)]


def _use(trace: Trace, over: Window) -> list[Finding]:
    cpus = trace.manifest["host"].get("cpus")
    if not cpus:
        return []
    answer = ask(
        trace,
        "SELECT least(100, 100 * (max(value) - min(value)) / ((max(ts) - min(ts)) / 1e9 *"
        f" {cpus})) AS value FROM samples WHERE name = 'cpu_time' AND target IS NULL AND"
        f" isfinite(value) HAVING max(ts)::HUGEINT - min(ts) >= {_LEAST_NS}",
    )
    if answer is None:
        return []
    short = ": little is left, whoever uses them" if answer.value >= _SHORT else ""
    sentence = f"{percent(answer.value)} of the time of the machine's {cpus} CPUs is used{short}"
    weight = ELSEWHERE * answer.value / 100
    return [finding(trace, over, (), "CPU use", answer, sentence, "%", weight)]
