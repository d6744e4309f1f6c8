"""Runs whose true ratios are known, and intervals of a ratio, worked out naively.

It is written from docs/findings.md (Comparisons), not from the code of `tracer compare`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

Numbers = npt.NDArray[np.float64]
Row = dict[str, Any]


def draws(
    rng: np.random.Generator, measures: int, runs: int, spread: float = 0.1, common: float = 0.0
) -> tuple[Numbers, Numbers, Numbers]:
    """Returns the true ratio of each measure, and values of the base's runs and of the others.

    Rows are measures, columns are runs. Values scatter by `spread`. Runs of a pair have a factor in
    common that scatters by `common`: the work that both do.
    """
    true = rng.choice([1.0, 1.0, 1.25, 0.8, 2.0], measures)
    level = rng.uniform(1000, 5000, measures)[:, None] * np.exp(
        rng.normal(0, common, (measures, runs))
    )
    base = level * np.exp(rng.normal(0, spread, (measures, runs)))
    other = level * true[:, None] * np.exp(rng.normal(0, spread, (measures, runs)))
    return true, base, other


def parts(base: Numbers, other: Numbers, paired: bool) -> tuple[Numbers, Numbers]:
    """The logarithm of the ratio of the means, and its standard error (delta method).

    The last axis is that of the runs.
    """
    mean, others = base.mean(-1), other.mean(-1)
    if paired:
        apart = other / others[..., None] - base / mean[..., None]
        error = apart.std(-1, ddof=1) / np.sqrt(base.shape[-1])
    else:
        error = np.sqrt(
            (base.std(-1, ddof=1) / mean) ** 2 / base.shape[-1]
            + (other.std(-1, ddof=1) / others) ** 2 / other.shape[-1]
        )
    return np.log(others / mean), error


def freedom(base: Numbers, other: Numbers, paired: bool) -> float:
    """The degrees of freedom of Student's interval; Welch's if runs do not pair."""
    if paired:
        return len(base) - 1
    each = [(one.std(ddof=1) / one.mean()) ** 2 / len(one) for one in (base, other)]
    of_each = [part**2 / (len(one) - 1) for part, one in zip(each, (base, other), strict=True)]
    return sum(each) ** 2 / sum(of_each)


def interval(
    base: Numbers, other: Numbers, paired: bool, resamples: int = 8000
) -> tuple[float, float]:
    """The 95 % interval of the ratio of the means: the studentized bootstrap's.

    Each end is that of Student's interval if this one is farther out.
    """
    rng = np.random.default_rng(5)
    ours = rng.integers(0, len(base), (resamples, len(base)))
    theirs = ours if paired else rng.integers(0, len(other), (resamples, len(other)))
    log_ratio, error = parts(base, other, paired)
    resampled, errors = parts(base[ours], other[theirs], paired)
    sound = errors > 0
    students = (resampled[sound] - log_ratio) / errors[sound]
    low, high = np.quantile(students, [0.025, 0.975])
    reach = student.ppf(0.975, freedom(base, other, paired))
    low, high = min(low, -reach), max(high, reach)
    return float(np.exp(log_ratio - high * error)), float(np.exp(log_ratio - low * error))


def calls(values: Numbers, thread: Row) -> list[Row]:
    """A call of each name, which takes as long as the value says (us)."""
    rows, now = [], 1000
    for number, value in enumerate(values):
        row = {"ts": now, "dur_ns": int(value * 1000), "name": f"call{number:03d}", "ret": 0}
        rows.append(thread | row)
        now += int(value * 1000) + 1000
    return rows
