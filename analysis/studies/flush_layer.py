"""The saving by a flush layer of any capacity, by the model of Park & Bahn 2023."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import pandas as pd

from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.curves.curve import curve, improvements, smallest_capacity, thinned
from tracer.analysis.flushlayer.trace.accesses import Accesses, Identity, page_writebacks
from tracer.analysis.studies.papers.numbers import numbers
from tracer.store.trace import Trace

_MOST_ROWS = 120
_curves: WeakKeyDictionary[Trace, dict[str | None, pd.DataFrame]] = WeakKeyDictionary()
"""Curves of live traces, by device: a run's measures and its extracts use the same curve."""


def run_writebacks(trace: Trace, dev: str | None, identity: Identity = Identity.BLOCK) -> Accesses:
    """Returns a run's page write-backs: all to its disk `dev`, or the targets' if it has none."""
    devices = None if dev is None else [dev]
    return page_writebacks(trace, devices, identity, all_writers=dev is not None)


def layer_curve(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns the improvement by an LRU layer (`pcm-paper` before `hdd-paper`), by capacity.

    Columns: identity (block or file: what makes a page the same), capacity_pages, capacity_share
    (of the distinct pages written), improvement (without the final drain), improvement_with_drain.
    Has a row for about 120 capacities of each identity, among them the least that reaches each
    number of the paper's Figure 6. `dev` is the run's own disk: all write-backs to it count, with
    journal and metadata. Without `dev`, those of the trace's targets count. May have no rows.
    """
    kept = _curves.setdefault(trace, {})
    if dev not in kept:
        kept[dev] = _layer_curve(trace, dev)
    return kept[dev].copy()


def _layer_curve(trace: Trace, dev: str | None) -> pd.DataFrame:
    medium = devices.find_device("pcm-paper", "nvm")
    disk = devices.find_device("hdd-paper", "disk")
    parts = []
    for identity in Identity:
        accesses = run_writebacks(trace, dev, identity)
        if accesses.unique == 0:
            continue
        every = improvements(
            curve("lru", accesses.page, accesses.unique), medium.write_ns, disk.write_ns
        )
        papers = numbers("park2023_fig6_io_latency_improvement")["improvement"].unique()
        reached = (smallest_capacity(every, wanted) for wanted in papers)
        kept = {*thinned(every, _MOST_ROWS)["capacity_pages"], *(n for n in reached if n)}
        some = every[every["capacity_pages"].isin(kept)]
        parts.append(
            some.assign(
                identity=str(identity), capacity_share=some["capacity_pages"] / accesses.unique
            )
        )
    columns = ["identity", "capacity_pages", "capacity_share", "improvement"]
    columns.append("improvement_with_drain")
    if not parts:
        return pd.DataFrame(columns=columns)
    return pd.concat(parts, ignore_index=True)[columns]
