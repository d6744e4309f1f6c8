"""Quantiles of any number of values in little memory, for one trace or several together.

Values are counted in buckets: each power of two is cut into 128 equal buckets, and each integer of
absolute value below 256 has its own bucket. A bucket keeps its least and greatest value; values
between them are assumed to be evenly spread. A quantile is therefore exact if its bucket holds at
most two values, and otherwise off by less than 1/128 of itself. Buckets of the same number can be
added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

CUTS = 128
"""Buckets in each power of two."""
_BITS = 7
_GREATEST = (1 << 63) - 1


def bucket(value: str) -> str:
    """Returns SQL for the bucket number of an integer (BIGINT); null for null."""
    size = f"abs(greatest({value}, -{_GREATEST}))"
    # If log2 is rounded up to p, the bucket is still right: p * 128 + 127 = (p - 1) * 128 + 255.
    power = f"greatest({_BITS}, floor(log2(greatest({size}, 1))))::INTEGER"
    return f"(sign({value}) * ({power}::BIGINT * {CUTS} + ({size} >> ({power} - {_BITS}))))::BIGINT"


def buckets(value: str) -> str:
    """Returns SQL for the columns of a bucket, in a query that is grouped by all other columns.

    Columns: bucket (null: null values), n, sum_ns (as a float), min_ns, max_ns.
    """
    return (
        f"{bucket(value)} AS bucket, count(*) AS n, sum({value})::DOUBLE AS sum_ns, "
        f"min({value}) AS min_ns, max({value}) AS max_ns"
    )


def spread(
    parts: pd.DataFrame, keys: Sequence[str], shares: Sequence[float] = (0.5, 0.99)
) -> pd.DataFrame:
    """Computes the statistics of each group of `keys` from its buckets, without null values.

    Indexed by `keys`. Columns: values (number of values), total, mean, min, max, and one pQ per
    share: the quantile, interpolated between two values as in SQL's quantile_cont.
    """
    by = list(keys)
    kept = parts[parts["bucket"].notna()].sort_values([*by, "bucket"])
    kept = kept.astype({"min_ns": float, "max_ns": float})
    groups = kept.groupby(by, dropna=False)
    found = groups.agg(
        values=("n", "sum"), total=("sum_ns", "sum"), min=("min_ns", "min"), max=("max_ns", "max")
    )
    found.insert(2, "mean", found["total"] / found["values"])
    number, least, most = (_floats(kept[name]) for name in ("n", "min_ns", "max_ns"))
    last = _floats(groups["n"].cumsum()) - 1
    first = last - number + 1
    greatest = _floats(groups["n"].transform("sum")) - 1

    def at(rank: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the value of that rank in each group, in order of the groups."""
        here = (first <= rank) & (rank <= last)
        inside = (rank - first)[here] / np.maximum(number[here] - 1, 1)
        return least[here] + (most - least)[here] * inside

    for share in shares:
        rank = share * greatest
        whole = np.floor(rank)
        low, high = at(whole), at(np.ceil(rank))
        found[f"p{100 * share:g}"] = (
            low + (high - low) * (rank - whole)[(first <= whole) & (whole <= last)]
        )
    return found


def _floats(values: pd.Series[Any]) -> NDArray[np.float64]:
    return values.to_numpy(dtype=float)


def spread_query(histogram: str, keys: Sequence[str], shares: Sequence[float] = (0.5, 0.99)) -> str:
    """Returns SQL for the results of `spread`, for use with many groups and few results.

    `histogram`: a query with the columns of `buckets`, and `keys`. Columns: keys, values, max_ns,
    and one pQ_ns per share.
    """
    by = ", ".join(keys)

    def at(rank: str) -> str:
        inside = f"({rank} - before) / greatest(n - 1, 1)"
        value = f"min_ns::DOUBLE + (max_ns::DOUBLE - min_ns::DOUBLE) * {inside}"
        return f"max({value}) FILTER ({rank} >= before AND {rank} < before + n)"

    quantiles = []
    for share in shares:
        low, high = at(f"floor({share} * most)"), at(f"ceil({share} * most)")
        part = f"any_value({share} * most - floor({share} * most))"
        quantiles.append(f"{low} + ({high} - {low}) * {part} AS p{100 * share:g}_ns")
    return f"""
        SELECT {by}, sum(n)::BIGINT AS values, max(max_ns) AS max_ns, {", ".join(quantiles)}
        FROM (
            SELECT *, sum(n) OVER (PARTITION BY {by} ORDER BY bucket) - n AS before,
                sum(n) OVER (PARTITION BY {by}) - 1 AS most
            FROM ({histogram}) WHERE bucket IS NOT NULL
        ) GROUP BY {by}
        """
