"""Tables made in two steps, so that the tables of many traces can be merged into one.

The first step makes the parts of a trace: counts, sums, extremes and histograms, one row per key.
The parts of several traces are added up key by key. The second step computes the shares, means and
quantiles of the table from the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tracer.store.trace import Trace


@dataclass(frozen=True)
class Mergeable:
    """A table that is computed from mergeable parts."""

    keys: tuple[str, ...]
    """Columns that identify a row of the parts. Columns named min_... and max_... are extremes.
    All other columns are sums; null means that there was nothing to sum."""
    parts: Callable[[Trace], pd.DataFrame]
    """Function that makes the parts of one trace, one row per key."""
    finish: Callable[[pd.DataFrame], pd.DataFrame]
    """Function that makes the table from the parts."""

    def of(self, trace: Trace) -> pd.DataFrame:
        """Returns the table of one trace."""
        return self.finish(self.parts(trace))

    def together(self, parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
        """Returns the merged parts of several traces. Merging is associative and commutative."""
        return added(pd.concat(list(parts), ignore_index=True), self.keys)


def added(every: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Merges rows with equal keys: extremes of columns min_... and max_..., sums of the others."""
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
    summed = pd.DataFrame(found).reset_index()[list(every.columns)]
    for name in keys:
        if every[name].dtype == object:  # grouping turns None into NaN
            names = summed[name].astype(object)
            summed[name] = names.where(names.notna(), None)
    return summed


def whole(values: pd.Series[Any]) -> pd.Series[Any]:
    """Converts sums to integers, unless one is too large for 64 bits."""
    return values.astype("Int64") if values.abs().max() < 2**63 or not len(values) else values
