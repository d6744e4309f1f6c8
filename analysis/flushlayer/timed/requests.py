"""The input of the timed model: bios and the pages that each bio accesses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.timed.residency import PAGE_SECTORS
from tracer.analysis.flushlayer.timed.state import FLUSH, READ
from tracer.probes.errors import BadTrace

_LATEST = 1 << 62
_SECTORS = 1 << 54
"""Sectors of 512 bytes in 8 EiB."""


@dataclass(frozen=True)
class Requests:
    """M bios in time order and their N page accesses; BadTrace if a value is impossible."""

    ts: NDArray[np.int64]
    """Time in ns at which bio m was queued; ascending."""
    op: NDArray[np.uint8]
    """0 write, 1 read, 2 flush (a flush has no pages)."""
    device: NDArray[np.int16]
    sector: NDArray[np.int64]
    """First sector of the bio; a sector has 512 bytes."""
    pages: NDArray[np.int32]
    """Pages of 4096 bytes that bio m touches: accesses first[m] .. first[m] + pages[m] - 1."""
    first: NDArray[np.int64]
    page: NDArray[np.int32]
    """Dense ids 0 .. unique - 1 of the pages accessed."""
    unique: int
    fua: NDArray[np.bool_] | None = None
    waited: NDArray[np.bool_] | None = None
    """True if somebody waits for the bio; needed by sync-only layers."""
    tenant: NDArray[np.int16] | None = None
    """Code of the tenant; -1: unknown."""
    reason: NDArray[np.int16] | None = None
    """Code of the reason; -1: unknown."""
    phase: NDArray[np.int16] | None = None
    """Code of the phase; -1: unknown."""
    chain: NDArray[np.int64] | None = None
    """Issuer of each bio, for closed replay."""
    sectors: NDArray[np.int64] | None = None
    """Sectors that each bio transfers; None: the sectors of its whole pages."""
    done: NDArray[np.int64] | None = None
    """Time in ns at which each bio was completed in the recording; -1: not recorded."""
    ahead: NDArray[np.int32] | None = None
    """Sectors of its bio before each page access; None: pages begin at every eighth sector of a
    device. Needs `within` and `sectors`."""
    within: NDArray[np.uint8] | None = None
    """Sectors of its page before each page access, 0 to 7."""

    def __post_init__(self) -> None:
        """Checks everything that the compiled loops rely on; raises BadTrace."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "unique" or value is None:
                continue
            wanted = np.dtype(_TYPES[field.name])
            object.__setattr__(self, field.name, _as(value, wanted, field.name))
            name, of = field.name, "page accesses" if field.name in _OF_ACCESSES else "bios"
            count = len(self.ts if of == "bios" else self.page)
            if len(getattr(self, name)) != count:
                raise BadTrace(f"{name} has {len(value)} values for {count} {of}", f"give {count}")
        if not 0 <= self.unique < 1 << 31:
            raise BadTrace(f"{self.unique} distinct pages cannot be", "the input is damaged")
        _within("page", self.page, 0, self.unique - 1)
        self._check_bios()

    def _check_bios(self) -> None:
        if len(self) == 0:
            return
        _within("ts", self.ts, 0, _LATEST)
        if (np.diff(self.ts) < 0).any():
            raise BadTrace("the bios are not in time order", "sort them by ts")
        _within("op", self.op, 0, FLUSH)
        _within("device", self.device, 0, (1 << 15) - 1)
        _within("pages", self.pages, 0, 1 << 20)
        _within("sector", self.sector, 0, _SECTORS)
        _within("first", self.first, 0, len(self.page))
        if (self.first + self.pages > len(self.page)).any():
            raise BadTrace(
                "a bio has more pages than there are page accesses", "the input is damaged"
            )
        if self.sectors is not None:
            _within("sectors", self.sectors, 0, _SECTORS)
            last = (self.sector + self.sectors - 1) // PAGE_SECTORS
            touched = np.where(self.sectors > 0, last - self.sector // PAGE_SECTORS + 1, 0)
            if self.ahead is None and (self.pages != touched).any():
                raise BadTrace(
                    "a bio's number of pages does not fit its sectors", "the input is damaged"
                )
        if self.ahead is not None:
            self._check_begins(self.ahead, self.within, self.sectors)
        if self.pages[self.op == FLUSH].any():
            raise BadTrace("a flush has pages", "the input is damaged")
        for name in ("tenant", "reason", "phase"):
            if getattr(self, name) is not None:
                _within(name, getattr(self, name), -1, (1 << 15) - 1)
        if self.done is not None:
            _within("done", self.done, -1, _LATEST)
            if ((self.done >= 0) & (self.done < self.ts)).any():
                raise BadTrace("a bio was completed before it was queued", "the input is damaged")

    def _check_begins(self, ahead: Any, within: Any, sectors: Any) -> None:
        if within is None or sectors is None:
            raise BadTrace("the begins of pages lack their columns", "give within and sectors")
        some = self.pages > 0
        first = self.first[some]
        follows = np.zeros(len(ahead), bool)
        follows[1:] = ahead[1:] > ahead[:-1]
        follows[first] = ahead[first] == 0
        if not follows.all() or (ahead[first + self.pages[some] - 1] >= sectors[some]).any():
            raise BadTrace(
                "the pages of a bio do not begin one after the other in it", "the input is damaged"
            )
        _within("within", within, 0, PAGE_SECTORS - 1)

    def __len__(self) -> int:
        return len(self.ts)

    def waiting_phases(self, share: float = 0.5) -> tuple[int, ...]:
        """Returns the codes of the phases in which at least `share` of the bios are waited for.

        Somebody waits for each flush and each read. Without column `waited`, nobody waits for a
        write.
        """
        if self.phase is None:
            return ()
        waited = (self.op == READ) | (self.op == FLUSH)
        if self.waited is not None:
            waited |= self.waited
        known = self.phase >= 0
        bios = np.bincount(self.phase[known])
        of_them = np.bincount(self.phase[known & waited], minlength=len(bios))
        return tuple(np.flatnonzero((bios > 0) & (of_them >= share * bios)).tolist())

    def lengths(self) -> NDArray[np.int64]:
        """Returns the number of sectors that each bio transfers."""
        if self.sectors is not None:
            return self.sectors
        return self.pages.astype(np.int64) * PAGE_SECTORS

    def span_sectors(self, device: int) -> int:
        """Returns the sector after the furthest accessed sector of a device."""
        ends = (self.sector + self.lengths())[self.device == device]
        return int(ends.max(initial=0))


_OF_ACCESSES = ("page", "ahead", "within")
"""Columns with a value for each page access; the others have one for each bio."""
_TYPES: dict[str, Any] = {
    "ts": np.int64,
    "op": np.uint8,
    "device": np.int16,
    "sector": np.int64,
    "pages": np.int32,
    "first": np.int64,
    "page": np.int32,
    "fua": np.bool_,
    "waited": np.bool_,
    "tenant": np.int16,
    "reason": np.int16,
    "phase": np.int16,
    "chain": np.int64,
    "done": np.int64,
    "sectors": np.int64,
    "ahead": np.int32,
    "within": np.uint8,
}


def _as(value: Any, wanted: np.dtype[Any], name: str) -> NDArray[Any]:
    array = np.asarray(value)
    if array.ndim != 1:
        raise BadTrace(f"{name} is not a one-dimensional array", "the input is damaged")
    if array.dtype == wanted:
        # The loops are compiled for arrays that may be written to.
        return np.require(array, requirements=["C", "W"])
    if len(array) and (
        array.dtype.kind not in "iub" or (wanted.kind == "b") != (array.dtype == bool)
    ):
        raise BadTrace(f"{name} are {array.dtype} values, not {wanted}", "give whole numbers")
    converted = array.astype(wanted)
    if len(array) and (converted != array).any():
        raise BadTrace(f"{name} has values beyond {wanted}", "the input is damaged")
    return converted


def _within(name: str, values: NDArray[Any], low: int, high: int) -> None:
    if len(values) and (int(values.min()) < low or int(values.max()) > high):
        wrong = int(values.min()) if int(values.min()) < low else int(values.max())
        raise BadTrace(f"a bio's {name} of {wrong} cannot be", f"give {low} to {high}")
