"""Epoch time and energy of power modes, predicted from a few that were tried.

After seed 002, section 5.7. The text that we have of it has lost its formulas and numbers: that
the regression is linear in cores, CPU, GPU and memory frequency is said in words, the constant
term is scikit-learn's default.
"""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from probes.errors import UsageError

PROFILED = 4
"""So many modes are tried (seed 002, section 5.7.1)."""

_MOST_SETS = 20_000
"""Of more sets of modes so many are drawn, always the same ones."""

_NO_SPREAD = 1e-10
"""Of the largest spread of a set of modes: a smaller one is rounding."""

_Values = NDArray[np.float64]


def choose(times: pd.DataFrame, settings: pd.DataFrame, count: int = PROFILED) -> list[str]:
    """The modes to try: those from which the others are predicted best.

    As in section 5.7.1: of all sets of `count` modes that whose regressions have the least sum over
    the jobs of the root mean square error of predicted times, here of the modes outside the set.
    `times` has a row a mode and a column a job, in s an epoch; `settings` a row a mode. Modes
    that a job lacks are left out. The choice knows the times that it is judged by: `predict` for a
    job that had no part in it is the harder test. Raises UsageError for too few modes.
    """
    times = times.dropna()
    if len(times) <= count or count < 2:
        raise UsageError(
            f"{len(times)} power modes were measured for every job",
            f"the prediction needs {count + 1}: {count} to learn from, and others to predict",
        )
    features = _features(settings.loc[times.index])
    errors = _errors(features, times.to_numpy(np.float64), sets := _sets(len(times), count))
    return [str(times.index[place]) for place in sets[int(errors.argmin())]]


def predict(measured: pd.Series[float], settings: pd.DataFrame) -> pd.Series[float]:
    """Epoch time of every mode in `settings`, in s, by a regression on the modes in `measured`.

    With no more modes than settings that vary there is more than one regression through all of
    them; it is the one of least norm, each setting measured by its own spread. Raises UsageError
    where fewer than two modes were measured.
    """
    if len(measured) < 2:
        raise UsageError(f"{len(measured)} power modes were measured", "measure two or more")
    known = settings.index.get_indexer(measured.index)
    features = _features(settings)
    model = LinearRegression().fit(features[known], measured.to_numpy(np.float64))
    return pd.Series(model.predict(features), settings.index)


def predict_energy(
    learned: pd.DataFrame, wanted: pd.DataFrame, settings: list[str]
) -> pd.Series[float]:
    """Energy of an epoch, in J, for every row of `wanted`.

    One regression for all jobs on the settings and the epoch time (section 5.7.1): learned from
    measured times (`epoch_s`, `energy_j`), asked for by predicted ones (`predicted_s`).
    """
    columns = [name for name in settings if learned[name].nunique() > 1]
    model = LinearRegression().fit(
        learned[[*columns, "epoch_s"]].to_numpy(np.float64), learned["energy_j"]
    )
    told = wanted[[*columns, "predicted_s"]].to_numpy(np.float64)
    return pd.Series(model.predict(told), wanted.index)


def mape(measured: pd.Series[float], predicted: pd.Series[float]) -> float:
    """Mean absolute error, in per cent of what was measured."""
    return float((100 * (predicted - measured).abs() / measured).mean())


def _features(settings: pd.DataFrame) -> _Values:
    """The settings that vary, each over its spread, so that no unit weighs more than another."""
    varying = settings.loc[:, settings.nunique() > 1]
    if varying.shape[1] == 0:
        raise UsageError("the power modes do not differ in any setting", "vary one")
    values = varying.to_numpy(np.float64)
    return np.asarray((values - values.mean(axis=0)) / values.std(axis=0), np.float64)


def _sets(modes: int, count: int) -> NDArray[np.intp]:
    """A row of places for each set of modes."""
    if math.comb(modes, count) <= _MOST_SETS:
        return np.array(list(itertools.combinations(range(modes), count)))
    draw = random.Random(0)
    return np.array([sorted(draw.sample(range(modes), count)) for _ in range(_MOST_SETS)])


def _errors(features: _Values, measured: _Values, sets: NDArray[np.intp]) -> _Values:
    """For each set of modes, the sum over jobs of the error outside it, in s.

    The least squares that LinearRegression finds, of least norm, for all sets at once.
    """
    inside, known = features[sets], measured[sets]
    center, level = inside.mean(axis=1, keepdims=True), known.mean(axis=1, keepdims=True)
    slopes = np.linalg.pinv(inside - center, rcond=_NO_SPREAD) @ (known - level)
    predicted = (features - center) @ slopes + level
    outside = np.ones((len(sets), len(features), 1))
    np.put_along_axis(outside, sets[:, :, None], 0, axis=1)
    squares = (predicted - measured) ** 2 * outside
    return np.asarray(np.sqrt(squares.sum(axis=1) / outside.sum(axis=1)).sum(axis=1), np.float64)
