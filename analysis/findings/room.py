"""Time that CPUs, and the job's CPU quota, have left for one more worker."""

from __future__ import annotations

from typing import NamedTuple

from tracer.analysis.findings.counters import growth
from tracer.analysis.findings.finding import ask, percent
from tracer.analysis.findings.processors import SHORT, STEAL_TOLD, cpu_use, cpus_of
from tracer.analysis.findings.window import ALL, WAITING_TARGETS, Window, is_own, window
from tracer.store.trace import Trace

_LEAST_PERIODS = 10
"""Periods of a quota, mostly 0.1 s each, of which a share says something."""


class Full(NamedTuple):
    """A clause that says what has no time left, and how to give the job more CPU time."""

    said: str
    mend: str


def no_time_left(trace: Trace) -> Full | None:
    """Returns what has no time for one more worker during training: the quota, or else the CPUs.

    A quota has none if it is used up in most of its periods. It may be that of a cgroup above the
    job's own. If the steps of several targets wait, each of them needs such a quota. CPUs have none
    if they are used, or taken by the host of a virtual machine, for most of the time, and less than
    one CPU is left. None: both have time, or the trace does not tell.
    """
    over = window(trace)
    if over is None or "samples" not in trace.tables:
        return None
    return _quota(trace, over) or _cpus(trace, over)


def _quota(trace: Trace, over: Window) -> Full | None:
    if is_own(trace, over) == ALL:
        return None  # Nothing tells whose quota is the job's.
    names = ("cgroup_nr_periods", "cgroup_nr_throttled")
    periods, throttled = (f"sum(grown) FILTER (name = '{name}')" for name in names)
    answer = ask(
        trace,
        f"SELECT 100 * min(coalesce(used, 0)) AS value FROM {WAITING_TARGETS} LEFT JOIN"
        " (SELECT target, max(used) AS used FROM"
        f" (SELECT target, CASE WHEN {periods} >= {_LEAST_PERIODS}"
        f" THEN least(1, coalesce({throttled}, 0) / {periods}) ELSE 0 END AS used"
        f" FROM {growth(names, over)} GROUP BY target, instance) GROUP BY target) USING (target)",
    )
    if answer is None or answer.value < SHORT:
        return None
    return Full(
        f"the job's CPU quota is used up in {percent(answer.value)} of its periods",
        "raise the quota",
    )


def _cpus(trace: Trace, over: Window) -> Full | None:
    cpus = cpus_of(trace)
    answer = cpu_use(trace, cpus, over) if cpus else None
    if answer is None:
        return None
    share = min(100, answer.value + answer.number("stolen"))
    if share < SHORT or cpus * (1 - share / 100) >= 1:
        return None
    taken = " or taken by the host" if answer.number("stolen") >= STEAL_TOLD else ""
    said = f"{percent(share)} of the time of the machine's {cpus} CPUs is used{taken}"
    return Full(said, "give the job more CPUs")
