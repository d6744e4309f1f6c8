"""Ratios of benchmarks' windows: noise with slow moments does not hide a tool's cost."""

import numpy as np
import pytest

from benchmarks.parts.window_ratios import interval, ratios

WINDOWS = 20_000
COST = 1.02


def noisy(rng, windows=WINDOWS):
    """Medians of windows of a machine that is slower for a quarter of the time."""
    count = 2 * windows + 1
    slow = rng.random(count) < 0.25
    return 1 + np.where(slow, rng.exponential(0.2, count), rng.normal(0, 0.01, count))


def test_skewed_noise_does_not_shift_the_ratio():
    medians = noisy(np.random.default_rng(5))
    assert np.median(ratios(medians)) == pytest.approx(1, abs=0.0005)
    medians[1::2] *= COST
    assert np.median(ratios(medians)) == pytest.approx(COST, abs=0.0005)


def test_drift_does_not_shift_the_ratio():
    medians = np.linspace(1, 3, 2001)
    medians[1::2] *= COST
    assert np.median(ratios(medians)) == pytest.approx(COST, abs=0.0005)


def test_the_interval_has_the_true_ratio_in_it_as_often_as_it_says():
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(60):
        medians = noisy(rng, 100)
        medians[1::2] *= COST
        _, low, high = interval(ratios(medians))
        inside += low <= COST <= high
    assert inside >= 53


def test_a_window_without_steps_spares_no_ratio_of_its_own():
    nan = float("nan")
    found = ratios([1, 1.1, 1, nan, 1, 1.2, nan, 1.3, 1])
    assert np.isnan(found).all(axis=1).tolist() == [False, True, True, True]
    assert found[0].tolist() == [1.1, 1.1]
