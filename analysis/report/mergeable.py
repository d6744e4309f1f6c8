"""Tables that are made in two steps, so that those of many traces can be one.

First parts of a trace: counts, sums, extremes and histograms, a row a key. Parts of several
traces are added up key by key. Then the table is finished: shares, means, quantiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tracer.store.trace import Trace


@dataclass(frozen=True)
class Mergeable:
    """A table by its parts."""

    keys: tuple[str, ...]
    """Columns of the parts that tell rows apart. Of the others, those called min_... and max_...
    are extremes, and the rest are sums; null: of nothing."""
    parts: Callable[[Trace], pd.DataFrame]
    """The parts of one trace, each key once."""
    finish: Callable[[pd.DataFrame], pd.DataFrame]
    """The table of such parts."""

    def of(self, trace: Trace) -> pd.DataFrame:
        """The table of one trace."""
        return self.finish(self.parts(trace))

    def together(self, parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
        """The parts of several traces as those of one: associative, and in any order."""
        return added(pd.concat(list(parts), ignore_index=True), self.keys)


def added(every: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Rows of the same keys as one row: extremes of columns min_... and max_..., sums of others."""
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
        if every[name].dtype == object:  # grouping makes NaN of None
            names = summed[name].astype(object)
            summed[name] = names.where(names.notna(), None)
    return summed


def whole(values: pd.Series[Any]) -> pd.Series[Any]:
    """Sums that are whole numbers as such; as they are where they are too great for it."""
    return values.astype("Int64") if values.abs().max() < 2**63 or not len(values) else values
