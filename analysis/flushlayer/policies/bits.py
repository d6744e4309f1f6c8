"""Bit operations on 64-bit words, in forms that LLVM compiles to single instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.probes.compiled import compiled


@compiled
def ones(word: Any) -> Any:
    """Returns the number of set bits of a uint64."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def lowest(word: Any) -> Any:
    """Returns the number of the lowest set bit; 64 if no bit is set."""
    return ones((word & (~word + np.uint64(1))) - np.uint64(1))


@compiled
def bit(place: int) -> Any:
    """Returns a uint64 with the bit that `place` has within its word."""
    return np.uint64(1) << np.uint64(place & 63)
