"""Lengths of time in four bytes each, for millions of them.

A length of 2**32 - 1 ns (4.3 s) or more takes 20 bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled, read_only

_LONG = (1 << 32) - 1
"""Stands for a length that has a place of its own."""

Short = NDArray[np.uint32]


class Lengths:
    """Lengths of time that are found again by their places."""

    def __init__(self, values: Ints) -> None:
        """Takes the lengths in ns. The array is not kept.

        A negative one (a difference that 64 bits cannot hold) is kept as it is.
        """
        whole = values.view(np.uint64)
        short = np.empty(len(values), np.uint32)
        np.minimum(whole, np.uint64(_LONG), out=short, casting="unsafe")
        long_at = np.flatnonzero(whole >= _LONG)
        self.arrays = read_only(short), read_only(long_at), read_only(values[long_at])
        """The lengths for compiled code, which `length_at` reads."""

    def of(self, places: Ints) -> Ints:
        """Returns the lengths (ns) at places."""
        short, long_at, long = self.arrays
        found = short[places].astype(np.int64)
        far = np.flatnonzero(found == _LONG)
        found[far] = long[np.searchsorted(long_at, places[far])]
        return found


@compiled
def length_at(lengths: tuple[Short, Ints, Ints], place: int) -> np.int64:
    """Returns the length (ns) at a place, from `Lengths.arrays`."""
    short, long_at, long = lengths
    if short[place] < _LONG:
        return np.int64(short[place])
    return np.int64(long[np.searchsorted(long_at, place)])
