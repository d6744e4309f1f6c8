"""Samples of a curve against the exact one."""

import numpy as np
import pytest

from analysis.flushlayer.curves.sampling import sampled_curve
from analysis.flushlayer.curves.stack_distances import lru_counts
from probes.errors import UsageError
from tests.support.streams import numbered, zipf


def test_a_sample_of_all_pages_is_exact():
    page, unique = zipf(5_000, 400, 0.8)
    frame = sampled_curve(page, unique, 1.0, np.arange(unique + 1), hot_pages=10)
    exact = lru_counts(page, unique).destaged
    for column in ("destaged", "low", "high"):
        assert frame[column].to_numpy() == pytest.approx(exact)


def test_hot_pages_are_tracked_whatever_the_hash_says():
    page, unique = zipf(5_000, 400, 0.8)
    frame = sampled_curve(page, unique, 1e-9, np.arange(unique + 1), hot_pages=unique)
    told = frame["destaged"].notna()
    assert told.tolist() == [True] + [False] * unique  # rough by the rate, which is all it knows


@pytest.mark.parametrize("skew", [0.5, 0.8, 1.1])
def test_the_interval_covers_the_exact_curve(skew):
    covered = []
    for seed in range(40):
        page, unique = zipf(20_000, 4_000, skew, seed)
        capacities = np.array([unique // 8, unique // 2])
        frame = sampled_curve(page, unique, 0.1, capacities, hot_pages=100)
        exact = lru_counts(page, unique).destaged[capacities]
        covered.append((frame["low"] <= exact) & (exact <= frame["high"]))
    # 38 are expected of 40; fewer than 34 of intervals of 95 % come once in 300 times.
    assert np.sum(covered, axis=0).min() >= 34


def test_the_interval_is_narrower_with_hot_pages_and_a_higher_rate():
    page, unique = zipf(40_000, 4_000, 1.0)

    def width(rate, hot):
        frame = sampled_curve(page, unique, rate, np.array([500, 1000]), hot_pages=hot)
        return (frame["high"] - frame["low"]).sum()

    assert width(0.1, 200) < width(0.1, 0) / 2
    assert width(0.3, 200) < width(0.1, 200)


def test_capacities_of_a_few_steps_are_not_told():
    page, unique = zipf(5_000, 1_000, 0.5)
    frame = sampled_curve(page, unique, 0.1, np.array([0, 49, 50]))
    assert frame["destaged"].isna().tolist() == [False, True, False]
    assert frame["destaged"].tolist()[0] == 0


def test_the_same_salts_give_the_same_curve():
    page, unique = zipf(5_000, 1_000, 0.7)
    assert sampled_curve(page, unique, 0.2).equals(sampled_curve(page, unique, 0.2))


@pytest.mark.parametrize(
    ("rate", "salts", "said"),
    [
        (0.0, 8, "rate of 0.0 cannot be"),
        (1.5, 8, "rate of 1.5 cannot be"),
        (float("nan"), 8, "rate of nan cannot be"),
        (0.5, 1, "1 samples have no interval"),
        (1e-9, 8, "no sampled page is written twice"),
    ],
)
def test_a_sample_that_says_nothing_is_refused(rate, salts, said):
    page, unique = numbered(list(range(50)) * 2)
    with pytest.raises(UsageError, match=said):
        sampled_curve(page, unique, rate, salts=salts, hot_pages=0)
