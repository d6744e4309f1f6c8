"""Bits of 64-bit words, in forms for which LLVM knows the processor's own instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from probes.compiled import compiled


@compiled
def ones(word: Any) -> Any:
    """How many bits of a uint64 are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def lowest(word: Any) -> Any:
    """The number of the lowest bit that is set; 64 where none is."""
    return ones((word & (~word + np.uint64(1))) - np.uint64(1))


@compiled
def bit(place: int) -> Any:
    """A uint64 with the bit of a place within its word."""
    return np.uint64(1) << np.uint64(place & 63)
