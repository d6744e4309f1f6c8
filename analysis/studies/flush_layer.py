"""The saving by a flush layer of any capacity, by the model of Park & Bahn 2023."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.curves.every_capacity import (
    curve,
    improvements,
    smallest_capacity,
    thinned,
)
from tracer.analysis.flushlayer.trace.accesses import (
    PATH_NOT_KNOWN,
    Accesses,
    Identity,
    page_writebacks,
)
from tracer.analysis.studies.papers.numbers import numbers
from tracer.store.trace import Trace

ALL, FILES = "all", "files"
"""The writes that count: all, or only those of files, without the journal and metadata."""

_MOST_ROWS = 60
_curves: WeakKeyDictionary[Trace, dict[str | None, pd.DataFrame]] = WeakKeyDictionary()
"""Curves of live traces, by device: a run's measures and its extracts use the same curve."""


def run_writebacks(trace: Trace, dev: str | None, identity: Identity = Identity.BLOCK) -> Accesses:
    """Returns a run's page write-backs: all to its disk `dev`, or the targets' if it has none."""
    devices = None if dev is None else [dev]
    return page_writebacks(trace, devices, identity, all_writers=dev is not None)


def layer_curve(trace: Trace, dev: str | None = None) -> pd.DataFrame:
    """Returns the improvement by an LRU layer (`pcm-paper` before `hdd-paper`), by capacity.

    Columns: identity (`Identity`: what makes a page the same), writes (ALL or FILES), written (N,
    pages), distinct (U of them), fell_back (of N: identified by another identity, because the file
    or its path is not known), capacity_pages, capacity_share (of the distinct pages), improvement
    (without the final drain), improvement_with_drain. Has a row for about 60 capacities of each
    identity and of each kind of writes, among them the least that reaches each number of the
    paper's Figure 6. `dev` is the run's own disk: all write-backs to it count. Without `dev`, those
    of the trace's targets count. May have no rows.
    """
    kept = _curves.setdefault(trace, {})
    if dev not in kept:
        kept[dev] = _layer_curve(trace, dev)
    return kept[dev].copy()


def possible_savings() -> tuple[float, float]:
    """Returns the least and the greatest improvement by the paper's devices, final drain included.

    A layer at worst adds its own time to each write: no more pages reach the disk than without it.
    """
    medium = devices.find_device("pcm-paper", "nvm")
    disk = devices.find_device("hdd-paper", "disk")
    return -medium.write_ns / disk.write_ns, 1.0


def _layer_curve(trace: Trace, dev: str | None) -> pd.DataFrame:
    medium = devices.find_device("pcm-paper", "nvm")
    disk = devices.find_device("hdd-paper", "disk")
    papers = numbers("park2023_fig6_io_latency_improvement")["improvement"].unique()
    parts = []
    for identity in Identity:
        accesses = run_writebacks(trace, dev, identity)
        mapping = accesses.by_mapping
        fell_back = mapping.get("not mapped", 0) + mapping.get(PATH_NOT_KNOWN, 0)
        for writes, page, unique in _counted(accesses):
            if unique == 0:
                continue
            every = improvements(curve("lru", page, unique), medium.write_ns, disk.write_ns)
            reached = (smallest_capacity(every, wanted) for wanted in papers)
            kept = {*thinned(every, _MOST_ROWS)["capacity_pages"], *(n for n in reached if n)}
            some = every[every["capacity_pages"].isin(kept)]
            parts.append(
                some.assign(
                    identity=str(identity),
                    writes=writes,
                    written=len(page),
                    distinct=unique,
                    fell_back=fell_back,
                    capacity_share=some["capacity_pages"] / unique,
                )
            )
    columns = ["identity", "writes", "written", "distinct", "fell_back", "capacity_pages"]
    columns += ["capacity_share", "improvement", "improvement_with_drain"]
    if not parts:
        return pd.DataFrame(columns=columns)
    return pd.concat(parts, ignore_index=True)[columns]


def _counted(accesses: Accesses) -> Iterator[tuple[str, NDArray[np.int32], int]]:
    """Yields each kind of writes with its pages (dense ids) and the number of distinct ones."""
    yield ALL, accesses.page, accesses.unique
    if accesses.bios is not None:
        of_files = accesses.page[accesses.bios.data[accesses.bios.of_pages()]]
        dense, names = pd.factorize(of_files)
        yield FILES, dense.astype(np.int32), len(names)


def most_saved(curves: pd.DataFrame) -> float:
    """Returns the most that any capacity saves with the final drain, of all writes, by block or by
    file; NaN without writes."""
    own = curves[curves["identity"].isin([Identity.BLOCK, Identity.FILE])]
    return float(own.loc[own["writes"] == ALL, "improvement_with_drain"].max())
