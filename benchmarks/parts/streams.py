"""Random streams of page writes, from a seed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def zipf(writes: int, pages: int, skew: float, seed: int = 1) -> NDArray[np.int32]:
    """Returns independent draws of at most `pages` pages; rank k has weight 1 / k ** skew.

    Ids are dense, in the order of the first write, like those of a trace.
    """
    weights = (1 / np.arange(1, pages + 1) ** skew).cumsum()
    drawn = np.searchsorted(weights / weights[-1], np.random.default_rng(seed).random(writes))
    ids, _ = pd.factorize(drawn)
    return ids.astype(np.int32)
