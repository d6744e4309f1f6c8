"""Streams of page writes, made by seed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def zipf(writes: int, pages: int, skew: float, seed: int = 1) -> NDArray[np.int32]:
    """Independent draws of at most `pages` pages, the one of rank k with a chance of 1 / k ** skew.

    Ids are dense, in the order of the first write, as those of a trace are.
    """
    weights = (1 / np.arange(1, pages + 1) ** skew).cumsum()
    drawn = np.searchsorted(weights / weights[-1], np.random.default_rng(seed).random(writes))
    ids, _ = pd.factorize(drawn)
    return ids.astype(np.int32)
