"""The steps of an explanation during which events were lost."""

from __future__ import annotations

from typing import Any

from tracer.analysis.findings.window import Scope, Window, lossy, lost_between, whole
from tracer.probes.loss import OF_EVENTS
from tracer.store.trace import Trace

_STEPS = f"""
SELECT count(*) FROM explained_steps s SEMI JOIN (FROM loss WHERE {OF_EVENTS}) l
    ON {lost_between("s.start", 's."end"')}
"""


def lost(trace: Trace) -> bool:
    """Returns whether events were lost during the recording."""
    recording = whole(trace)
    return recording is not None and lossy(trace, recording, tuple(Scope))


def lossy_steps(trace: Trace) -> int:
    """Returns the number of the table `explained_steps`' steps during which events were lost."""
    trace.empty_if_missing("loss")
    return int(trace.rows(_STEPS)[0][0])


def lost_in(trace: Trace, step: dict[Any, Any]) -> bool:
    """Returns whether events were lost during a step with these `start` and `end` (ns)."""
    start, end = int(step["start"]), int(step["end"])
    within = Window("the step", "", start, end, str(end - start), start, end)
    return lossy(trace, within, tuple(Scope))
