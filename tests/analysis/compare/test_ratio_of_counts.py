"""Ratios of small counts: chance is called a change no more often than is promised."""

from itertools import combinations

import numpy as np
import pytest

from tracer.analysis.compare.ratio import BOOTSTRAP, ratio
from tracer.analysis.compare.verdicts import corrected


def by_permutations(base, other):
    """The share of all ways to form the groups that have means as far apart."""
    values, seen = np.array(base + other, np.float64), abs(np.mean(other) - np.mean(base))
    found = []
    for chosen in combinations(range(len(values)), len(base)):
        ours = np.isin(np.arange(len(values)), chosen)
        found.append(abs(values[~ours].mean() - values[ours].mean()) >= seen - 1e-9)
    return np.mean(found)


def ratio_of(base, other):
    return ratio(np.array(base, np.float64), np.array(other, np.float64))


@pytest.mark.parametrize(
    ("base", "other"),
    [
        ([1, 1, 0, 0, 1, 1], [2, 2, 1, 1, 0, 3]),
        ([1, 1, 1, 0, 0, 1], [1, 1, 1, 2, 2, 2]),
        ([1, 3, 2, 3, 3, 3, 0, 3], [0, 2, 1, 1, 0, 0, 1, 0]),
    ],
)
def test_small_counts_are_as_clear_as_permutations_tell(base, other):
    expected = by_permutations(base, other)
    found = ratio_of(base, other)
    assert found.method == BOOTSTRAP
    assert found.p > expected / 3
    assert (found.p > 0.05) == (expected > 0.05) == (found.low < 1 < found.high)


@pytest.mark.slow
def test_few_comparisons_of_equal_counts_have_a_change():
    """20 comparisons of 30 counts; more than 4 have one with p = 0.003 if 1 in 20 has."""
    random = np.random.default_rng(1)
    false = 0
    for _ in range(20):
        base, other = random.poisson(2, (2, 30, 8)).astype(np.float64)
        p = np.array([ratio(x, y).p for x, y in zip(base, other, strict=True)])
        false += (corrected(p) <= 0.05).any()
    assert false <= 4


def test_an_interval_tells_of_a_change_as_p_does():
    random = np.random.default_rng(3)
    for _ in range(150):
        base, other = random.poisson(2, 6), random.poisson(4, 6)
        if not base.any() or not other.any():
            continue
        found = ratio_of(base, other)
        if found.p is not None and found.low is not None and abs(found.p - 0.05) > 0.002:
            assert (found.p < 0.05) == (not found.low <= 1 <= found.high)


@pytest.mark.slow
def test_a_clear_difference_of_few_runs_stays_clear():
    """Steps that take 30 % longer, with 3 % of noise, among 10 measures that do not change."""
    random = np.random.default_rng(5)
    clear = 0
    for _ in range(20):
        base, other = np.exp(random.normal(0, 0.03, (2, 11, 5)))
        other[0] *= 1.3
        found = [ratio(x, y) for x, y in zip(base, other, strict=True)]
        assert 1 < found[0].low < found[0].high < 1.6
        assert found[0].p < 0.05
        clear += corrected(np.array([one.p for one in found]))[0] <= 0.05
    assert clear >= 18
