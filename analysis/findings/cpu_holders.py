"""Advice on waits for a CPU, by who had the CPU meanwhile."""

from __future__ import annotations

from tracer.store.trace import Trace

OWN = "(by_pid = step_pid OR by_target IS NOT NULL AND by_target IS NOT DISTINCT FROM target)"
"""SQL condition on a wait for a CPU on the critical path: a thread of the training process or of
the same target had it. A recording of the whole machine has no targets."""
FOREIGN = "by_tid IS NOT NULL AND target IS NOT NULL AND by_target IS DISTINCT FROM target"
"""SQL condition on such a wait: a thread of another target, or of none, had it."""
_HALF = 0.5


def mend_of_cpu_waits(own: float, foreign: float, workers: int) -> str:
    """Returns advice. `own` and `foreign`: the shares (0 to 1) of the waits with such holders."""
    fewer = "use fewer threads or workers" if workers else "use fewer threads"
    if foreign > _HALF:
        return "other processes have it, so give the job CPUs of its own"
    if own > _HALF:
        return f"the job's own threads have it, so {fewer}, or give the job more CPUs"
    return f"{fewer}, or give the job CPUs of its own"


def holder(trace: Trace) -> str:
    """Returns SQL for the name of who had the CPU, which tells this recorder from its namesakes.

    Needs the table processes.
    """
    facts = trace.manifest.get("recorder") or {}
    guardian = facts.get("guardian") or ()
    pids = ", ".join(str(int(pid)) for pid in (facts.get("pid"), *guardian[:1]) if pid is not None)
    if not pids:
        return "by_comm"
    return (
        f"CASE WHEN by_pid IN ({pids}) THEN 'the recorder' WHEN by_comm IN"
        f" (SELECT comm FROM processes WHERE pid IN ({pids}))"
        " THEN concat(by_comm, ', not the recorder of this trace,') ELSE by_comm END"
    )
