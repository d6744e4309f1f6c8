"""Findings about CPUs: tasks that wait for a CPU, and CPU use."""

from __future__ import annotations

from tracer.analysis.findings.counters import growth
from tracer.analysis.findings.finding import ELSEWHERE, Answer, Finding, ask, finding, percent
from tracer.analysis.findings.pressure import Mends, waiting
from tracer.analysis.findings.window import Window, whole, window
from tracer.store.trace import Trace

SHORT = 80.0
"""Smallest percentage of CPU time, or of the periods of a quota, that leaves little of them."""
_LEAST_NS = 10**9
"""The kernel counts CPU time in ticks of some milliseconds: less time says little."""
STEAL_TOLD = 2.0
"""Smallest percentage of steal that is told."""
_MENDS = Mends(
    "raise the CPU limit, add CPUs, or use fewer threads and workers",
    "add CPUs, or run less at a time; the samples do not tell which program waits",
)


def processors(trace: Trace) -> list[Finding]:
    """Returns the share of time in which a task of a target waits for a CPU, CPU use and steal.

    Throttling by a cgroup's CPU limit also counts as such waiting. The kernel's own count of
    throttled periods is not sampled. Needs the table samples.
    """
    over = whole(trace)
    if over is None:
        return []
    return [*waiting(trace, over, "cpu", _MENDS, ELSEWHERE), *_use(trace, over), *steal(trace)]


def steal(trace: Trace) -> list[Finding]:
    """Returns the share of time that the host of a virtual machine took from its CPUs (steal).

    There is none if it is small, or not known. Its time is that of `steal_share`.
    """
    over, answer = window(trace), steal_share(trace)
    if over is None or answer is None or answer.value < STEAL_TOLD:
        return []
    sentence = (
        f"for {percent(answer.value)} of the time in which the CPUs of this virtual machine had"
        " work, the host ran something else on them; it counts as time on a CPU (use CPUs that are"
        " not shared, or compare with a run on another host)"
    )
    weight = ELSEWHERE * answer.value / 100
    return [finding(trace, over, (), "steal", answer, sentence, "%", weight)]


def steal_share(trace: Trace) -> Answer | None:
    """Returns the percentage of the time with work of all CPUs that the host took from them.

    It is that of the training time, or else of the recording. None: the samples do not tell, or
    CPUs had less than 1 s of work.
    """
    over = window(trace)
    if over is None or "samples" not in trace.tables:
        return None
    time = "sum(grown) FILTER (name = '{0}') AS {0}"
    return ask(
        trace,
        "SELECT 100 * steal_time / (steal_time + cpu_time) AS value FROM (SELECT"
        f" {time.format('steal_time')}, {time.format('cpu_time')}"
        f" FROM {growth(('steal_time', 'cpu_time'), over)} WHERE target IS NULL)"
        f" WHERE steal_time + cpu_time >= {_LEAST_NS / 1e9:g}",
    )


def cpus_of(trace: Trace) -> int:
    """Returns the number of the machine's CPUs; 0: not known."""
    return int(trace.manifest["host"].get("cpus") or 0)


def cpu_use(trace: Trace, cpus: int, over: Window | None = None) -> Answer | None:
    """Returns the percentage of the CPUs' time that is used in a window, or by all samples.

    The answer's row also has `stolen`, the percentage that the host took, 0 if it does not tell.
    """
    part = "100 * sum(grown / (ns / 1e9)) FILTER (name = '{0}')" + f" / {cpus}"
    return ask(
        trace,
        f"SELECT least(100, {part.format('cpu_time')}) AS value,"
        f" coalesce({part.format('steal_time')}, 0) AS stolen"
        f" FROM {growth(('cpu_time', 'steal_time'), over)} WHERE target IS NULL"
        f" HAVING max(ns) FILTER (name = 'cpu_time') >= {_LEAST_NS}",
    )


def _use(trace: Trace, over: Window) -> list[Finding]:
    cpus = cpus_of(trace)
    answer = cpu_use(trace, cpus) if cpus else None
    if answer is None:
        return []
    short = ": little is left, whoever uses them" if answer.value >= SHORT else ""
    share = percent(answer.value)
    sentence = f"{share} of the time of the machine's {cpus} CPUs is used{short}"
    weight = ELSEWHERE * answer.value / 100
    return [finding(trace, over, (), "CPU use", answer, sentence, "%", weight)]
