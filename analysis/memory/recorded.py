"""A recording's accesses of the page cache as input of the models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.memory.page_runs import FAULT, READ, WRITE, PageRuns
from tracer.analysis.views.page_states import ACCESS, ADD
from tracer.analysis.views.page_states import FAULT as TOUCHED
from tracer.analysis.views.page_states import MAP as MAPPED
from tracer.analysis.views.page_uses import IN_CONTEXT, page_uses
from tracer.store.trace import Trace

_KINDS = {ACCESS: READ, TOUCHED: FAULT, MAPPED: FAULT, ADD: WRITE}
_NO_EPOCH = -1

_FILES = "SELECT base, pages FROM page_files ORDER BY file"
_RUNS = f"""
SELECT u.row, u.ts, f.base + u.first AS first, u.first AS index, u.pages, u.file, u.kind, u.tid,
    u.read, coalesce(u.target, '') AS target, coalesce(u.epoch, {_NO_EPOCH}) AS epoch
FROM {IN_CONTEXT} u JOIN page_files f USING (file)
ORDER BY u.row
"""


@dataclass(frozen=True)
class Recorded:
    """Accesses of a recording, and the names of their groups and tenants."""

    runs: PageRuns
    groups: pd.DataFrame
    """A row per group: tenant, its target (None: others), and epoch (null: in none)."""
    targets: list[str | None]
    """The target of each tenant; None: others."""
    read: NDArray[np.int64]
    """Pages that the recording brought into the cache, by group (int64[groups])."""
    page_bytes: int


def recorded(trace: Trace) -> Recorded:
    """Returns the accesses of all processes. Needs the table page_cache."""
    page_uses(trace)
    files = trace.arrow(_FILES)
    rows = trace.arrow(_RUNS).to_pandas()
    used = rows["kind"].isin(list(_KINDS)).to_numpy() & (rows["pages"] > 0).to_numpy()
    # Whoever uses no page, and only removes files or reads ahead, is no tenant.
    using = rows["target"].isin(rows["target"][used].unique()).to_numpy()
    rows, used = rows[using], used[using]
    targets, names = pd.factorize(rows["target"])
    keys = pd.MultiIndex.from_arrays([targets, rows["epoch"]])
    groups, found = pd.factorize(keys, sort=True)
    read = np.bincount(groups, weights=rows["read"], minlength=len(found)).astype(np.int64)
    kept = rows[used]
    readers = _readers(kept, len(files))
    runs = PageRuns(
        first=kept["first"].to_numpy(np.int64),
        pages=kept["pages"].to_numpy(np.int32),
        file=kept["file"].to_numpy(np.int32),
        reader=readers,
        tenant=targets[used].astype(np.int32),
        kind=kept["kind"].map(_KINDS).to_numpy(np.int8),
        group=groups[used].astype(np.int32),
        base=files["base"].to_numpy().astype(np.int64),
        size_pages=files["pages"].to_numpy().astype(np.int64),
        ts=kept["ts"].to_numpy(np.int64),
    )
    named = pd.DataFrame(list(found), columns=["tenant", "epoch"])
    named["target"] = pd.Series([names[code] or None for code in named["tenant"]], dtype=object)
    named["epoch"] = named["epoch"].astype("Int64").where(named["epoch"] != _NO_EPOCH)
    page = trace.manifest["host"].get("page_size", 4096)
    return Recorded(runs, named, [name or None for name in names], read, page)


def _readers(kept: pd.DataFrame, files: int) -> NDArray[np.int32]:
    """Returns a number for each time that a thread opens a file.

    No event tells of that, so a thread that reads the first page of a file is taken to have opened
    it anew.
    """
    thread = kept["tid"].to_numpy(np.int64) * (files + 1) + kept["file"].to_numpy(np.int64)
    begins = (kept["index"] == 0) & (kept["kind"] == ACCESS)
    opened = begins.groupby(thread).cumsum().to_numpy(np.int64)
    numbers = pd.MultiIndex.from_arrays([thread, opened])
    return pd.factorize(numbers)[0].astype(np.int32)
