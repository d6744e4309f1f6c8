"""Rows of a comparison in readable units."""

from __future__ import annotations

import pandas as pd

_MIB = 1 << 20
_VALUES = ("mean", "median", "base_mean", "base_median")


def readable(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns `Comparison.rows` with MiB in place of bytes. Ratios do not change."""
    of_bytes = rows["unit"] == "bytes"
    scaled = {
        name: pd.to_numeric(rows[name]).where(~of_bytes, pd.to_numeric(rows[name]) / _MIB)
        for name in _VALUES
    }
    return rows.assign(unit=rows["unit"].mask(of_bytes, "MiB"), **scaled)
