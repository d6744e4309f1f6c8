"""Findings about pressure: the share of time in which a task waits for CPUs or memory (PSI)."""

from __future__ import annotations

from tracer.analysis.findings.finding import Finding, ask, finding, percent
from tracer.analysis.findings.finding import name as named
from tracer.analysis.findings.window import Window
from tracer.store.trace import Trace

_TOPICS = {"cpu": "CPU pressure", "memory": "memory pressure"}


def waiting(
    trace: Trace, over: Window, resource: str, what: str, weighs: float = 1.0
) -> list[Finding]:
    """Returns the share of time in which some task waits for `resource` (cpu or memory).

    The share is that of the target that waits most. If no target's share is known, it is that of
    the machine. `what`: words for the resource, followed by a remedy. `weighs`: weight of the share
    in the ranking. Needs the table samples.
    """
    answer = ask(
        trace,
        "SELECT 100 * (max(value) - min(value)) / ((max(ts) - min(ts)) / 1e9) AS value, target"
        f" FROM samples WHERE name = 'pressure_{resource}_some_time' AND isfinite(value)"
        " GROUP BY target HAVING max(ts) > min(ts) ORDER BY target IS NULL, 1 DESC, target LIMIT 1",
    )
    if answer is None or answer.value <= 0:
        return []
    of = answer.row["target"]
    whose = f"of {named(of)}" if of is not None and of == of else "of the machine"
    sentence = f"for {percent(answer.value)} of the time, a task {whose} waits for {what}"
    weight = weighs * answer.value / 100
    return [finding(trace, over, (), _TOPICS[resource], answer, sentence, "%", weight)]
