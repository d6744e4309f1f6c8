"""A stream of accesses through a buffer of one capacity, by any policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.flushlayer.policies.accounting import DIRTY, EVICTED, RESIDENT
from analysis.flushlayer.policies.catalogue import Policy, find
from analysis.flushlayer.policies.operations import LOOK, PAST, READ, WRITE
from probes.errors import BadTrace, UsageError

Pages = NDArray[np.int32]
Operations = NDArray[np.uint8]


@dataclass(frozen=True)
class Counts:
    """What became of the accesses, in pages.

    Conservation: `writes == overwritten + dropped + destaged + resident`.
    """

    writes: int
    """Into the layer."""
    reads: int
    write_hits: int
    """Writes of a page that was resident, dirty or clean."""
    read_hits: int
    """Reads that the layer served."""
    overwritten: int
    """Writes of a page that was resident and dirty: its older copy never reaches the disk."""
    destaged: int
    """Dirty pages written to the disk to make room."""
    dropped: int
    """Dirty pages made stale by a write past the layer."""
    past: int
    """Writes past the layer."""
    resident: int
    """Dirty pages left in the layer at the end; the final drain writes them."""

    @property
    def disk_writes(self) -> int:
        """Pages that reach the disk while the stream lasts."""
        return self.destaged + self.past

    @property
    def misses(self) -> int:
        """Accesses that found no copy in the layer, writes past it left out."""
        return self.writes - self.write_hits + self.reads - self.read_hits


@dataclass(frozen=True)
class Outcomes:
    """What became of each access: arrays of length N."""

    found: NDArray[np.uint8]
    """Bits: 1 a copy was resident, 2 and dirty, 4 `victim` was dirty and is destaged.

    A dirty copy that a WRITE finds is overwritten, one that a write PAST the layer finds dropped.
    """
    victim: NDArray[np.int32]
    """The page that left to make room, dirty or clean; -1 where none did."""
    counts: Counts


def simulate(
    policy: str, page: Pages, unique: int, capacity: int, op: Operations | None = None
) -> Counts:
    """Run accesses to the pages `page` (dense ids below `unique`, int32[N]) through a layer.

    `op` (uint8[N]) says what each access asks, as operations.py has it; without it all are writes.
    With capacity 0 all goes to the disk. Raises UsageError for an unknown policy or a negative
    capacity, BadTrace where ids or operations are not what they should be.
    """
    chosen = find(policy)
    check(page, unique, op)
    return run(chosen, page, unique, capacity, op)


def outcomes(
    policy: str, page: Pages, unique: int, capacity: int, op: Operations | None = None
) -> Outcomes:
    """The same as `simulate`, access by access."""
    chosen = find(policy)
    check(page, unique, op)
    found = np.zeros(len(page), np.uint8)
    victim = np.full(len(page), -1, np.int32)
    counts = run(chosen, page, unique, capacity, op, found, victim)
    return Outcomes(found, victim, counts)


def lru(page: Pages, unique: int, capacity: int) -> tuple[int, int]:
    """A write-only LRU buffer: (pages destaged to make room, pages resident at the end)."""
    counts = simulate("lru", page, unique, capacity)
    return counts.disk_writes, counts.resident


def run(
    policy: Policy,
    page: Pages,
    unique: int,
    capacity: int,
    op: Operations | None,
    found: NDArray[np.uint8] | None = None,
    victim: NDArray[np.int32] | None = None,
) -> Counts:
    """Run checked accesses (see `check`); `found` and `victim` are filled where given."""
    if capacity < 0:
        raise UsageError(f"a capacity of {capacity} pages cannot be", "give 0 or more")
    tally = np.zeros((5, 4), np.int64)
    resident = 0
    if capacity == 0:
        tally[:4, 0] = [len(page), 0, 0, 0] if op is None else np.bincount(op, minlength=4)
        tally[PAST, 0] += tally[WRITE, 0]
        tally[WRITE, 0] = 0
    else:
        state = policy.kernel(
            page.view(np.uint32),  # numba asks of every signed index whether it is negative
            np.empty(0, np.uint8) if op is None else op,
            unique,
            min(capacity, unique),  # more slots than pages are never used
            tally,
            np.empty(0, np.uint8) if found is None else found,
            np.empty(0, np.int32) if victim is None else victim,
        )
        resident = int(np.count_nonzero(state & DIRTY))
    clean, dirty = RESIDENT, RESIDENT | DIRTY
    return Counts(
        writes=int(tally[WRITE].sum()),
        reads=int(tally[READ].sum() + tally[LOOK].sum()),
        write_hits=int(tally[WRITE, clean] + tally[WRITE, dirty]),
        read_hits=int(tally[[READ, LOOK]][:, [clean, dirty]].sum()),
        overwritten=int(tally[WRITE, dirty]),
        destaged=int(tally[EVICTED, dirty]),
        dropped=int(tally[PAST, dirty]),
        past=int(tally[PAST].sum()),
        resident=resident,
    )


def check(page: Pages, unique: int, op: Operations | None) -> None:
    """BadTrace where page ids are not in 0 .. unique-1, or operations not one a page and known."""
    if page.dtype != np.int32 or page.ndim != 1:
        raise BadTrace(f"page ids are {page.dtype}, not int32 in one dimension", "number them anew")
    if len(page) and not (page.min() >= 0 and page.max() < unique):
        raise BadTrace(f"page ids are not all in 0 .. {unique - 1}", "number them anew")
    if op is None:
        return
    if op.dtype != np.uint8 or op.shape != page.shape:
        raise BadTrace("operations are not one byte an access", "make them with operations()")
    if len(op) and op.max() > LOOK:
        raise BadTrace(f"there is no operation {op.max()}", "make them with operations()")
