"""What every policy notes alike.

A page's state is a byte: RESIDENT and DIRTY say what copy the layer has of it, the upper bits are
the policy's. A kernel counts in `tally` (int64[5, 4]) how many accesses of each operation found
which copy, and in its row EVICTED which copies left to make room; all counts follow of that. It
returns the states at the end. For each access it notes in `found` (uint8[N]) and `victim`
(int32[N]) what it found and what left, unless these have length 0.

These lines stand in every kernel: numba counts references to the arrays that a function is given,
which made a call an access six times as slow as the lines themselves.
"""

from __future__ import annotations

from analysis.flushlayer.policies.operations import WRITE
from probes.compiled import compiled

RESIDENT, DIRTY = 1, 2
COPY = RESIDENT | DIRTY

EVICTED = 4
"""The row of `tally` after the four operations."""

DIRTY_VICTIM = 4
"""The bit of `found` that says that `victim` was dirty."""


@compiled
def admitted(kind: int) -> int:
    """The copy that the layer has of a page after a write or a read of it."""
    return COPY if kind == WRITE else RESIDENT
