"""Streams of accesses for a flush layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def numbered(pages: Iterable[int]) -> tuple[NDArray[np.int32], int]:
    """Any numbers of pages as dense ids, in the order of their first access, and how many."""
    ids, names = pd.factorize(np.array(list(pages), np.int64))
    return ids.astype(np.int32), len(names)


def zipf(accesses: int, pages: int, skew: float, seed: int = 1) -> tuple[NDArray[np.int32], int]:
    """Independent draws, the page of rank k with a chance of 1 / k ** skew."""
    draw = np.random.default_rng(seed)
    weights = 1 / np.arange(1, pages + 1) ** skew
    return numbered(np.searchsorted(weights.cumsum() / weights.sum(), draw.random(accesses)))


def every_stream(accesses: int, pages: int) -> Iterator[list[int]]:
    """Every stream of at most so many accesses and pages, pages numbered as they come.

    All others are one of these with its pages renamed, which no policy sees.
    """
    longest: list[list[int]] = [[]]
    for _ in range(accesses):
        longest = [
            [*stream, page]
            for stream in longest
            for page in range(min(pages, max(stream, default=-1) + 2))
        ]
        yield from longest
