"""Accesses of runs of pages, in order of time: the input of the models of a page cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.probes.compiled import read_only
from tracer.probes.errors import BadTrace, UsageError

READ = 0
"""A read through the cache by a call (read, pread, sendfile)."""
FAULT = 1
"""A page fault of a mapped file."""
WRITE = 2
"""A write by a call: the page becomes cached without a read of the disk."""
REMOVE = 3
"""The page leaves the cache, whoever has cached it: the file is truncated or removed, or a program
asks for it."""
BEFORE = 4
"""The page was cached before the first access. No event tells its folio, so it has one of its own.
Only the models of the kernel's lists have such runs."""

MOST_PAGES = 2**29
"""The most pages of all files together (2 TiB)."""
MOST_TENANTS = 2**16
MOST_GROUPS = 2**20

_ROWS = {
    "first": np.int64,
    "pages": np.int32,
    "file": np.int32,
    "reader": np.int32,
    "tenant": np.int32,
    "kind": np.int8,
    "group": np.int32,
}
_FILES = {"base": np.int64, "size_pages": np.int64}


def _no_flags() -> NDArray[np.bool_]:
    return np.empty(0, np.bool_)


def _no_times() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


class OwnPages(NamedTuple):
    """Pages below each memory limit that are not page cache, each number from a time on.

    The times do not fall. Before its first time, a limit has none of these pages.
    """

    ts: NDArray[np.int64]
    limit: NDArray[np.int32]
    pages: NDArray[np.int64]


@dataclass(frozen=True)
class TenantRuns:
    """The runs of one tenant, with the removals of pages that it uses, in order of time.

    Models without read-ahead miss the same pages. The columns are those of `PageRuns`.
    """

    first: NDArray[np.int64]
    pages: NDArray[np.int32]
    kind: NDArray[np.int8]
    group: NDArray[np.int32]
    """Place of the run's group in `groups`."""
    groups: NDArray[np.int32]
    """Numbers of the groups of its runs, each once."""
    all_pages: int
    """Pages that it uses: each page number is below it."""


@dataclass(frozen=True)
class PageRuns:
    """Accesses: one row per run of consecutive pages of one file, in order of time.

    Raises BadTrace if an array has another type or length, or leads out of another array; so a
    compiled loop needs no checks. Each write covers whole pages. A file has its largest size from
    the beginning.
    """

    first: NDArray[np.int64]
    """Page of the first access: `base` of its file plus the index in the file."""
    pages: NDArray[np.int32]
    """Pages of the run, at least 1."""
    file: NDArray[np.int32]
    reader: NDArray[np.int32]
    """Holder of a read-ahead state: a number per open file. A file that is opened again has a new
    state, so it should have a new number."""
    tenant: NDArray[np.int32]
    """A memory cgroup: the owner of lists of pages, and by default of a memory limit."""
    kind: NDArray[np.int8]
    """READ, FAULT, WRITE, REMOVE or BEFORE."""
    group: NDArray[np.int32]
    """Results are added up by it, e.g. by epoch and tenant."""
    base: NDArray[np.int64]
    """Per file: number of its first page. Files do not overlap."""
    size_pages: NDArray[np.int64]
    """Per file: its size in pages."""
    random: NDArray[np.bool_] = field(default_factory=_no_flags)
    """Per reader: True after POSIX_FADV_RANDOM or, for faults, MADV_RANDOM: no read-ahead. Empty:
    no reader has called it."""
    ts: NDArray[np.int64] = field(default_factory=_no_times)
    """Per run: its time in ns. Empty: not known. The statistics of a cgroup, on which the kernel's
    reclaim depends, are brought up to date every 2 s; without times they are always up to date."""

    def __post_init__(self) -> None:
        for columns in (_ROWS, _FILES):
            length = len(getattr(self, next(iter(columns))))
            for name, wanted in columns.items():
                array = getattr(self, name)
                if array.dtype != wanted or array.shape != (length,):
                    raise BadTrace(
                        f"{name} has {array.dtype} of shape {array.shape}",
                        f"give {np.dtype(wanted)} of length {length}",
                    )
        _check_files(self.base, self.size_pages)
        if len(self.first):
            _check_rows(self)
        if self.random.dtype != np.bool_ or self.random.shape not in ((0,), (self.readers,)):
            raise BadTrace("random has not one flag per reader", f"give {self.readers} flags")

        if self.ts.dtype != np.int64 or self.ts.shape not in ((0,), self.first.shape):
            raise BadTrace("ts has not one time per run", f"give {len(self.first)} times in ns")
        for name in (*_ROWS, *_FILES, "random", "ts"):
            held = read_only(np.ascontiguousarray(getattr(self, name)))
            object.__setattr__(self, name, held)

    @property
    def all_pages(self) -> int:
        """Pages of all files: each page number is below it."""
        return int((self.base + self.size_pages).max(initial=0))

    @property
    def readers(self) -> int:
        return _codes(self.reader)

    @property
    def tenants(self) -> int:
        return _codes(self.tenant)

    @property
    def groups(self) -> int:
        return _codes(self.group)

    @cached_property
    def of_tenants(self) -> list[TenantRuns]:
        """The runs of each tenant."""
        removal = self.kind == REMOVE
        accesses = np.flatnonzero(~removal)
        accesses = accesses[np.argsort(self.tenant[accesses], kind="stable")]
        bounds = np.searchsorted(self.tenant[accesses], np.arange(self.tenants + 1))
        removals = np.flatnonzero(removal)
        return [_of_tenant(self, accesses[low:high], removals) for low, high in pairwise(bounds)]

    def only_used(self) -> PageRuns:
        """Returns these runs with only the pages that a run uses, as pages of one file.

        Models without read-ahead miss the same pages, in memory for the used pages only. A file may
        have 2^28 pages and none of them in use.
        """
        below = _used_below(self.first, self.pages)
        used = below(self.first + self.pages).max(initial=0, keepdims=True)[: len(self.first)]
        return replace(
            self,
            first=below(self.first),
            file=np.zeros_like(self.file),
            base=np.zeros(len(used), np.int64),
            size_pages=used,
        )

    def as_one(self, limits: ArrayLike | None) -> PageRuns:
        """Returns these runs with tenants that have the same limit (see `limits_of`) as one."""
        if limits is None:
            return self
        return replace(self, tenant=limits_of(self, limits)[self.tenant])

    def accessed(self) -> NDArray[np.int64]:
        """Returns the pages read or faulted in, by group (int64[groups])."""
        reads = (self.kind == READ) | (self.kind == FAULT)
        counts = np.zeros(self.groups, np.int64)
        np.add.at(counts, self.group[reads], self.pages[reads])
        return counts


