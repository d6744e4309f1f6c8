"""Findings about pressure: the share of time in which a task waits for CPUs or memory (PSI)."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.findings.finding import Finding, ask, finding, percent
from tracer.analysis.findings.finding import name as named
from tracer.analysis.findings.window import Window
from tracer.store.trace import Trace

_TOPICS = {"cpu": "CPU pressure", "memory": "memory pressure"}
_CALLED = {"cpu": "a CPU", "memory": "memory"}


@dataclass(frozen=True)
class Mends:
    """Advice if a target waits, and if some task of the machine waits, perhaps of no target."""

    target: str
    machine: str


def waiting(
    trace: Trace, over: Window, resource: str, mends: Mends, weighs: float = 1.0
) -> list[Finding]:
    """Returns the share of time in which some task waits for `resource` (cpu or memory).

    The share is that of the target that waits most. If no target's share is known, it is that of
    the machine. `mends`: advice for either case. `weighs`: weight of the share in the ranking. The
    time of a target begins at 0 again with a new cgroup, such as that of a container that was
    started again. Needs the table samples.
    """
    answer = ask(
        trace,
        "SELECT 100 * list_sum(list(grown ORDER BY ts)) / (sum(ns) / 1e9) AS value, target"
        " FROM (SELECT target, ts, value - lag(value) OVER w AS grown,"
        " ts::HUGEINT - lag(ts) OVER w AS ns FROM samples"
        f" WHERE name = 'pressure_{resource}_some_time' AND isfinite(value)"
        " WINDOW w AS (PARTITION BY target ORDER BY ts)) WHERE grown >= 0 GROUP BY target"
        " HAVING sum(ns) > 0 ORDER BY target IS NULL, 1 DESC, target LIMIT 1",
    )
    if answer is None or answer.value <= 0:
        return []
    of = answer.row["target"]
    whose, mend = f"of {named(of)}", mends.target
    if of is None or of != of:
        # The task may be one of another program.
        whose, mend = "of the machine", mends.machine
    sentence = (
        f"for {percent(answer.value)} of the time, a task {whose} waits for {_CALLED[resource]}"
        f" ({mend})"
    )
    weight = weighs * answer.value / 100
    return [finding(trace, over, (), _TOPICS[resource], answer, sentence, "%", weight)]
