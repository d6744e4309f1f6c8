"""Verdicts on the rows of a comparison: p of all tests together, verdict and score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracer.analysis.compare.ratio import Values

CHANGED, NOISE, UNTOLD, MISSING = "changed", "inside the noise", "not told", "not measured"
"""Verdicts: beyond chance; explained by chance; too few runs for a test; no ratio."""

LEVEL = 0.05
KEYS = ["topic", "measure", "unit"]
"""Columns that name a measure."""

ROWS = [
    *KEYS, "group", "base", "runs", "base_runs", "mean", "median", "base_mean", "base_median",
    "ratio", "ratio_low", "ratio_high", "pairs", "method", "p", "p_corrected", "verdict", "why",
    "weight", "score", "lossy",
]  # fmt: skip
"""Columns of a comparison's rows."""


def _floats(column: pd.Series[Any], otherwise: float = np.nan) -> Values:
    return np.asarray(pd.to_numeric(column).fillna(otherwise), np.float64)


def corrected(p: Values) -> Values:
    """Returns p of many tests by Benjamini and Hochberg (1995), which bounds false discoveries."""
    falling = np.argsort(-p, kind="stable")
    rank = np.arange(len(p), 0, -1)
    found = np.empty(len(p))
    found[falling] = np.minimum.accumulate(p[falling] * len(p) / rank).clip(max=1)
    return found


def judged(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns rows with corrected p, verdict and score, in order of verdict and score."""
    if not len(rows):
        return rows
    p = pd.to_numeric(rows["p"])
    of_all = pd.Series(np.nan, index=rows.index)
    tested = p.notna()
    if tested.any():
        of_all[tested] = corrected(p[tested].to_numpy(float))
    rows["p_corrected"] = of_all
    known = pd.to_numeric(rows["ratio"])
    rows["verdict"] = np.select(
        [known.isna(), ~tested, of_all < LEVEL], [MISSING, UNTOLD, CHANGED], NOISE
    )
    weight = _floats(rows["weight"], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high, middle = (
            np.log(_floats(rows[name])) for name in ("ratio_low", "ratio_high", "ratio")
        )
    # fmax ignores the missing end of an interval that is open to one side.
    beyond = np.fmax(np.fmax(low, -high), 0.0)
    # A ratio of 0 ranks as one of 1/e, so that it does not come first.
    of_one = np.nan_to_num(np.abs(middle), nan=0.0, posinf=1.0)
    # A ratio of 0 has no interval, also if it was tested.
    alone = (rows["verdict"] == UNTOLD) | ((rows["verdict"] == CHANGED) & (known == 0))
    rows["score"] = weight * np.where(alone, of_one, beyond)
    order = {CHANGED: 0, UNTOLD: 1, NOISE: 2, MISSING: 3}
    ranked = rows.assign(
        _verdict=rows["verdict"].map(order), _score=-rows["score"], _size=-(weight * of_one)
    ).sort_values(["_verdict", "_score", "_size", *KEYS, "group"], ignore_index=True)
    return ranked[ROWS]
