"""What every policy counts alike, of one page at a time.

A page's state is a byte: RESIDENT and DIRTY here, the upper bits as the policy likes. `tally` is
int64[6]; `code` (uint8[N]) and `victim` (int32[N]) say what became of each access, or have length
0 where nobody asks.
"""

from __future__ import annotations

from typing import Any

from analysis.flushlayer.operations import WRITE
from probes.compiled import compiled

RESIDENT, DIRTY = 1, 2

WRITE_HITS, READ_HITS, OVERWRITTEN, DESTAGED, DROPPED, LEFT = range(6)
"""Places in `tally`."""

HIT_CODE, DESTAGED_CODE, DROPPED_CODE = 1, 2, 4
"""Bits of `code`."""


@compiled
def hit(p: int, kind: int, i: int, state: Any, tally: Any, code: Any) -> None:
    """Access `i`, a write or a read, finds page `p` resident."""
    if kind == WRITE:
        tally[WRITE_HITS] += 1
        tally[OVERWRITTEN] += (state[p] >> 1) & 1
        state[p] |= DIRTY
    else:
        tally[READ_HITS] += 1
    if len(code):
        code[i] |= HIT_CODE


@compiled
def evict(p: int, i: int, state: Any, tally: Any, code: Any, victim: Any) -> None:
    """Page `p` leaves to make room for access `i`; its state is 0 after it."""
    dirty = (state[p] >> 1) & 1
    tally[DESTAGED] += dirty
    state[p] = 0
    if len(code):
        victim[i] = p
        code[i] |= DESTAGED_CODE * dirty


@compiled
def drop(p: int, i: int, state: Any, tally: Any, code: Any) -> None:
    """Access `i` writes page `p`, which is resident, past the layer; its state is 0 after it."""
    dirty = (state[p] >> 1) & 1
    tally[DROPPED] += dirty
    state[p] = 0
    if len(code):
        code[i] |= DROPPED_CODE * dirty


@compiled
def admitted(kind: int) -> int:
    """The state of a page that a miss of this kind brings in."""
    return RESIDENT | DIRTY if kind == WRITE else RESIDENT


@compiled
def finish(state: Any, tally: Any) -> None:
    """Count the dirty pages that are left."""
    left = 0
    for p in range(len(state)):
        left += (state[p] >> 1) & 1
    tally[LEFT] = left
