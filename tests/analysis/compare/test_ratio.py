"""The ratio of two groups: its interval, what chance would give, and when there is neither."""

import numpy as np
import pytest

from tracer.analysis.compare.ratio import BOOTSTRAP, CONSTANT, STUDENT, ratio


def values(*numbers):
    return np.array(numbers, np.float64)


def test_a_ratio_is_that_of_the_means_and_its_interval_holds_it():
    found = ratio(values(9, 10, 11, 10, 10), values(19, 20, 21, 20, 20))
    assert found.ratio == pytest.approx(2) and found.method == BOOTSTRAP
    assert found.low < 2 < found.high and found.low > 1.5 and found.high < 2.6
    assert found.p < 0.01


def test_pairs_that_move_together_have_a_narrow_interval():
    base = values(10, 20, 40, 80, 160)
    noise = values(1.01, 0.99, 1.0, 1.02, 0.98)
    apart = ratio(base, 1.5 * base * noise)
    together = ratio(base, 1.5 * base * noise, paired=True)
    assert together.low > 1 and together.p < 0.05
    assert apart.low is None or apart.low < 1  # the spread is that of the models


def test_too_few_repeats_for_a_bootstrap_have_student_s_interval():
    found = ratio(values(10, 11, 9), values(20, 22, 18))
    assert found.method == STUDENT
    # Relative means 1, 1.1, 0.9 on both sides: a standard error of sqrt(2 * 0.01 / 3), t of 4.
    reach = 2.776445 * (2 * 0.01 / 3) ** 0.5
    assert np.log(found.high / found.ratio) == pytest.approx(reach, rel=1e-5)
    assert np.log(found.ratio / found.low) == pytest.approx(reach, rel=1e-5)


@pytest.mark.parametrize(
    ("base", "other", "expected", "why"),
    [
        ((0, 0), (0, 0), None, "0 in both"),
        ((0, 0), (1, 2), None, "0 in the base"),
        ((1, 2), (0, 0), 0.0, "0 in this group"),
        ((-1, 2), (1, 2), None, "below 0"),
        ((2,), (3,), 1.5, "one run has no spread"),
    ],
)
def test_a_ratio_without_an_interval_says_why(base, other, expected, why):
    found = ratio(values(*base), values(*other))
    assert found.ratio == expected and why in found.why
    assert (found.low, found.high, found.p) == (None, None, None)


def test_counts_that_never_vary_are_compared_as_they_are():
    same, more = ratio(values(5, 5), values(5, 5)), ratio(values(*[5] * 4), values(*[6] * 4))
    assert (same.method, same.p, same.ratio) == (CONSTANT, 1.0, 1.0)
    assert (more.low, more.high) == (1.2, 1.2)
    assert more.p == pytest.approx(2 / 70)  # of the 70 ways to take four of eight runs
    few = ratio(values(5, 5), values(6, 6))
    assert few.ratio == 1.2 and few.p is None and "too few runs for a test" in few.why
    assert ratio(values(*[5] * 6), values(*[6] * 6), paired=True).p == 2 / 64


def test_runs_that_are_mostly_0_have_no_bootstrap():
    found = ratio(values(0, 0, 0, 0, 5), values(1, 1, 2, 1, 1))
    assert found.method == STUDENT and found.low < found.ratio < found.high


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "paired"), [(3, False), (5, False), (5, True), (10, False)])
def test_intervals_hold_the_truth_in_about_95_of_100_cases(runs, paired):
    """Runs whose logarithms are normal: 10 % of spread, pairs with 50 % between them."""
    random = np.random.default_rng(7)
    cases, truth, held, clear = 400, 1.3, 0, 0
    for _ in range(cases):
        of_pair = np.exp(random.normal(0, 0.5 if paired else 0, runs))
        base = of_pair * np.exp(random.normal(0, 0.1, runs))
        other = of_pair * truth * np.exp(random.normal(0, 0.1, runs))
        found = ratio(base, other, paired)
        held += found.low <= truth <= found.high
        null = ratio(base, other / truth, paired)
        clear += null.p < 0.05
    assert 0.92 <= held / cases <= 0.985
    assert clear / cases <= 0.08
