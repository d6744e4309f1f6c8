"""CPUs: who waits for one, and how much of them is used."""

from __future__ import annotations

from analysis.findings.finding import ELSEWHERE, Finding, ask, finding, percent
from analysis.findings.pressure import waiting
from analysis.findings.window import Window, whole
from tracer.store.trace import Trace

_SHORT = 80.0
_FOR = "a CPU (a higher CPU limit, more CPUs, or fewer threads and workers)"


def processors(trace: Trace) -> list[Finding]:
    """The share of time in which a task of a target waits for a CPU, and CPUs in use.

    A cgroup's limit shows as such waiting, too: the kernel's own count of throttled periods is not
    sampled. Needs table samples.
    """
    over = whole(trace)
    if over is None:
        return []
    return [*waiting(trace, over, "cpu", _FOR, ELSEWHERE), *_use(trace, over)]


def _use(trace: Trace, over: Window) -> list[Finding]:
    cpus = trace.manifest["host"].get("cpus")
    if not cpus:
        return []
    answer = ask(
        trace,
        f"SELECT 100 * (max(value) - min(value)) / ((max(ts) - min(ts)) / 1e9 * {cpus}) AS value"
        " FROM samples WHERE name = 'cpu_time' AND target IS NULL AND isfinite(value)"
        " HAVING max(ts) > min(ts)",
    )
    if answer is None:
        return []
    short = ": they are what there is not enough of" if answer.value >= _SHORT else ""
    sentence = f"{percent(answer.value)} of the machine's {cpus} CPUs is used{short}"
    weight = ELSEWHERE * answer.value / 100
    return [finding(trace, over, (), "CPU use", answer, sentence, "%", weight)]
