"""The ratio of a measure in two groups of repeats, with its interval and p.

The statistic is the logarithm of the ratio of the means. Its standard error is that of the delta
method, from the values relative to their group's mean. If runs pair, it is that of the differences
of these within pairs. With `LEAST` repeats or more, the interval is that of a studentized bootstrap
(bootstrap-t: Efron and Tibshirani 1993, chapter 12), which resamples repeats, or pairs. A
percentile interval of so few repeats is much too narrow (Hesterberg 2015, The American Statistician
69(4)). With fewer repeats, resamples are often equal, so the interval is Student's, with Welch's
degrees of freedom if runs do not pair. Resamples of small counts have few different values, so they
reach less far than chance does. Each end is thus that of Student's interval if this one is farther
out, and p is no smaller than Student's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.statistics import t_beyond, t_quantile

Values = NDArray[np.float64]

LEAST = 5
"""Least number of repeats for a bootstrap."""
LEVEL = 0.95
RESAMPLES = 9999
BOOTSTRAP, STUDENT, CONSTANT = "bootstrap", "Student", "no spread"
PERMUTATION = "permutation"
_SEED = 23
_NO_SPREAD = 1e-6
"""Relative standard error up to which values count as constant.

Clocks and counters of real runs vary more.
"""
_ROUNDING = 1e-12
_MOST_DEGENERATE = 0.005
_TAIL = (1 - LEVEL) / 2


@dataclass(frozen=True)
class Ratio:
    """The ratio of two means.

    `low` and `high`: its 95 % interval. `p`: the probability that chance alone gives a difference
    as clear. `method`: the method of the interval. `why`: the reason for values that are None.
    """

    ratio: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    method: str | None = None
    why: str = ""


def ratio(base: Values, other: Values, paired: bool = False) -> Ratio:
    """Returns the ratio of the mean of `other` to that of `base`.

    `paired`: values at the same index are a pair. The values must be finite and not empty. There
    is no ratio if a value is below 0 or the base's mean is 0.
    """
    if (base < 0).any() or (other < 0).any():
        return Ratio(None, why="some values are below 0")
    a, b = float(base.mean()), float(other.mean())
    if a == 0:
        return Ratio(None, why="it is 0 in both groups" if b == 0 else "it is 0 in the base")
    if b == 0:
        return _to_nothing(base, len(other), paired)
    found = b / a
    if min(len(base), len(other)) < 2:
        return Ratio(found, why="one pair" if paired else "one run has no spread")
    log, error, freedom = _statistic(base, other, paired)
    if not error > _NO_SPREAD:
        return _without_spread(found, len(base), len(other), paired)
    if min(len(base), len(other)) >= LEAST:
        drawn = _resampled(base, other, paired, log)
        if drawn is not None:
            return _by_bootstrap(found, log, error, freedom, drawn)
    reach = t_quantile(1 - _TAIL, freedom) * error
    p = 2 * t_beyond(abs(log) / error, freedom)
    return Ratio(found, _exp(log - reach), _exp(log + reach), p, STUDENT)


def _without_spread(found: float, of_base: int, of_other: int, paired: bool) -> Ratio:
    """Returns the ratio of values that never vary.

    p is the share of all permutations of the runs that give a difference as clear.
    """
    if abs(found - 1) <= _NO_SPREAD:
        return Ratio(found, found, found, 1.0, CONSTANT)
    p = 2 / (2**of_base if paired else math.comb(of_base + of_other, of_base))
    if p >= 1 - LEVEL:
        why = "neither group varies, but there are too few runs for a test"
        return Ratio(found, found, found, None, CONSTANT, why)
    return Ratio(found, found, found, p, CONSTANT)


def _to_nothing(base: Values, of_other: int, paired: bool) -> Ratio:
    """Returns the ratio 0, which has no logarithm, hence no interval.

    p is twice the share of all permutations of the runs (or, of pairs, of all exchanges within
    pairs) in which this group is 0.
    """
    why = "it is 0 in this group"
    if min(len(base), of_other) < 2:
        return Ratio(0.0, why=why)
    above = int(np.count_nonzero(base))
    if paired:
        clear, p = 2 / 2 ** len(base), 2 / 2**above
    else:
        every = math.comb(len(base) + of_other, of_other)
        clear, p = 2 / every, 2 * math.comb(len(base) - above + of_other, of_other) / every
    if clear >= 1 - LEVEL:
        return Ratio(0.0, why=f"{why}, and there are too few runs for a test")
    return Ratio(0.0, p=min(1.0, p), method=PERMUTATION, why=why)


def _by_bootstrap(found: float, log: float, error: float, freedom: float, drawn: Values) -> Ratio:
    reach = t_quantile(1 - _TAIL, freedom)
    low, high = np.quantile(drawn, [_TAIL, 1 - _TAIL])
    low, high = min(float(low), -reach), max(float(high), reach)
    seen = log / error
    least = float(min((drawn >= seen).sum(), (drawn <= seen).sum()))
    p = 2 * t_beyond(abs(seen), freedom)
    if least:
        # If no resample is as far out, they only tell that p is small. Of many tests, a p that
        # cannot be smaller than that would never be significant, so Student's p is told alone.
        p = max(p, min(1.0, 2 * (1 + least) / (1 + len(drawn))))
    return Ratio(found, _exp(log - high * error), _exp(log - low * error), p, BOOTSTRAP)


def _statistic(base: Values, other: Values, paired: bool) -> tuple[float, float, float]:
    """Returns the log ratio of the means, its standard error and its degrees of freedom."""
    log = float(np.log(other.mean() / base.mean()))
    of_base, of_other = base / base.mean(), other / other.mean()
    if paired:
        return log, float((of_other - of_base).std(ddof=1) / math.sqrt(len(base))), len(base) - 1.0
    parts = np.array([of_base.var(ddof=1) / len(base), of_other.var(ddof=1) / len(other)])
    total = float(parts.sum())
    if total == 0:
        return log, 0.0, 1.0
    weights = np.array([len(base) - 1, len(other) - 1])
    return log, total**0.5, total**2 / float((parts**2 / weights).sum())


def _resampled(base: Values, other: Values, paired: bool, log: float) -> Values | None:
    """Returns the studentized log ratios of resamples; None if too many have no spread."""
    random = np.random.default_rng(_SEED)
    rows = random.integers(0, len(base), (RESAMPLES, len(base)))
    columns = rows if paired else random.integers(0, len(other), (RESAMPLES, len(other)))
    a, b = base[rows], other[columns]
    of_a, of_b = a.mean(axis=1), b.mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(of_b / of_a)
        near, far = a / of_a[:, None], b / of_b[:, None]
        if paired:
            errors = np.sqrt((far - near).var(axis=1, ddof=1) / len(base))
        else:
            errors = np.sqrt(
                near.var(axis=1, ddof=1) / len(base) + far.var(axis=1, ddof=1) / len(other)
            )
        drawn = (logs - log) / errors
    # Rounding alone gives equal values an error up to `_ROUNDING`.
    usable = np.isfinite(drawn) & (errors > _ROUNDING)
    if usable.mean() < 1 - _MOST_DEGENERATE:
        return None
    return np.asarray(drawn[usable], np.float64)


def _exp(value: float) -> float | None:
    with np.errstate(over="ignore"):
        found = float(np.exp(value))
    return found if np.isfinite(found) else None
