"""All lanes of a trace's timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from analysis.timeline.axis import Axis, axis, outside
from analysis.timeline.block import block_lanes
from analysis.timeline.events import calls, dirtied, faults, stalls, writebacks, written
from analysis.timeline.heat import heat_lanes
from analysis.timeline.lane import Kind, Lane
from analysis.timeline.losses import losses
from analysis.timeline.phases import phases
from analysis.timeline.samples import sample_lanes
from probes.errors import BadTrace
from tracer.store.trace import Trace

_MAKERS: tuple[tuple[Callable[[Trace, Axis], Lane | list[Lane] | None], tuple[str, ...]], ...] = (
    (phases, ("phases",)),
    (writebacks, ("writeback",)),
    (written, ("block",)),
    (dirtied, ("dirty", "processes")),
    (stalls, ()),
    (faults, ("page_faults",)),
    (block_lanes, ("block",)),
    (calls, ("syscalls",)),
    (sample_lanes, ("samples",)),
    (heat_lanes, ("block",)),
)
"""What makes lanes, with the tables that it needs."""

_GROUPS = (
    *("Phases", "Write-back", "Stalls", "Memory", "Block devices", "System calls", "Samples"),
    "Heat maps",
)
"""In which order lanes are shown."""


@dataclass(frozen=True)
class Timeline:
    """A trace over time: `losses` is the frame of `losses`, `empty` names lanes without any row,
    `failed` those that could not be made of what the trace holds, and why, `outside` the tables
    with rows that lie outside of the recording's time, and how many."""

    axis: Axis
    lanes: list[Lane]
    empty: list[str]
    failed: dict[str, str]
    losses: pd.DataFrame
    outside: dict[str, int]


def timeline(trace: Trace, progress: Callable[[str], None] = lambda what: None) -> Timeline:
    """Every lane that this trace can give, in the order in which they are read.

    `progress` is called with what comes next.
    """
    shown = axis(trace)
    lanes: list[Lane] = []
    failed: dict[str, str] = {}
    for make, needs in _MAKERS:
        if all(need in trace.tables for need in needs):
            progress(f"timeline: {make.__name__.replace('_', ' ')}")
            try:
                made = make(trace, shown)
            except BadTrace as error:
                failed[make.__name__.replace("_", " ")] = error.what
                continue
            lanes += made if isinstance(made, list) else [made] if made is not None else []
    lanes.sort(key=lambda lane: _GROUPS.index(lane.group))
    empty = [lane.title for lane in lanes if not _has_rows(lane)]
    lost = losses(trace, shown) if "loss" in trace.tables else pd.DataFrame()
    full = [lane for lane in lanes if _has_rows(lane)]
    return Timeline(shown, full, empty, failed, lost, outside(trace, shown))


def _has_rows(lane: Lane) -> bool:
    """Whether there is anything to draw: bins alone, without a series, are nothing."""
    if lane.kind is Kind.AREAS:
        return len(lane.frame.columns) > 2
    return len(lane.frame) > 0
