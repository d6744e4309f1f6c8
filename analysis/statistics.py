"""SciPy's statistics, which come with the extra `studies`."""

from __future__ import annotations

from typing import Any

from tracer.probes.errors import FeatureMissing

_INSTALL = "pip install 'traintrace[studies]'"


def t_quantile(share: float, freedom: float) -> float:
    """Returns the quantile of Student's t distribution. Raises FeatureMissing without SciPy."""
    return float(_stats().t.ppf(share, freedom))


def t_beyond(value: float, freedom: float) -> float:
    """Returns the probability of more than `value` in Student's t distribution. Raises as above."""
    return float(_stats().t.sf(value, freedom))


def _stats() -> Any:
    try:
        from scipy import stats
    except ImportError:
        raise FeatureMissing("an interval from repeats needs SciPy", _INSTALL) from None
    return stats
