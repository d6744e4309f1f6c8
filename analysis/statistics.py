"""Student's t distribution by SciPy, which comes with the extra `studies`.

`scipy.stats` has it, too, by these functions; to import that takes five times as long.
"""

from __future__ import annotations

from typing import Any

from tracer.probes.errors import FeatureMissing

_INSTALL = "pip install 'traintrace[studies]'"


def t_quantile(share: float, freedom: float) -> float:
    """Returns the quantile of Student's t distribution. Raises FeatureMissing without SciPy."""
    return float(_special().stdtrit(freedom, share))


def t_beyond(value: float, freedom: float) -> float:
    """Returns the probability of more than `value` in Student's t distribution. Raises as above."""
    return float(_special().stdtr(freedom, -value))


def _special() -> Any:
    try:
        from scipy import special
    except ImportError:
        raise FeatureMissing("an interval from repeats needs SciPy", _INSTALL) from None
    return special
