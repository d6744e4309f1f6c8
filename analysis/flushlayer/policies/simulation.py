"""The simulation of a stream of accesses through a buffer of one capacity, by any policy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.policies.accounting import DIRTY, EVICTED, RESIDENT
from tracer.analysis.flushlayer.policies.catalogue import Policy, find_policy
from tracer.analysis.flushlayer.policies.operations import LOOK, PAST, PAST_PART, READ, WRITE
from tracer.probes.errors import BadTrace, UsageError

Pages = NDArray[np.int32]
Operations = NDArray[np.uint8]

_NO_OPERATIONS = np.empty(0, np.uint8)
_NO_FOUND = np.empty(0, np.uint8)
_NO_VICTIM = np.empty(0, np.int32)


@dataclass(frozen=True)
class Counts:
    """The outcome of all accesses, in pages.

    Conservation: `writes == overwritten + dropped + destaged + resident`.
    """

    writes: int
    """Writes into the layer."""
    reads: int
    write_hits: int
    """Writes of a page that was resident, dirty or clean."""
    read_hits: int
    """Reads that the layer served."""
    overwritten: int
    """Writes of a page that was resident and dirty; its older copy never reaches the disk."""
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
        """Pages that reach the disk before the end of the stream."""
        return self.destaged + self.past

    @property
    def misses(self) -> int:
        """Accesses that found no copy in the layer, without writes past the layer."""
        return self.writes - self.write_hits + self.reads - self.read_hits


@dataclass(frozen=True)
class Outcomes:
    """The outcome of each access: arrays of length N."""

    found: NDArray[np.uint8]
    """Bits: 1 a copy was resident, 2 the copy was dirty, 4 `victim` was dirty and is destaged.

    A WRITE overwrites a dirty copy; a write PAST the layer drops it. 0 for PAST_PART.
    """
    victim: NDArray[np.int32]
    """The evicted page, dirty or clean; -1: none."""
    counts: Counts


def simulate(
    policy: str, page: Pages, unique: int, capacity: int, op: Operations | None = None
) -> Counts:
    """Runs accesses to the pages `page` (dense ids below `unique`, int32[N]) through a layer.

    `op` (uint8[N]) is the operation of each access (operations.py); without it, all are writes.
    With capacity 0, every write goes to the disk. Raises UsageError for an unknown policy or a
    negative capacity, BadTrace for ids or operations out of range or of the wrong type.
    """
    chosen = find_policy(policy)
    check(page, unique, op)
    shown = seen(page, op)
    counts = run(chosen, shown[0], unique, capacity, shown[1])
    return _with_parts(counts, len(page) - len(shown[0]))


def outcomes(
    policy: str, page: Pages, unique: int, capacity: int, op: Operations | None = None
) -> Outcomes:
    """Does the same as `simulate` and returns the outcome of each access."""
    chosen = find_policy(policy)
    check(page, unique, op)
    found = np.zeros(len(page), np.uint8)
    victim = np.full(len(page), -1, np.int32)
    shown, operations = seen(page, op)
    if shown is page:
        return Outcomes(found, victim, run(chosen, page, unique, capacity, op, found, victim))
    whole = op != PAST_PART
    copies, victims = found[whole], victim[whole]
    counts = run(chosen, shown, unique, capacity, operations, copies, victims)
    found[whole], victim[whole] = copies, victims
    return Outcomes(found, victim, _with_parts(counts, len(page) - len(shown)))


def _with_parts(counts: Counts, parts: int) -> Counts:
    """Returns the counts with so many more writes past the layer."""
    return replace(counts, past=counts.past + parts) if parts else counts


def seen(page: Pages, op: Operations | None) -> tuple[Pages, Operations | None]:
    """Returns the accesses that a policy sees: all but PAST_PART, which change no layer."""
    if op is None or not (parts := op == PAST_PART).any():
        return page, op
    return page[~parts], op[~parts]


def lru(page: Pages, unique: int, capacity: int) -> tuple[int, int]:
    """Simulates a write-only LRU buffer: (pages that reach the disk, pages resident at the end)."""
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
    """Runs checked accesses that policies see (`check`, `seen`).

    It fills `found` and `victim` if they are given.
    """
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
            page.view(np.uint32),  # numba tests every signed index for negative values
            _NO_OPERATIONS if op is None else op,
            unique,
            min(capacity, unique),  # more slots than pages are never used
            tally,
            _NO_FOUND if found is None else found,
            _NO_VICTIM if victim is None else victim,
        )
        resident = int(np.count_nonzero(state & DIRTY))
    clean, dirty = RESIDENT, RESIDENT | DIRTY
    by_state: list[list[int]] = tally.tolist()
    write, read, past, look = (by_state[kind] for kind in (WRITE, READ, PAST, LOOK))
    return Counts(
        writes=sum(write),
        reads=sum(read) + sum(look),
        write_hits=write[clean] + write[dirty],
        read_hits=read[clean] + read[dirty] + look[clean] + look[dirty],
        overwritten=write[dirty],
        destaged=by_state[EVICTED][dirty],
        dropped=past[dirty],
        past=sum(past),
        resident=resident,
    )


def check(page: Pages, unique: int, op: Operations | None) -> None:
    """Raises BadTrace unless page ids are int32 in 0 .. unique-1 and each access has a known
    operation."""
    if page.dtype != np.int32 or page.ndim != 1:
        raise BadTrace(
            f"page ids are {page.dtype}, not int32 in one dimension", "renumber the pages"
        )
    if len(page) and page.view(np.uint32).max() >= unique:  # a negative one is a large one
        raise BadTrace(f"page ids are not all in 0 .. {unique - 1}", "renumber the pages")
    if op is None:
        return
    if op.dtype != np.uint8 or op.shape != page.shape:
        raise BadTrace("there must be one operation byte per access", "make them with operations()")
    if len(op) and op.max() > PAST_PART:
        raise BadTrace(f"there is no operation {op.max()}", "make them with operations()")
