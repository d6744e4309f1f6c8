"""Statistics that need SciPy, with and without it."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats

from tracer.analysis.compare.verdicts import corrected
from tracer.analysis.statistics import t_beyond, t_quantile
from tracer.probes.errors import FeatureMissing


def test_quantile_and_probability_undo_each_other() -> None:
    assert 1 - t_beyond(t_quantile(0.975, 3.5), 3.5) == pytest.approx(0.975)


@pytest.mark.parametrize("freedom", [0.5, 1, 3.5, 58, 1e6])
def test_quantiles_and_probabilities_are_those_of_scipys_distribution(freedom: float) -> None:
    distribution = stats.t(freedom)
    for share in (1e-9, 0.2, 0.5, 0.975, 0.99999):
        assert t_quantile(share, freedom) == pytest.approx(distribution.ppf(share), rel=1e-12)
    for value in (-2.0, 0.0, 0.1, 9.0, 1e6):
        assert t_beyond(value, freedom) == pytest.approx(distribution.sf(value), rel=1e-12)


@pytest.mark.parametrize("call", [t_quantile, t_beyond])
def test_without_scipy_the_error_names_the_extra_to_install(
    call: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "scipy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(FeatureMissing, match=r"SciPy.*traintrace\[studies\]"):
        call(0.5, 3)  # type: ignore[operator]


def test_corrected_p_are_those_of_scipy() -> None:
    draw = np.random.default_rng(5)
    for size in (1, 2, 7, 500):
        p = draw.random(size) ** 3
        p[: size // 3] = p[0]  # ties
        np.testing.assert_allclose(corrected(p), stats.false_discovery_control(p, method="bh"))
