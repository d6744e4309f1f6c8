"""A stream of accesses through a buffer of one capacity, by any policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.flushlayer.operations import LOOK, PAST, READ, WRITE
from analysis.flushlayer.policies.accounting import (
    DESTAGED,
    DROPPED,
    LEFT,
    OVERWRITTEN,
    READ_HITS,
    WRITE_HITS,
)
from analysis.flushlayer.policies.catalogue import Policy, find
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

    code: NDArray[np.uint8]
    """Bits: 1 a resident page was hit, 2 `victim` was dirty and is destaged, 4 a dirty copy was
    dropped."""
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
    code = np.zeros(len(page), np.uint8)
    victim = np.full(len(page), -1, np.int32)
    counts = run(chosen, page, unique, capacity, op, code, victim)
    return Outcomes(code, victim, counts)


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
    code: NDArray[np.uint8] | None = None,
    victim: NDArray[np.int32] | None = None,
) -> Counts:
    """Run checked accesses (see `check`); `code` and `victim` are filled where given."""
    if capacity < 0:
        raise UsageError(f"a capacity of {capacity} pages cannot be", "give 0 or more")
    kinds = [len(page), 0, 0, 0] if op is None else np.bincount(op, minlength=4).tolist()
    if capacity == 0:
        past = kinds[WRITE] + kinds[PAST]
        return Counts(0, kinds[READ] + kinds[LOOK], 0, 0, 0, 0, 0, past, 0)
    tally = np.zeros(6, np.int64)
    policy.kernel(
        page,
        np.empty(0, np.uint8) if op is None else op,
        unique,
        min(capacity, unique),  # more slots than pages are never used
        tally,
        np.empty(0, np.uint8) if code is None else code,
        np.empty(0, np.int32) if victim is None else victim,
    )
    counted = tally.tolist()
    return Counts(
        writes=kinds[WRITE],
        reads=kinds[READ] + kinds[LOOK],
        write_hits=counted[WRITE_HITS],
        read_hits=counted[READ_HITS],
        overwritten=counted[OVERWRITTEN],
        destaged=counted[DESTAGED],
        dropped=counted[DROPPED],
        past=kinds[PAST],
        resident=counted[LEFT],
    )


def check(page: Pages, unique: int, op: Operations | None) -> None:
    """BadTrace where page ids are not in 0 .. unique-1, or operations not one a page and known."""
    if page.dtype != np.int32 or page.ndim != 1:
        raise BadTrace(f"page ids are {page.dtype}, not int32 in one dimension", "number them anew")
    if len(page) and not (0 <= page.min() and page.max() < unique):
        raise BadTrace(f"page ids are not all in 0 .. {unique - 1}", "number them anew")
    if op is None:
        return
    if op.dtype != np.uint8 or op.shape != page.shape:
        raise BadTrace("operations are not one byte an access", "make them with operations()")
    if len(op) and op.max() > LOOK:
        raise BadTrace(f"there is no operation {op.max()}", "make them with operations()")
