"""The Pareto front of time and energy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pareto_front(times: NDArray[np.float64], energies: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Returns a mask of the points that no other point beats.

    A point beats another if it is better in one value and at least as good in the other. The front
    is drawn as in Prashanthi et al. 2022, section 5.6: in order of energy, a point is on the front
    if its time is less than that of all before. Equal points are on it together; a point with a
    NaN is not on it.
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
