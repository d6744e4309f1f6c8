"""Clear changes: to nothing, among many measures that do not change, and in pairs of runs."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.support.compared import row
from tracer.analysis.compare.comparison import Run, compared
from tracer.analysis.compare.measured import COLUMNS, Measured, Row
from tracer.analysis.compare.ratio import BOOTSTRAP, PERMUTATION, ratio
from tracer.analysis.compare.text import print_comparison
from tracer.analysis.compare.verdicts import CHANGED, NOISE, UNTOLD
from tracer.analysis.studies.identity import Identity


def run(values, repeat=None):
    """A run with these measures; runs of the same repeat pair."""
    factors = {"model": "lenet", "where": "host", "mode": "train", "repeat": repeat}
    rows = [Row("calls", name, "s", value, 0.25, 0.0) for name, value in values.items()]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return Run("t", Identity("t", factors), Measured(frame, {}), "", None)


def of_groups(base, other):
    return compared([*base, *other], {"base": base, "other": other})


def permuted(base, other):
    """Twice the share of the ways to deal the runs in which the other group gets only zeros."""
    pool = [*base, *other]
    ways = list(itertools.combinations(pool, len(other)))
    return min(1.0, 2 * sum(not any(way) for way in ways) / len(ways))


@pytest.mark.parametrize(
    "base", [(3, 4, 5, 6), (0, 1, 2, 3, 4), (0, 0, 0, 0, 5), (0, 0, 7, 8, 9, 9)]
)
@pytest.mark.parametrize("zeros", [4, 6])
def test_a_change_to_nothing_is_tested_by_all_permutations(base, zeros):
    found = ratio(np.array(base, np.float64), np.zeros(zeros))
    assert (found.ratio, found.low, found.high) == (0, None, None)
    assert (found.method, found.p) == (PERMUTATION, pytest.approx(permuted(base, [0] * zeros)))


def test_pairs_that_change_to_nothing_are_tested_by_their_signs():
    base = np.array([1, 2, 3, 4, 5, 6, 0], np.float64)
    found = ratio(base, np.zeros(7), paired=True)
    signs = list(itertools.product([-1, 1], repeat=6))  # the pair of two zeros has no sign
    assert found.p == 2 * sum(all(sign > 0 for sign in one) for one in signs) / len(signs)


def test_too_few_runs_that_change_to_nothing_are_not_tested():
    for paired in (False, True):
        found = ratio(np.array([1.0, 2, 3]), np.zeros(3), paired)
        assert found.ratio == 0 and found.p is None
        assert found.why == "it is 0 in this group, and there are too few runs for a test"


def test_a_call_that_is_not_made_any_more_has_changed():
    found = of_groups(
        [run({"gone": 5.0 + n, "rare": float(n == 0), "same": 1.0}) for n in range(6)],
        [run({"gone": 0.0, "rare": 0.0, "same": 1.0}) for _ in range(6)],
    )
    gone = row(found, "calls", "gone")
    assert (gone["ratio"], gone["verdict"], gone["score"]) == (0, CHANGED, 0.25)
    assert gone["p"] == pytest.approx(2 / 924)  # of the 924 ways to take six of twelve runs
    assert row(found, "calls", "rare")["verdict"] == NOISE  # in one of twelve runs
    assert found.tests == 3
    few = of_groups([run({"gone": 5.0})] * 2, [run({"gone": 0.0})] * 2)
    assert row(few, "calls", "gone")["verdict"] == UNTOLD


@pytest.mark.slow
def test_one_clear_change_is_found_among_many_measures_that_do_not_change():
    random = np.random.default_rng(1)

    def runs(factor):
        return [
            run({"doubled": factor * n, **{f"noise {k}": v for k, v in enumerate(noise)}})
            for n, noise in zip(
                (1.0, 1.01, 0.99, 1.02, 0.98),
                np.exp(random.normal(0, 0.1, (5, 300))).tolist(),
                strict=True,
            )
        ]

    found = of_groups(runs(1.0), runs(2.0))
    doubled = row(found, "calls", "doubled")
    own = np.log([1.0, 1.01, 0.99, 1.02, 0.98])
    assert doubled["method"] == BOOTSTRAP and found.tests == 301
    assert stats.ttest_ind(own, own + np.log(2)).pvalue < 1e-9
    assert found.rows.loc[found.rows["verdict"] == CHANGED, "measure"].tolist() == ["doubled"]


def test_means_are_those_of_the_runs_whose_ratio_is_given():
    values = (("1", 10.0), ("2", 12.0), ("3", 99.0))
    base = [run({"call": value}, repeat) for repeat, value in values]
    found = of_groups(base, [run({"call": 20.0}, "1"), run({"call": 24.0}, "2")])
    call = row(found, "calls", "call")
    assert (call["base_mean"], call["mean"], call["ratio"]) == (11, 22, 2)
    assert (call["base_runs"], call["runs"], call["pairs"]) == (2, 2, 2)
    assert any("1 run without a partner is left out" in note for note in found.notes)


def test_a_small_change_beyond_chance_is_printed(capsys):
    found = of_groups(
        [run({"slower": 100 + n / 100, "other": 5.0 + n % 3}) for n in range(6)],
        [run({"slower": 100.3 + n / 100, "other": 5.0 + n % 3}) for n in range(6)],
    )
    assert row(found, "calls", "slower")["verdict"] == CHANGED
    print_comparison(found, 20)
    printed = capsys.readouterr().out
    assert any("calls: slower, s" in line and "1.003 [" in line for line in printed.splitlines())
