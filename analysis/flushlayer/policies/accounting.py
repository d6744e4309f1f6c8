"""The counts that all policies keep.

The state of a page is a byte: RESIDENT and DIRTY describe the layer's copy, the upper bits belong
to the policy. A kernel counts in `tally` (int64[5, 4]) the accesses by operation and by the copy
that they found; row EVICTED counts evicted copies. All counts follow from `tally`. The kernel
returns the final states. For each access it stores the copy found in `found` (uint8[N]) and the
evicted page in `victim` (int32[N]), unless these have length 0.

Each kernel repeats these lines. One loop for all policies would have to be a closure over the
functions of a policy: numba never finds such a closure in its cache, so every run would compile it
again. CLOCK was also 1.8 times slower that way, since its places are then kept in an array.
"""

from __future__ import annotations

from tracer.analysis.flushlayer.policies.operations import WRITE
from tracer.probes.compiled import compiled

RESIDENT, DIRTY = 1, 2
COPY = RESIDENT | DIRTY

EVICTED = 4
"""The row of `tally` after the four operations."""

DIRTY_VICTIM = 4
"""The bit of `found` that is set if `victim` was dirty."""


@compiled
def admitted(kind: int) -> int:
    """Returns the state bits of a page's copy that a write or a read adds."""
    return COPY if kind == WRITE else RESIDENT
