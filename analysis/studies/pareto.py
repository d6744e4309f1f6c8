"""The Pareto front of time and energy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pareto_front(times: NDArray[np.float64], energies: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points no other one beats: none is better in one and at least as good in the other.

    As seed 002, section 5.6, draws it: from the least energy on, a point is on the front if its
    time is less than that of all before. Points that are equal in both are on it together; one
    with a value that is not a number is not.
    """
    known = np.isfinite(times) & np.isfinite(energies)
    found = np.zeros(len(times), dtype=bool)
    best = np.inf
    last = (np.nan, np.nan)
    for place in np.lexsort((times, energies)):
        if not known[place]:
            continue
        point = (times[place], energies[place])
        if times[place] < best or point == last:
            found[place] = True
            best, last = times[place], point
    return found
