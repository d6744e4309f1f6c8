"""95 % intervals of means over runs, which stay within the possible values.

A study has two to some tens of runs of a kind. A bootstrap of two or three values cannot leave
their range and covers far less than 95 %; a beta interval needs counts of independent events, which
shares of a run are not. So the interval is Student's, which suits few repeats, on a scale on which
every value is possible: the logarithm of a size or ratio, the logit of a share. The standard error
is carried over to that scale at the mean (the delta method), so values of exactly 0 or 1 need no
special case, the mean stays the arithmetic mean and lies within the interval, and nothing is drawn
at random: the same runs always have the same interval. Where the spread is small beside the
distance to the bounds, the interval is Student's own. If all values are equal, it has no width. If
Student's own interval of a size reaches 0, so does this one: one wild run decides no claim.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.statistics import t_quantile

ANY = (-math.inf, math.inf)
"""The possible values of a difference."""
POSITIVE = (0.0, math.inf)
"""The possible values of a size, a count, a time, or a ratio of these."""
SHARE = (0.0, 1.0)
PERCENT = (0.0, 100.0)
"""The possible values of a share, as a number or in per cent."""

_LEVEL = 0.975
"""Probability in each of the two tails."""
_ROUNDING = 1e-9
"""Share of the possible range by which a value may lie beyond it for being rounded."""


def interval(
    values: NDArray[np.float64], possible: tuple[float, float] = ANY
) -> tuple[float, float, float]:
    """Returns the mean of at least two values and its 95 % interval, within `possible`.

    If a value is not possible, or the mean lies on a bound, the interval is Student's own.
    """
    least, most = possible
    values = _snapped(values, least, most)
    mean, error = _mean_and_error(values)
    half = t_quantile(_LEVEL, len(values) - 1) * error
    within = bool((values >= least).all() and (values <= most).all()) and least < mean < most
    if half == 0 or not within or possible == ANY:
        return mean, mean - half, mean + half
    if math.isinf(most):
        low, high = _of_size(mean - least, half)
        return mean, least + low, least + high
    if math.isinf(least):
        low, high = _of_size(most - mean, half)
        return mean, most - high, most - low
    width = most - least
    low, high = _of_share((mean - least) / width, half / width)
    return mean, least + width * low, least + width * high


def _snapped(values: NDArray[np.float64], least: float, most: float) -> NDArray[np.float64]:
    """Returns the values; those that rounding has carried beyond the bounds of a share lie on one.

    Ten causes of all faults may have 100.00000000000001 % together.
    """
    on_bound = np.clip(values, least, most)
    reach = _ROUNDING * (most - least) if math.isfinite(most - least) else 0.0
    return np.where(np.abs(on_bound - values) <= reach, on_bound, values)


def _mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Returns the mean and its standard error, of values as large as a damaged file may have."""
    scale = math.ldexp(1.0, min(1000, max(-1000, math.frexp(float(np.abs(values).max()))[1])))
    scaled = values / scale
    error = float(scaled.std(ddof=1)) / math.sqrt(len(values))
    return float(scaled.mean()) * scale, error * scale


def _of_size(mean: float, half: float) -> tuple[float, float]:
    step = half / mean
    factor = math.exp(min(step, 700.0))
    # One wild value of n makes the error as large as the mean, never larger: on the scale of the
    # logarithm, the low end would stay above mean * exp(-t), however small the other values are.
    low = mean * math.exp(-step) if step < 1 else 0.0
    return low, min(mean * factor, sys.float_info.max)


def _of_share(mean: float, half: float) -> tuple[float, float]:
    step = half / (mean * (1 - mean))
    odds = mean / (1 - mean)
    low, high = odds * math.exp(-min(step, 700.0)), odds * math.exp(min(step, 600.0))
    return low / (1 + low), 1.0 if math.isinf(high) else high / (1 + high)
