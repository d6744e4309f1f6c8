"""Epoch time and energy of power modes, predicted from a few profiled modes.

Source: Prashanthi et al. 2022, section 5.7. The available text of the paper lacks its formulas and
numbers. It says in words that the regression is linear in cores, CPU, GPU and memory frequency; the
constant term is scikit-learn's default.
"""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.probes.errors import UsageError

PROFILED = 4
"""Number of modes that are profiled (Prashanthi et al. 2022, section 5.7.1)."""

_MOST_SETS = 20_000
"""The most sets of modes that are tried; of more sets, this many are drawn, always the same."""

_NO_SPREAD = 1e-10
"""Share of the largest spread of a set of modes below which a spread is rounding."""

_Values = NDArray[np.float64]


def choose(times: pd.DataFrame, settings: pd.DataFrame, count: int = PROFILED) -> list[str]:
    """Returns the modes to profile: those that predict the other modes best.

    Of all sets of `count` modes, chooses the one with the least root mean square error of the
    predicted times, summed over the jobs (section 5.7.1; here only modes outside the set count).
    `times` has one row per mode and one column per job, in s per epoch; `settings` has one row per
    mode. Modes that were not measured for every job are left out. The choice sees the times that it
    is judged by, so `predict` for a job outside the choice is the harder test. Raises UsageError
    for too few modes.
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
    """Returns the epoch time of every mode in `settings`, in s, by regression on `measured`.

    If there are no more modes than settings that vary, several regressions fit exactly; the one of
    least norm is taken, with each setting scaled by its own spread. Raises UsageError if fewer than
    two modes were measured.
    """
    if len(measured) < 2:
        raise UsageError(f"{len(measured)} power modes were measured", "measure two or more")
    known = settings.index.get_indexer(measured.index)
    features = _features(settings)
    predicted = _regression(features[known], np.asarray(measured, np.float64), features)
    return pd.Series(predicted, settings.index)


def predict_energy(
    learned: pd.DataFrame, wanted: pd.DataFrame, settings: list[str]
) -> pd.Series[float]:
    """Returns the energy of an epoch, in J, for every row of `wanted`.

    One regression for all jobs uses the settings and the epoch time (section 5.7.1). It learns from
    measured values (`epoch_s`, `energy_j`) and predicts from predicted times (`predicted_s`).
    """
    columns = [name for name in settings if learned[name].nunique() > 1]
    known = learned[[*columns, "epoch_s"]].to_numpy(np.float64)
    asked = wanted[[*columns, "predicted_s"]].to_numpy(np.float64)
    measured = np.asarray(learned["energy_j"], np.float64)
    return pd.Series(_regression(known, measured, asked), wanted.index)


def mape(measured: pd.Series[float], predicted: pd.Series[float]) -> float:
    """Returns the mean absolute error, in per cent of the measured values."""
    return float((100 * (predicted - measured).abs() / measured).mean())


def _regression(known: _Values, measured: _Values, asked: _Values) -> _Values:
    """Returns the values at `asked` by least squares of `measured` on `known`, of least norm."""
    center, level = known.mean(axis=0), measured.mean()
    slopes = np.linalg.lstsq(known - center, measured - level, rcond=None)[0]
    return np.asarray((asked - center) @ slopes + level, np.float64)


def _features(settings: pd.DataFrame) -> _Values:
    """Returns the settings that vary, each divided by its spread, so that units do not matter."""
    varying = settings.loc[:, settings.nunique() > 1]
    if varying.shape[1] == 0:
        raise UsageError("the power modes do not differ in any setting", "vary one")
    values = varying.to_numpy(np.float64)
    return np.asarray((values - values.mean(axis=0)) / values.std(axis=0), np.float64)


def _sets(modes: int, count: int) -> NDArray[np.intp]:
    """Returns a row of indexes for each set of modes."""
    if math.comb(modes, count) <= _MOST_SETS:
        return np.array(list(itertools.combinations(range(modes), count)))
    draw = random.Random(0)
    return np.array([sorted(draw.sample(range(modes), count)) for _ in range(_MOST_SETS)])


def _errors(features: _Values, measured: _Values, sets: NDArray[np.intp]) -> _Values:
    """Returns the error outside each set of modes, in s, summed over the jobs.

    Solves the least squares of `_regression` for all sets at once.
    """
    inside, known = features[sets], measured[sets]
    center, level = inside.mean(axis=1, keepdims=True), known.mean(axis=1, keepdims=True)
    slopes = np.linalg.pinv(inside - center, rcond=_NO_SPREAD) @ (known - level)
    predicted = (features - center) @ slopes + level
    outside = np.ones((len(sets), len(features), 1))
    np.put_along_axis(outside, sets[:, :, None], 0, axis=1)
    squares = (predicted - measured) ** 2 * outside
    return np.asarray(np.sqrt(squares.sum(axis=1) / outside.sum(axis=1)).sum(axis=1), np.float64)
