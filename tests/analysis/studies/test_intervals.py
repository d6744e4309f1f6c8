"""Intervals of means: within the possible values, and as wide as they have to be."""

import math

import numpy as np
import pytest

from tracer.analysis.studies.flush_layer import possible_savings
from tracer.analysis.studies.intervals import (
    ANY,
    PERCENT,
    POSITIVE,
    SHARE,
    interval,
)

AT_MOST_ONE = (-math.inf, 1.0)
# Student's t of 0.975 by degrees of freedom, from a printed table.
T = {1: 12.706, 2: 4.3027, 3: 3.1824}


def test_a_difference_has_student_s_interval():
    # The standard error of 1, 2, 3 is 1/sqrt(3).
    assert interval(np.array([1.0, 2.0, 3.0])) == pytest.approx((2, -0.4841, 4.4841), 1e-3)


def test_the_interval_of_a_size_is_student_s_of_the_logarithm():
    values = [2.0, 3.0, 4.0]
    step = T[2] / math.sqrt(3) / 3
    expected = (3, 3 * math.exp(-step), 3 * math.exp(step))
    assert interval(np.array(values), POSITIVE) == pytest.approx(expected, 1e-3)


def test_the_interval_of_a_size_begins_at_its_bound_if_student_s_does():
    values = np.array([1.0, 2.0, 3.0])
    step = T[2] / math.sqrt(3) / 2
    assert interval(values, POSITIVE) == pytest.approx((2, 0, 2 * math.exp(step)), 1e-3)
    below_one = interval(1 - values, AT_MOST_ONE)
    assert below_one == pytest.approx((-1, 1 - 2 * math.exp(step), 1), 1e-3)


@pytest.mark.parametrize("outlier", [20.0, 150.0, 1e9])
def test_one_wild_run_decides_nothing(outlier):
    """Eleven of twelve ratios are near 1.5; their mean may be that, or larger."""
    values = np.array([*np.linspace(1.49, 1.51, 11), outlier])
    _, low, high = interval(values, POSITIVE)
    assert low <= 1.5 < high


def test_the_interval_of_a_share_is_student_s_of_the_logit():
    # 0, 0.1, 0.2, 0.5: the mean is 0.2, the standard deviation 0.216.
    values = np.array([0.0, 0.1, 0.2, 0.5])
    step = T[3] * np.std(values, ddof=1) / 2 / (0.2 * 0.8)
    odds = (0.25 * math.exp(-step), 0.25 * math.exp(step))
    expected = (0.2, *(one / (1 + one) for one in odds))
    assert interval(values, SHARE) == pytest.approx(expected, 1e-3)
    of_percent = interval(100 * values, PERCENT)
    assert of_percent == pytest.approx([100 * one for one in expected], 1e-3)


@pytest.mark.parametrize(
    ("values", "possible"),
    [
        ([0.0, 1.0], SHARE), ([0.0, 0.0, 1e-9], SHARE), ([1.0, 1.0, 0.5], SHARE),
        ([0.0, 1e-300], POSITIVE), ([0.0, 1e300], POSITIVE), ([1.0, 0.999, -3.0], AT_MOST_ONE),
        ([0.0, 100.0], PERCENT),
    ],
)  # fmt: skip
def test_an_interval_stays_within_the_possible_values_and_around_the_mean(values, possible):
    mean, low, high = interval(np.array(values), possible)
    assert possible[0] <= low < mean < high <= possible[1]
    assert math.isfinite(low) and math.isfinite(high)
    assert mean == pytest.approx(np.mean(values))


def test_a_share_that_rounding_has_made_more_than_the_whole_is_the_whole():
    rounded = interval(np.array([math.nextafter(100, 101), 92.0, 97.0]), PERCENT)
    assert rounded == pytest.approx(interval(np.array([100.0, 92.0, 97.0]), PERCENT))
    assert rounded[2] < 100
    mean, low, high = interval(np.array([math.nextafter(0, -1), 0.3, 0.1]), SHARE)
    assert 0 < low < mean < high < 1


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_runs_that_agree_have_an_interval_without_width(value):
    assert interval(np.full(3, value), SHARE) == (value, value, value)


def test_impossible_values_have_student_s_interval():
    """A share above 1 comes from rounding; a size below 0 from a damaged file."""
    values = np.array([0.9, 1.0000001, 1.0])
    assert interval(values, SHARE) == interval(values, ANY)


@pytest.mark.parametrize(
    ("possible", "draw", "truth"),
    [
        (POSITIVE, lambda numbers, n: numbers.lognormal(0, 0.3, n), math.exp(0.045)),
        (SHARE, lambda numbers, n: numbers.beta(8, 2, n), 0.8),
    ],
)
@pytest.mark.parametrize("runs", [2, 3, 12])
def test_the_interval_of_few_runs_holds_the_truth_nearly_always(possible, draw, truth, runs):
    """A bootstrap of two or three runs cannot: its intervals lie within the range of the runs."""
    numbers = np.random.default_rng(18)
    held = in_range = 0
    for _ in range(2000):
        values = draw(numbers, runs)
        _, low, high = interval(values, possible)
        held += low <= truth <= high
        in_range += values.min() <= truth <= values.max()
    assert held >= 0.925 * 2000
    if runs < 4:
        assert in_range < 0.8 * 2000


def test_a_layer_can_lose_no_more_than_its_own_time():
    """The devices are the paper's: 350 ns beside 8 ms for each write, and as many disk writes."""
    least, most = possible_savings()
    assert (least, most) == (pytest.approx(-350e-9 / 8e-3), 1.0)
    mean, low, high = interval(np.array([0.0000438, 0.3966]), (least, most))
    assert least < low < mean < high < 1
