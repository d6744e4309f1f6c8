"""All lanes of a trace's timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from tracer.analysis.timeline.axis import Axis, axis, outside
from tracer.analysis.timeline.block import block_lanes
from tracer.analysis.timeline.critical_path import critical_path
from tracer.analysis.timeline.events import calls, dirtied, faults, stalls, writebacks, written
from tracer.analysis.timeline.heat import heat_lanes
from tracer.analysis.timeline.lane import Kind, Lane
from tracer.analysis.timeline.losses import losses
from tracer.analysis.timeline.phases import phases
from tracer.analysis.timeline.reads import page_cache_lanes
from tracer.analysis.timeline.samples import sample_lanes
from tracer.probes.errors import BadTrace
from tracer.store.trace import Trace

_MAKERS: tuple[tuple[Callable[[Trace, Axis], Lane | list[Lane] | None], tuple[str, ...]], ...] = (
    (critical_path, ("phases", "processes", "off_cpu")),
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
    (page_cache_lanes, ("page_cache", "processes")),
)
"""Functions that make lanes, each with the tables that it needs."""

_GROUPS = (
    *("Phases", "Write-back", "Stalls", "Memory", "Block devices", "System calls", "Samples"),
    "Heat maps",
)
"""Groups of lanes, in the order in which they are shown."""


@dataclass(frozen=True)
class Timeline:
    """A trace over time.

    `losses`: the frame of the function `losses`. `empty`: titles of the lanes without rows.
    `failed`: lanes that could not be made from the trace, with the reason. `outside`: number of
    rows outside of the recording's time, by table.
    """

    axis: Axis
    lanes: list[Lane]
    empty: list[str]
    failed: dict[str, str]
    losses: pd.DataFrame
    outside: dict[str, int]


def timeline(trace: Trace, progress: Callable[[str], None] = lambda what: None) -> Timeline:
    """Makes all lanes that this trace has tables for, in the order in which they are shown.

    `progress` is called with the name of each next part.
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
    """Returns whether there is something to draw. Bins without a series do not count."""
    if lane.kind is Kind.AREAS:
        return len(lane.frame.columns) > 2
    return len(lane.frame) > 0
