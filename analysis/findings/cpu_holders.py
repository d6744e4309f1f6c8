"""Advice on waits for a CPU, by who had the CPU meanwhile."""

from __future__ import annotations

from tracer.analysis.findings.finding import percent
from tracer.analysis.views.threads import same_work
from tracer.store.trace import Trace

OWN = "(by_pid = step_pid OR by_target IS NOT NULL AND by_target IS NOT DISTINCT FROM target)"
"""SQL condition on a wait for a CPU on the critical path: a thread of the training process or of
the same target had it. A recording of the whole machine has no targets."""
FOREIGN = "by_tid IS NOT NULL AND target IS NOT NULL AND by_target IS DISTINCT FROM target"
"""SQL condition on such a wait: a thread of another target, or of none, had it."""
_HALF = 0.5
_OTHERS, _JOBS = "other processes", "the job's own threads"
_LEAST = 0.005
"""Smallest share of the waits that is told."""
ADVISED = f"""
CASE WHEN sum(others) OVER () > {_HALF} * sum(ns) OVER () THEN others
    WHEN sum(own) OVER () > {_HALF} * sum(ns) OVER () THEN own
    ELSE ns END
"""
"""SQL for the part of `ns` (the waits for a CPU, by who had it) in which the holder is one of the
group that `mend_of_cpu_waits` is about. `own` and `others`: the parts with such holders."""


def mend_of_cpu_waits(own: float, foreign: float, workers: int) -> str:
    """Returns advice. `own` and `foreign`: the shares (0 to 1) of the waits with such holders."""
    fewer = "use fewer threads or workers" if workers else "use fewer threads"
    if foreign > _HALF:
        held = _held(_OTHERS, foreign, _JOBS, own)
        return f"{held}, so give the job CPUs of its own"
    if own > _HALF:
        return f"{_held(_JOBS, own, _OTHERS, foreign)}, so {fewer}, or give the job more CPUs"
    return f"{fewer}, or give the job CPUs of its own"


def _held(most: str, share: float, rest: str, of_rest: float) -> str:
    """Returns who has the CPU, with the shares of the time if both groups have it."""
    if of_rest < _LEAST:
        return f"{most} have it"
    of_time = f"have it for {percent(100 * share)} of that time"
    return f"{most} {of_time}, {rest} for {percent(100 * of_rest)}"


def holder(trace: Trace) -> str:
    """Returns SQL for the name of who had the CPU, which tells namesakes apart.

    These are processes that have the name of the waiting thread's own target, or of this recorder.
    Needs the table processes. The SQL is of columns of `waits` and `critical_path`.
    """
    namesake = (
        f"{FOREIGN} AND (target, by_comm) IN (SELECT (target, comm) FROM processes)"
        " THEN concat(by_comm, ' (not the job''s)')"
    )
    facts = trace.manifest.get("recorder") or {}
    guardian = facts.get("guardian") or ()
    pids = ", ".join(str(int(pid)) for pid in (facts.get("pid"), *guardian[:1]) if pid is not None)
    if not pids:
        return f"CASE WHEN {namesake} ELSE by_comm END"
    return (
        f"CASE WHEN by_pid IN ({pids}) THEN 'the recorder' WHEN {namesake} WHEN by_comm IN"
        f" (SELECT comm FROM processes WHERE pid IN ({pids}))"
        " THEN concat(by_comm, ' (not the recorder)') ELSE by_comm END"
    )


def holder_or_waker(trace: Trace) -> str:
    """Returns SQL for the name of whom a thread waits for, in any kind of wait.

    Threads of the kernel that do the same work have one name. Needs what `holder` needs.
    """
    return f"if(kind = 'cpu', {same_work(holder(trace))}, {same_work('by_comm')})"
