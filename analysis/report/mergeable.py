"""The merging of the parts of tables (`tracer.analysis.report.table.MergedTable`), key by key."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd


def added(every: pd.DataFrame, keys: Sequence[str], unknown: Collection[str] = ()) -> pd.DataFrame:
    """Merges rows with equal keys: extremes of columns min_... and max_..., sums of the others.

    A null is nothing to sum; in the columns `unknown`, a sum with a null is null.
    """
    groups = every.groupby(list(keys), dropna=False, sort=False)
    found = {}
    for name in every.columns:
        if name in keys:
            continue
        if name.startswith("min_"):
            found[name] = groups[name].min()
        elif name.startswith("max_"):
            found[name] = groups[name].max()
        else:
            found[name] = groups[name].sum(min_count=1)
            if name in unknown:
                found[name] = found[name].where(groups[name].count() == groups.size())
    summed = pd.DataFrame(found).reset_index()[list(every.columns)]
    for name in keys:
        if every[name].dtype == object:  # grouping turns None into NaN
            names = summed[name].astype(object)
            summed[name] = names.where(names.notna(), None)
    return summed


def whole(values: pd.Series[Any]) -> pd.Series[Any]:
    """Converts sums to integers, unless one is too large for 64 bits."""
    return values.astype("Int64") if values.abs().max() < 2**63 or not len(values) else values
