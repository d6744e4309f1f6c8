"""All findings, ranked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tracer.analysis.findings import (
    calls,
    devices,
    faults,
    loaders,
    loading,
    memory,
    processors,
    reading,
    recorder,
    steps,
    syncs,
    tenants,
    waits,
    writeback,
    writes,
)
from tracer.analysis.findings.finding import AT_MOST, ELSEWHERE, Finding
from tracer.analysis.views.waiting.critical_path import critical_path, has_paths
from tracer.store.trace import Trace

TRIVIAL = 0.005
"""Least weight of a finding that is shown. Topics in `ALWAYS` are shown with any weight."""

ALWAYS = (writes.CEILING, recorder.COST, recorder.LOSSES)
"""Topics that are shown even if their number is 0."""

DESCRIBED = ("calls", "slow minibatches")
"""Topics that say where time passes, but not why. Measured waits say why."""


@dataclass(frozen=True)
class Topic:
    """A function that returns findings of a trace, and the tables that it requires."""

    find: Callable[[Trace], list[Finding]]
    needs: tuple[str, ...]


TOPICS = (
    Topic(writes.writes, ("syscalls", "processes")),
    Topic(syncs.syncs, ("syscalls", "processes")),
    Topic(syncs.checkpoints, ("phases",)),
    Topic(loading.stalls, ("phases",)),
    Topic(loaders.loaders, ("phases", "syscalls")),
    Topic(steps.steps, ("phases",)),
    Topic(waits.waits, ("phases", "processes", "off_cpu")),
    Topic(calls.calls, ("phases", "syscalls")),
    Topic(faults.faults, ("page_faults",)),
    Topic(writeback.reasons, ("writeback",)),
    Topic(writeback.waited_for, ("block",)),
    Topic(tenants.tenants, ("block", "syscalls", "processes")),
    Topic(devices.latency, ("block",)),
    Topic(devices.reads, ("block", "processes")),
    Topic(devices.use, ("samples",)),
    Topic(processors.processors, ("samples",)),
    Topic(memory.pressure, ("samples",)),
    Topic(memory.reclaim, ("block", "writeback")),
    Topic(reading.reading, ("page_cache", "processes")),
    Topic(recorder.cost, ()),
    Topic(recorder.losses, ("loss",)),
)


def findings(trace: Trace) -> list[Finding]:
    """Returns the findings of a trace, the greatest weight first.

    Findings whose tables the trace lacks are left out. If the waits of steps were measured, bounds
    and topics in `DESCRIBED` count a quarter. Raises BadTrace if a table is damaged.
    """
    measured = _waits_are_measured(trace)
    found = [
        replace(one, weight=ELSEWHERE * one.weight) if measured and _is_explained(one) else one
        for topic in TOPICS
        if all(need in trace.tables for need in topic.needs)
        for one in topic.find(trace)
    ]
    kept = [one for one in found if one.weight >= TRIVIAL or one.topic in ALWAYS]
    return sorted(kept, key=lambda one: -one.weight)


def _waits_are_measured(trace: Trace) -> bool:
    return has_paths(trace) and bool(trace.rows(f"SELECT 1 FROM {critical_path(trace)} LIMIT 1"))


def _is_explained(one: Finding) -> bool:
    return one.certainty == AT_MOST or one.topic in DESCRIBED
