"""Runs of pages without those that turn out not to have been there.

A window around a fault may seem to map pages that are added to the cache only later. The rows that
tell so take back the last window's use of each of these pages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled, read_only

Rows = dict[str, NDArray[Any]]


def without_taken_back(rows: Rows, mapped: NDArray[np.bool_]) -> Rows:
    """Returns runs, in order of time, without the pages whose uses others of them take back.

    rows: first, index, pages, tenant, `taken_back` (True: this run takes back uses), and others,
    which it keeps for what is left of a run. `mapped`: the runs of windows.
    """
    back = rows["taken_back"]
    if not back.any():
        return rows
    first, pages = rows["first"], rows["pages"].astype(np.int64)
    wanted = np.unique(_pages_of(first[back], pages[back]))
    low, high = np.searchsorted(wanted, first), np.searchsorted(wanted, first + pages)
    concerned = np.flatnonzero((back | mapped) & (low < high))
    run, page = np.empty((2, int(pages[back].sum())), np.int64)
    gone = _taken_back(
        *(read_only(concerned), read_only(low), read_only(high)),
        read_only(back),
        *(read_only(wanted), run, page),
    )
    run, page = run[:gone], page[:gone]
    # These runs fall apart into pages.
    parts = np.ones(len(back), np.int64)
    parts[run] = pages[run]
    begin = np.cumsum(parts) - parts
    kept = np.ones(int(parts.sum()), np.bool_)
    kept[begin[run] + page - first[run]] = False
    # A target that uses a page keeps one use.
    uses = np.flatnonzero(~back)
    kept[begin[uses[np.unique(rows["tenant"][uses], return_index=True)[1]]]] = True
    kept[begin[back]] = False
    of = np.repeat(np.arange(len(back)), parts)
    offset = (np.arange(len(of)) - begin[of])[kept]
    of = of[kept]
    left = {name: values[of] for name, values in rows.items()}
    left["first"] = left["first"] + offset
    left["index"] = left["index"] + offset
    left["pages"] = np.where(parts[of] > 1, 1, left["pages"]).astype(rows["pages"].dtype)
    return left


def _pages_of(first: Ints, pages: Ints) -> Ints:
    begin = np.cumsum(pages) - pages
    return np.repeat(first - begin, pages) + np.arange(int(pages.sum()))


@compiled
def _taken_back(
    concerned: Ints,
    low: Ints,
    high: Ints,
    back: NDArray[np.bool_],
    wanted: Ints,
    run: Ints,
    page: Ints,
) -> int:
    # Fills in the run of each use that is taken back, and its page; returns their number.
    last = np.full(len(wanted), -1)
    gone = 0
    for row in concerned:
        for at in range(low[row], high[row]):
            if not back[row]:
                last[at] = row
            elif last[at] >= 0:
                run[gone], page[gone] = last[at], wanted[at]
                last[at] = -1
                gone += 1
    return gone
