"""Sorted symbols of one file, and the name at an address.

The symbols of a file may overlap, occur twice, or lack a size. A table is built from them once, as
pieces that do not overlap. The look-up of an address is then one binary search. Names stay in the
bytes of the file until they are needed, because a large library has half a million.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled
from tracer.probes.symbols.budget import MAX_NAME
from tracer.probes.symbols.demangle import MAX_MANGLED_BYTES, Demangler, shared_demangler
from tracer.probes.text import printable

_MAX_RAW_NAME = MAX_MANGLED_BYTES + 1
"""Most bytes read of a name: one more than can be demangled, so that cut names stay mangled."""
_AT_PLT = b"@plt"
_AT_ONCE = 1024
"""Number of names that are made readable at a time."""


@dataclass(frozen=True)
class SymbolColumns:
    """The symbols of a source: one array per column, all of the same length.

    starts   uint64, first address
    ends     uint64, first address after the symbol; without a size: an upper limit of it
    sized    bool, True if the source gives the size
    ranks    int64, among symbols at one address the highest rank wins, then the first symbol
    names    int64, offset into `blob`; a name ends at a NUL or at the end of `blob`
    suffix   text appended to each name
    """

    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    sized: NDArray[np.bool_]
    ranks: NDArray[np.int64]
    names: NDArray[np.int64]
    blob: bytes
    suffix: bytes = b""

    def where(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> SymbolColumns:
        """Returns the symbols for which `mask` is True, or those with these indices."""
        return replace(
            self,
            starts=self.starts[mask],
            ends=self.ends[mask],
            sized=self.sized[mask],
            ranks=self.ranks[mask],
            names=self.names[mask],
        )


def join_columns(parts: Sequence[SymbolColumns], blob: bytes) -> SymbolColumns:
    """Joins the parts in order; their names are offsets into the same `blob`."""
    if len(parts) == 1:
        return replace(parts[0], blob=blob)
    return SymbolColumns(
        np.concatenate([np.empty(0, np.uint64), *(part.starts for part in parts)]),
        np.concatenate([np.empty(0, np.uint64), *(part.ends for part in parts)]),
        np.concatenate([np.empty(0, np.bool_), *(part.sized for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.ranks for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.names for part in parts)]),
        blob,
    )


class SymbolTable:
    """A table from address to name. For an ELF file, addresses are the file's virtual ones.

    starts   uint64, first address of each piece, sorted
    ends     uint64, first address after each piece; no two pieces overlap
    """

    def __init__(
        self,
        starts: NDArray[np.uint64],
        ends: NDArray[np.uint64],
        names: NDArray[np.int64],
        blobs: Sequence[tuple[bytes, bytes]],
    ) -> None:
        """Makes a table. `names` are offsets into the joined blobs; `blobs` has (blob, suffix)."""
        self.starts = starts
        self.ends = ends
        self._names = names
        self._blobs = list(blobs)
        self._bases = [0]
        for blob, _ in self._blobs:
            self._bases.append(self._bases[-1] + len(blob))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the table holds."""
        blobs = {id(blob): len(blob) for blob, _ in self._blobs}
        arrays = self.starts.nbytes + self.ends.nbytes + self._names.nbytes
        return arrays + sum(blobs.values())

    def index_of(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns for each address the index of its symbol; -1: the address lies in no symbol."""
        addresses = np.asarray(addresses, dtype=np.uint64)
        if not len(self.starts):
            return np.full(addresses.shape, -1, dtype=np.int64)
        index = np.searchsorted(self.starts, addresses, side="right").astype(np.int64) - 1
        index[(index >= 0) & (addresses >= self.ends[index])] = -1
        return index

    def raw_name(self, index: int) -> bytes:
        """Returns a symbol's name as in the file, at most 16 KiB. Raises IndexError."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        offset = int(self._names[index])
        which = bisect.bisect_right(self._bases, offset) - 1
        blob, suffix = self._blobs[which]
        offset -= self._bases[which]
        end = blob.find(b"\0", offset, offset + _MAX_RAW_NAME)
        return blob[offset : end if end >= 0 else offset + _MAX_RAW_NAME] + suffix

    def name(self, index: int) -> str:
        """Returns a symbol's readable name; see `names_of`. Raises IndexError."""
        return readable_names([self.raw_name(index)])[0]

    def names_of(self, addresses: NDArray[np.uint64]) -> list[str | None]:
        """Returns the name at each address, None if there is no symbol.

        C++ names are demangled, bytes that are not UTF-8 or not printable are escaped, and a name
        has at most MAX_NAME characters.
        """
        wanted, where = np.unique(self.index_of(addresses), return_inverse=True)
        known: list[str | None] = [None] if len(wanted) and wanted[0] < 0 else []
        here = wanted[len(known) :].tolist()
        for at in range(0, len(here), _AT_ONCE):
            known += readable_names([self.raw_name(i) for i in here[at : at + _AT_ONCE]])
        result: list[str | None] = np.array(known, dtype=object)[where.reshape(-1)].tolist()
        return result


def readable_names(raw: Sequence[bytes], demangler: Demangler | None = None) -> list[str]:
    """Returns readable names for names as in a file; see `SymbolTable.names_of`."""
    suffixes = [_AT_PLT if name.endswith(_AT_PLT) else b"" for name in raw]
    plain = [name.removesuffix(suffix) for name, suffix in zip(raw, suffixes, strict=True)]
    result = []
    demangled = (demangler or shared_demangler()).demangle(plain)
    for name, nice, end in zip(plain, demangled, suffixes, strict=True):
        suffix = end.decode()
        text = printable(name.decode("utf-8", "backslashreplace") if nice is None else nice)
        if len(text) + len(suffix) > MAX_NAME:
            text = text[: MAX_NAME - len(suffix) - 1] + "…"
        result.append(text + suffix)
    return result


def build_table(sources: Sequence[SymbolColumns], by_rank: bool = False) -> SymbolTable:
    """Builds one table of all sources.

    If several symbols with a size cover an address, the one that starts last gets it, so that a
    function inside another keeps its name. Among those with the same start the highest rank wins,
    then the first. With `by_rank`, the highest rank wins regardless of the start. A symbol without
    a size gets the space up to the next symbol, but none inside a symbol with a size.
    """
    blobs = [(source.blob, source.suffix) for source in sources]
    bases = np.cumsum([0, *(len(blob) for blob, _ in blobs)])
    moved = [replace(s, names=s.names + base) for s, base in zip(sources, bases, strict=False)]
    all_of = join_columns(moved, b"")
    starts, ends, ranks = all_of.starts, all_of.ends, all_of.ranks
    names, sized = all_of.names, all_of.sized
    real = ends > starts

    chosen = np.flatnonzero(real & sized)
    # The order is from the least to the most preferred; later symbols of a file are less preferred.
    keys = (-chosen, ranks[chosen]) if by_rank else (-chosen, ranks[chosen], starts[chosen])
    chosen = chosen[np.lexsort(keys)]
    del keys
    by_start = np.argsort(starts[chosen], kind="stable")
    first, last, which = _cut(starts[chosen], ends[chosen], by_start)
    del by_start
    guessed = _fit_unsized(starts, ends, ranks, np.flatnonzero(real & ~sized), first, last)
    all_starts = np.concatenate([first, starts[guessed[0]]])
    order = np.argsort(all_starts, kind="stable")
    return SymbolTable(
        all_starts[order],
        np.concatenate([last, guessed[1]])[order],
        np.concatenate([names[chosen[which]], names[guessed[0]]])[order],
        blobs,
    )


def _fit_unsized(
    starts: NDArray[np.uint64],
    ends: NDArray[np.uint64],
    ranks: NDArray[np.int64],
    unsized: NDArray[np.int64],
    first: NDArray[np.uint64],
    last: NDArray[np.uint64],
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Returns the symbols without a size that have a place between the pieces `first`..`last`, with
    their ends."""
    unsized = unsized[np.lexsort((unsized, -ranks[unsized], starts[unsized]))]
    ours = starts[unsized]
    keep = np.ones(len(unsized), dtype=np.bool_)
    keep[1:] = ours[1:] != ours[:-1]
    if len(first):
        before = np.searchsorted(first, ours, side="right") - 1
        keep &= (before < 0) | (ours >= last[before])
    unsized = unsized[keep]
    ours = starts[unsized]
    limits = ends[unsized]
    limits[:-1] = np.minimum(limits[:-1], ours[1:])
    after = np.searchsorted(first, ours, side="left")
    followed = after < len(first)
    limits[followed] = np.minimum(limits[followed], first[after[followed]])
    return unsized, limits


def _cut(
    starts: NDArray[np.uint64], ends: NDArray[np.uint64], by_start: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
    """Cuts intervals, given from the least to the most preferred, into non-overlapping pieces.

    Each piece goes to the most preferred interval that covers it. `by_start` is the intervals'
    order by start. Returns starts, ends and the interval of each piece.
    """
    none = np.empty(0, dtype=np.uint64)
    pieces = _sweep(starts, ends, by_start, none, none, np.empty(0, dtype=np.int64))
    first, last = np.empty(pieces, dtype=np.uint64), np.empty(pieces, dtype=np.uint64)
    which = np.empty(pieces, dtype=np.int64)
    _sweep(starts, ends, by_start, first, last, which)
    return first, last, which


@compiled
def _sweep(starts: Any, ends: Any, by_start: Any, first: Any, last: Any, which: Any) -> Any:
    """Returns the number of pieces; writes them to `first`, `last`, `which` as far as there is
    room."""
    n = len(starts)
    pieces = 0
    following = 0
    covering = [np.int64(0) for _ in range(0)]  # a heap of negated preferences
    here = np.uint64(0)
    previous = np.int64(-1)
    previous_end = np.uint64(0)
    while following < n or len(covering) > 0:
        if len(covering) == 0:
            here = starts[by_start[following]]
        while following < n and starts[by_start[following]] <= here:
            heappush(covering, -by_start[following])
            following += 1
        while len(covering) > 0 and ends[-covering[0]] <= here:
            heappop(covering)
        if len(covering) == 0:
            continue
        best = -covering[0]
        there = ends[best]
        if following < n and starts[by_start[following]] < there:
            there = starts[by_start[following]]
        if best != previous or previous_end != here:
            if pieces < len(first):
                first[pieces] = here
                which[pieces] = best
            pieces += 1
        if pieces <= len(last):
            last[pieces - 1] = there
        previous, previous_end = best, there
        here = there
    return pieces
