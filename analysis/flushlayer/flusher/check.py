"""Comparison of regenerated and recorded write-back, at the settings of the recording."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracer.analysis.flushlayer.flusher.dirtying import Dirtyings
from tracer.analysis.flushlayer.flusher.fixed_writes import prepared
from tracer.analysis.flushlayer.flusher.knobs import recorded_knobs
from tracer.analysis.flushlayer.flusher.regenerate import Regenerated, regenerate
from tracer.probes.errors import UsageError
from tracer.store.trace import Trace

MOST_BINS = 2000


@dataclass(frozen=True)
class Check:
    """The difference between the model's write-back and the recorded one, in pages.

    `by_reason`: reason, recorded, regenerated, difference; one row per reason. `over_time`:
    start_ns, recorded, regenerated, difference; one row per bin. `by_inode`: dev, ino (of all files
    that had the number), recorded, regenerated, difference; the largest difference first.
    `misplaced_share`: the share of pages that would have to move to another bin, appear or
    disappear to make both equal; None: no pages were recorded.
    """

    by_reason: pd.DataFrame
    over_time: pd.DataFrame
    by_inode: pd.DataFrame
    misplaced_share: float | None
    notes: list[str]


def check(trace: Trace, bin_s: float = 5.0) -> Check:
    """Regenerates a trace's write-back at its own settings and compares both.

    Raises UsageError if `bin_s` is out of range, and the errors of `prepared` (BadTrace).
    """
    if not (np.isfinite(bin_s) and 0 < bin_s <= 86_400):
        raise UsageError(f"a bin cannot be {bin_s} s long", "give a length above 0, e.g. 5")
    found, recorded = prepared(trace)
    made = regenerate(found, recorded, recorded_knobs(trace))
    return compared(found, made, bin_s)


def compared(found: Dirtyings, made: Regenerated, bin_s: float = 5.0) -> Check:
    """Compares recorded and regenerated write-back.

    A bin has `bin_s`, or more if there would be more than MOST_BINS bins.
    """
    width = max(int(bin_s * 1e9), (found.end_ns - found.start_ns) // MOST_BINS + 1)
    bins = max(1, -(-(found.end_ns - found.start_ns) // width))

    def binned(frame: pd.DataFrame) -> pd.DataFrame:
        number = ((frame["ts"] - found.start_ns) // width).clip(0, bins - 1)
        return frame.assign(start_ns=number * width + found.start_ns)

    was = binned(found.written).merge(found.inodes, left_on="inode", right_index=True)
    now = binned(made.writes)
    over_time = _beside(was, now, ["start_ns"])
    total = int(found.written["pages"].sum())
    misplaced = None
    if total:
        both = over_time[["recorded", "regenerated"]].min(axis=1).sum()
        misplaced = float(1 - both / max(total, int(over_time["regenerated"].sum())))
    by_inode = _beside(was, now, ["dev", "ino"])
    worst = by_inode["difference"].abs().sort_values(ascending=False, kind="stable").index
    return Check(
        _beside(was, now, ["reason"]),
        over_time,
        by_inode.loc[worst].reset_index(drop=True),
        misplaced,
        [*found.notes, *made.assumptions],
    )


def _beside(was: pd.DataFrame, now: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    both = pd.concat(
        [
            was.groupby(keys)["pages"].sum().rename("recorded"),
            now.groupby(keys)["pages"].sum().rename("regenerated"),
        ],
        axis=1,
    )
    both = both.fillna(0).astype(np.int64).sort_index()
    both["difference"] = both["regenerated"] - both["recorded"]
    return both.reset_index(names=keys)