def _of_tenant(
    runs: PageRuns, accesses: NDArray[np.int64], removals: NDArray[np.int64]
) -> TenantRuns:
    """Returns a tenant's runs; `accesses` and `removals` are numbers of runs."""
    rows = accesses
    if len(accesses) and len(removals):
        rows = np.sort(np.concatenate((accesses, removals)))
    below = _used_below(runs.first[accesses], runs.pages[accesses])
    first = below(runs.first[rows])
    end = first + runs.pages[rows]
    removal = runs.kind[rows] == REMOVE
    end[removal] = below((runs.first + runs.pages)[rows[removal]])  # Not all of it is in use.
    uses = end > first  # The others remove only pages of other tenants.
    groups, group = np.unique(runs.group[rows[uses]], return_inverse=True)
    return TenantRuns(
        first[uses],
        (end - first)[uses].astype(np.int32),
        runs.kind[rows[uses]],
        group.astype(np.int32),
        groups,
        int(end.max(initial=0)),
    )


def _used_below(
    first: NDArray[np.int64], pages: NDArray[np.int32]
) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Returns a function from pages to the number of pages below each that these runs use."""
    order = np.argsort(first, kind="stable")
    begin = first[order]
    end = np.maximum.accumulate(begin + pages[order])
    one = np.ones(min(1, len(begin)), np.bool_)
    apart = np.concatenate((one, begin[1:] >= end[:-1]))
    last = np.concatenate((apart[1:], one))
    begin, sizes = begin[apart], end[last] - begin[apart]
    before = np.cumsum(sizes) - sizes

    def below(page: NDArray[np.int64]) -> NDArray[np.int64]:
        at = np.maximum(np.searchsorted(begin, page, side="right") - 1, 0)
        found: NDArray[np.int64] = before[at] + np.clip(page - begin[at], 0, sizes[at])
        return found

    return below


def limits_of(runs: PageRuns, limits: ArrayLike | None) -> NDArray[np.int32]:
    """Returns the number of each tenant's memory limit (int32[tenant]); None: each has its own.

    `limits` may have more tenants than the runs: the last ones then have no run. Raises UsageError
    unless there is one for each tenant, numbered from 0 on without gaps.
    """
    if limits is None:
        return np.arange(runs.tenants, dtype=np.int32)
    found = np.asarray(limits, np.int32)
    numbers = np.unique(found)
    if found.ndim != 1 or len(found) < runs.tenants or np.any(numbers != np.arange(len(numbers))):
        raise UsageError(
            f"limits {found.tolist()[:9]} do not fit {runs.tenants} tenants",
            "give the number of each tenant's limit, without gaps",
        )
    return found


def _codes(code: NDArray[np.int32]) -> int:
    return int(code.max(initial=-1)) + 1


def _check_files(base: NDArray[np.int64], size: NDArray[np.int64]) -> None:
    if not len(base):
        return
    in_range = min(base.min(), size.min()) >= 0 and max(base.max(), size.max()) <= MOST_PAGES
    if not in_range or (base + size).max() > MOST_PAGES:
        raise BadTrace(
            f"files do not lie in pages 0 .. {MOST_PAGES}", "renumber the pages of the files"
        )
    order = np.lexsort((size, base))
    if np.any((base + size)[order][:-1] > base[order][1:]):
        raise BadTrace("the pages of two files overlap", "give each file pages of its own")


def _check_rows(runs: PageRuns) -> None:
    if runs.file.min() < 0 or runs.file.max() >= len(runs.base):
        raise BadTrace(f"a run's file is not in 0 .. {len(runs.base) - 1}", "renumber the files")
    start = runs.base[runs.file]
    end = start + runs.size_pages[runs.file]
    # In this order, so that no sum overflows.
    if runs.pages.min() < 1 or np.any(runs.first < start) or np.any(runs.first > end - runs.pages):
        raise BadTrace("a run does not lie in its file", "check `first`, `pages` and `size_pages`")
    if runs.kind.min() < READ or runs.kind.max() > BEFORE:
        raise BadTrace("a run has an unknown kind", "give READ, FAULT, WRITE, REMOVE or BEFORE")
    rows = len(runs.first)
    for name, most in (("reader", rows), ("tenant", MOST_TENANTS), ("group", MOST_GROUPS)):
        code = getattr(runs, name)
        if code.min() < 0 or code.max() >= most:
            raise BadTrace(f"a run's {name} is not in 0 .. {most - 1}", f"renumber the {name}s")
