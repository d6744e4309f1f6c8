"""The LRU curve, estimated from samples of the pages, with an interval.

SHARDS at a fixed rate (Waldspurger et al., Efficient MRC construction with SHARDS, FAST 2015): a
page is in the sample if the hash of its id is small, and depths in the sample's stack are scaled
up. There are two refinements. First, every sample has all of the hottest pages, with a weight of
one, because samples of skewed streams differ most in the hot pages that they contain. Second, the
weights are the true ratios of the stream's distinct pages and re-writes to those of the sample, not
the nominal rate.

Each salt of the hash gives another sample; the interval is Student's t interval over their curves.
Depths come in steps of 1 / rate pages, so there is no estimate for capacities of a few such steps.
The exact curve takes one pass (stack_distances.py); sampling is for streams for which that pass
takes too much memory or time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.flushlayer.curves.curve import spread
from analysis.flushlayer.policies.simulation import Pages, check
from analysis.statistics import t_quantile
from probes.compiled import compiled
from probes.errors import UsageError

_COLD, _HOT = 1, 2
_STEPS = 5
_COLD_ONE = 1 << 32  # both counts of a place in one number: hot in the low bits, cold in the high


def sampled_curve(
    page: Pages,
    unique: int,
    rate: float,
    capacities: NDArray[np.int64] | None = None,
    salts: int = 8,
    hot_pages: int = 1024,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimates the pages that a write-only LRU layer destages, from samples of the pages.

    `page`: int32[N], every id of 0 .. unique-1 at least once; `rate`: the share of the pages in a
    sample; `salts`: number of samples, at least two; `hot_pages`: number of the most written pages,
    which are in every sample. Columns: `capacity_pages` (as given, or of `spread`), `destaged` (the
    mean of the samples), `low` and `high` (the interval of the mean); NaN for capacities below five
    times 1 / rate. Raises UsageError for a rate out of range, a rate so low that no sampled page
    is written twice, and less than two samples.
    """
    check(page, unique, None)
    if not 0 < rate <= 1:
        raise UsageError(
            f"a sampling rate of {rate} cannot be", "give a rate above 0 and up to 1, e.g. 0.01"
        )
    if salts < 2:
        raise UsageError(f"{salts} samples have no interval", "give 2 or more")
    wanted = spread(unique) if capacities is None else np.unique(capacities)
    written = np.bincount(page, minlength=unique)
    hot = np.zeros(unique, bool)
    hot[np.argsort(-written, kind="stable")[:hot_pages]] = True
    estimates = np.array([_sample(page, written, hot, rate, salt, wanted) for salt in range(salts)])
    mean = estimates.mean(axis=0)
    wide = t_quantile((1 + confidence) / 2, salts - 1) / np.sqrt(salts)
    margin = wide * estimates.std(axis=0, ddof=1)
    most = np.where(wanted > 0, len(page) - np.minimum(wanted, unique), 0)
    rough = (wanted > 0) & (wanted * rate < _STEPS) & (rate < 1)

    def told(pages: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(rough, np.nan, pages.clip(0, most))

    return pd.DataFrame(
        {
            "capacity_pages": wanted,
            "destaged": told(mean),
            "low": told(mean - margin),
            "high": told(mean + margin),
        }
    )


def _sample(
    page: Pages,
    written: NDArray[np.int64],
    hot: NDArray[np.bool_],
    rate: float,
    salt: int,
    capacities: NDArray[np.int64],
) -> NDArray[np.float64]:
    unique = len(written)
    cold = ~hot
    taken = cold & _hashed_below(unique, rate, salt)
    rewrites, taken_rewrites = (int((written[w] - 1).sum()) for w in (cold, taken))
    if rewrites and not taken_rewrites:
        raise UsageError(
            f"with a sampling rate of {rate}, no sampled page is written twice",
            "give a higher rate",
        )
    pages_each = cold.sum() / max(1, taken.sum())
    rewrites_each = rewrites / max(1, taken_rewrites)
    kept = np.zeros(unique, np.uint8)
    kept[taken] = _COLD
    kept[hot] = _HOT
    hits = np.zeros((2, len(capacities) + 1))
    _depths(page, kept, int(written[kept > 0].sum()), pages_each, capacities, hits)
    known = np.cumsum(hits[1] + hits[0] * rewrites_each)[:-1]
    destaged: NDArray[np.float64] = len(page) - known - np.minimum(capacities, unique)
    return np.where(capacities > 0, destaged, 0.0)


def _hashed_below(unique: int, rate: float, salt: int) -> NDArray[np.bool_]:
    # splitmix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014).
    key = np.arange(1, unique + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        key += np.uint64(salt) << np.uint64(32)
        key *= np.uint64(0x9E3779B97F4A7C15)
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        key ^= key >> np.uint64(31)
    return (key >> np.uint64(11)) < rate * 2.0**53


@compiled
def _depths(
    page: Any, kept: Any, places: int, pages_each: float, capacities: Any, hits: Any
) -> None:
    # hits[kind, k]: re-writes of cold (0) and hot pages (1) that hit from capacities[k] on.
    last = np.full(len(kept), -1, np.int64)
    tree = np.zeros(places + 1, np.int64)
    total = 0
    now = 0
    for i in range(len(page)):
        p = page[i]
        if kept[p] == 0:
            continue
        one = 1 if kept[p] == _HOT else _COLD_ONE
        if last[p] >= 0:
            above = total
            node = last[p] + 1
            while node > 0:
                above -= tree[node]
                node &= node - 1
            depth = 1 + (above & (_COLD_ONE - 1)) + (above >> 32) * pages_each
            hits[kept[p] - 1, np.searchsorted(capacities, depth)] += 1
            node = last[p] + 1
            while node <= places:
                tree[node] -= one
                node += node & -node
        else:
            total += one
        last[p] = now
        now += 1
        node = now
        while node <= places:
            tree[node] += one
            node += node & -node
