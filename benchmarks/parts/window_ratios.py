"""The ratio of windows with a tool to the windows without it that they alternate with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Average = Callable[[np.ndarray], Any]
"""A function that returns one number of an array."""


def geometric_mean(found: np.ndarray) -> Any:
    """Returns the mean in which two times as long and half as long balance each other."""
    return np.exp(np.mean(np.log(found)))


def ratios(medians: Sequence[float]) -> np.ndarray:
    """Returns two ratios per window with the tool: over the window before and the one after it.

    `medians` alternate: without, with, without, ... The ratios are nan if one of the three windows
    is. Over the mean of both neighbours, the median ratio would be too small: slow moments lie
    farther from the median than fast ones, and two windows have more of them than one.
    """
    windows = np.array(medians, float)
    found: np.ndarray = windows[1:-1:2, None] / np.column_stack([windows[:-2:2], windows[2::2]])
    return np.where(np.isnan(found).any(axis=1, keepdims=True), np.nan, found)


def interval(found: np.ndarray, average: Average = np.median) -> tuple[float, float, float]:
    """Returns the average of the ratios, and its 95 % bootstrap interval.

    Two neighbouring windows share the window between them, so pairs of neighbours are drawn.
    """
    rng = np.random.default_rng(23)
    count = len(found)
    first = rng.integers(count, size=(10_000, -(-count // 2)))
    chosen = np.concatenate([first, (first + 1) % count], axis=1)[:, :count]
    draws = [average(found[rows]) for rows in chosen]
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(average(found)), float(low), float(high)
