"""Runs of pages without those that turn out not to have been there.

A window around a fault may seem to map pages that are added to the cache only later, and a call may
ask for pages beyond the end of its file. The rows that tell so, with the time and the thread of the
window or the call, take back its use of each of these pages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.stretches import Ints
from tracer.probes.compiled import compiled, read_only

Rows = dict[str, NDArray[Any]]


def without_taken_back(rows: Rows, mapped: NDArray[np.bool_], called: NDArray[np.bool_]) -> Rows:
    """Returns runs, in order of time, without the pages whose uses others of them take back.

    rows: first, index, pages, tenant, ts, tid, `taken_back` (True: this run takes back uses), and
    others, which it keeps for what is left of a run. `mapped`: the runs of windows, which fall
    apart into pages; `called`: those of calls, which become shorter.
    """
    back = rows["taken_back"]
    if not back.any():
        return rows
    first, pages = rows["first"], rows["pages"].astype(np.int64)
    wanted = np.unique(_pages_of(first[back], pages[back]))
    low, high = np.searchsorted(wanted, first), np.searchsorted(wanted, first + pages)
    concerned = np.flatnonzero((back | mapped | called) & (low < high))
    run, page = np.empty((2, int(pages[back].sum())), np.int64)
    ts, tid = (read_only(rows[name].astype(np.int64)) for name in ("ts", "tid"))
    gone = _taken_back(
        *(read_only(concerned), read_only(low), read_only(high)),
        *(read_only(back), ts, tid),
        *(read_only(wanted), run, page),
    )
    run, page = run[:gone], page[:gone]
    # The last pages of a call's run are taken back, so it stays one run.
    of_call = called[run]
    left_of = pages - np.bincount(run[of_call], minlength=len(back))
    run, page = run[~of_call], page[~of_call]
    # The runs of windows fall apart into pages.
    parts = np.ones(len(back), np.int64)
    parts[run] = pages[run]
    begin = np.cumsum(parts) - parts
    kept = np.ones(int(parts.sum()), np.bool_)
    kept[begin[run] + page - first[run]] = False
    kept[begin[back | (left_of == 0)]] = False
    of = np.repeat(np.arange(len(back)), parts)
    # A target that would be left without any use keeps one.
    uses = np.flatnonzero(~back)
    tenants, at = np.unique(rows["tenant"][uses], return_index=True)
    gone_out = ~np.isin(tenants, rows["tenant"][of[kept]])
    kept[begin[uses[at[gone_out]]]] = True
    offset = (np.arange(len(of)) - begin[of])[kept]
    of = of[kept]
    left = {name: values[of] for name, values in rows.items()}
    left["first"] = left["first"] + offset
    left["index"] = left["index"] + offset
    length = np.where(parts[of] > 1, 1, np.maximum(1, left_of[of]))
    left["pages"] = length.astype(rows["pages"].dtype)
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
    ts: Ints,
    tid: Ints,
    wanted: Ints,
    run: Ints,
    page: Ints,
) -> int:
    # Fills in the run of each use that is taken back, and its page; returns their number. Backward
    # in time, a page has the rows that take it back, until their windows come.
    last = np.full(len(wanted), -1)
    asking, before = np.empty_like(run), np.empty_like(run)
    asked = gone = 0
    for number in range(len(concerned) - 1, -1, -1):
        row = concerned[number]
        for at in range(low[row], high[row]):
            if back[row]:
                asking[asked], before[asked] = row, last[at]
                last[at] = asked
                asked += 1
                continue
            found, later = last[at], -1
            while found >= 0 and (ts[asking[found]] != ts[row] or tid[asking[found]] != tid[row]):
                found, later = before[found], found
            if found < 0:
                continue
            if later < 0:
                last[at] = before[found]
            else:
                before[later] = before[found]
            run[gone], page[gone] = row, wanted[at]
            gone += 1
    return gone
