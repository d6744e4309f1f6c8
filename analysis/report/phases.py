"""The table of phases: their durations, and kernel activity during them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracer.analysis.report.histogram import buckets, spread
from tracer.analysis.report.mergeable import whole
from tracer.analysis.report.table import QUANTILES, Column, MergedTable
from tracer.analysis.views.cuts import Cuts
from tracer.analysis.views.phases.nesting import NEVER, numbers_within
from tracer.analysis.views.phases.spans import Spans, read_spans
from tracer.analysis.views.view import apart
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FETCH = "fetch"
_COSTS = {
    "calls": ("syscalls", "1::BIGINT"),
    "call_ns": ("syscalls", "coalesce(dur_ns, 0)"),
    "faults": ("page_faults", "1::BIGINT"),
}
"""Columns summed over the rows of a phase's own thread: source table and SQL value of each."""

_DURATIONS = f"""
SELECT name, min(start) AS min_start, {buckets("ns")} FROM (
    SELECT name, start, {apart('"end"', "start")} AS ns FROM phases
) GROUP BY ALL
"""

_WRITTEN = """
WITH written AS (
    SELECT ts, sum(pages) OVER (ORDER BY ts RANGE UNBOUNDED PRECEDING) AS n
    FROM {flushes} WHERE NOT own AND NOT below
),
spans AS (
    SELECT name, start, greatest(coalesce(until, {never}), start) AS ended FROM phase_times
),
islands AS (
    -- Overlapping phases of the same name, of any processes, are merged into one stretch.
    SELECT name, start, ended, sum(apart) OVER (PARTITION BY name ORDER BY start, ended) AS island
    FROM (
        SELECT name, start, ended, coalesce(start > max(ended) OVER (
            PARTITION BY name ORDER BY start, ended
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), true)::INT AS apart
        FROM spans
    )
),
stretches AS (
    SELECT name, min(start) AS start, max(ended) AS ended FROM islands GROUP BY name, island
)
SELECT s.name, sum(coalesce(w2.n, 0) - coalesce(w1.n, 0))::DOUBLE AS written_pages
FROM stretches s
ASOF LEFT JOIN written w1 ON s.start > w1.ts
ASOF LEFT JOIN written w2 ON s.ended > w2.ts
GROUP BY s.name
"""


def _parts(trace: Trace) -> pd.DataFrame:
    trace.require("phases")
    spans = read_spans(trace)
    named = trace.sql("SELECT name FROM phase_names ORDER BY code")
    lanes = _lanes(trace)
    sums = named.assign(
        processes=trace.sql(
            "SELECT code, count(DISTINCT pid) AS n FROM phases JOIN phase_names USING (name)"
            " GROUP BY code ORDER BY code"
        )["n"],
        **_numbers(spans, lanes, named["name"].to_numpy()),
        **_costs(trace, spans, lanes["known"].to_numpy(bool), len(named)),
    )
    if "block" in trace.tables:
        view = flushes(trace)
        written = trace.sql(_WRITTEN.format(flushes=view, never=NEVER))
        sums = sums.merge(written, on="name", how="left")
    else:
        sums["written_pages"] = None
    durations = trace.sql(_DURATIONS)
    return pd.concat([durations.assign(part="durations"), sums.assign(part="costs")])


def _lanes(trace: Trace) -> pd.DataFrame:
    """Returns the process (from 0) of each lane, and whether its thread id is the kernel's."""
    trace.empty_if_missing("processes")
    return trace.sql(
        """
        SELECT dense_rank() OVER (ORDER BY l.pid, l.process_begun) - 1 AS process,
            (SELECT count(*) FROM processes) = 0 OR k.tid IS NOT NULL AS known
        FROM phase_lanes l LEFT JOIN (SELECT DISTINCT pid, tid FROM processes) k
            ON l.pid = k.pid AND l.tid = k.tid
        ORDER BY lane
        """
    )


def _numbers(spans: Spans, lanes: pd.DataFrame, names: NDArray[Any]) -> dict[str, Any]:
    """Counts distinct epochs and steps by phase name, marked in the phase or inside it."""
    found = numbers_within(spans.lane, spans.start, spans.end, spans.name, spans.number)
    process = lanes["process"].to_numpy(np.int64)
    # A DataLoader worker repeats the numbers of the steps that it fetches for: do not count it.
    works = np.zeros(len(process), bool)
    works[process[spans.lane[names[spans.name] != _FETCH]]] = True
    if works.any():
        found = found[works[process[found[:, 0]]]]
    # The epoch and the step of each dense number; -1: none.
    of_number = np.full((2, int(spans.number.max(initial=0)) + 2), -1, np.int64)
    of_number[0, spans.number] = spans.pass_epoch
    of_number[1, spans.number] = np.where(spans.step.is_valid(), spans.number, -1)
    counts = {}
    for column, codes in zip(("epochs", "steps"), of_number, strict=True):
        code = codes[found[:, 2]]
        key = found[:, 1] * len(process)
        key += process[found[:, 0]]
        key *= len(codes)
        key += code
        key = key[code >= 0]
        key.sort()  # many times faster than np.unique, which builds a hash table
        distinct = key[np.diff(key, prepend=-1) > 0] // max(1, len(process) * len(codes))
        counts[column] = np.bincount(distinct, minlength=len(names))
    return counts


def _costs(
    trace: Trace, spans: Spans, known: NDArray[np.bool_], names: int
) -> dict[str, NDArray[np.float64] | None]:
    """Returns the sums of `_COSTS` by phase name; NaN if none of its threads is known."""
    # What happens at the end of a phase happens in the next one.
    lane, ts = np.concatenate([spans.lane, spans.lane]), np.concatenate([spans.start, spans.end])
    order = np.lexsort((ts, lane))
    cuts = Cuts(lane[order], ts[order])
    first, last = cuts.last(spans.lane, spans.start), cuts.last(spans.lane, spans.end)
    counted = known[spans.lane]
    name = spans.name[counted]
    any_known = np.bincount(name, minlength=names) > 0
    found: dict[str, NDArray[np.float64] | None] = dict.fromkeys(_COSTS)
    for table in {table for table, _ in _COSTS.values()} & set(trace.tables):
        asked = {column: value for column, (of, value) in _COSTS.items() if of == table}
        rows = trace.batches(
            f"SELECT lane, ts, {', '.join(asked.values())}"
            f" FROM {table} e JOIN phase_lanes l ON e.tid = l.tid AND ts BETWEEN begun AND last"
            " WHERE ts IS NOT NULL"
        )
        sums = cuts.sums_before(
            (tuple(map(np.asarray, batch.columns)) for batch in rows), len(asked)
        )
        for column, before in zip(asked, sums, strict=True):
            spent = np.bincount(name, (before[last] - before[first])[counted], names)
            found[column] = np.where(any_known, spent, np.nan)
    return found


def _finish(parts: pd.DataFrame) -> pd.DataFrame:
    durations = parts[parts["part"] == "durations"]
    names = durations.groupby("name")
    times = spread(durations, ["name"])
    sums = parts[parts["part"] == "costs"].set_index("name")
    found = pd.DataFrame({"count": names["n"].sum().astype("int64")})
    for column in ("processes", "epochs", "steps"):
        found[column] = sums[column].astype("int64")
    unfinished = durations["n"].where(durations["bucket"].isna(), 0).groupby(durations["name"])
    found["unfinished"] = unfinished.sum().astype("int64")
    found["total_s"] = times["total"] / 1e9
    for column, of in {"mean_ms": "mean", "p50_ms": "p50", "p99_ms": "p99"}.items():
        found[column] = times[of] / 1e6
    costs = sums[["calls", "call_ns", "faults", "written_pages"]].astype(float)
    found["calls"] = whole(costs["calls"])
    found["call_s"] = costs["call_ns"] / 1e9
    found["faults"] = whole(costs["faults"])
    found["written_pages"] = whole(costs["written_pages"])
    found["begun"] = names["min_start"].min()
    found = found.reset_index().sort_values(["begun", "name"], ignore_index=True)
    return found.drop(columns="begun")


PHASES = MergedTable(
    "phases",
    "Phases, and kernel activity during them",
    (
        Column("name", "phase", "phase", text=True),
        Column("count", "how many", "n"),
        Column("processes", "distinct processes"),
        Column("epochs", "distinct epochs marked in it or inside it"),
        Column("steps", "distinct steps marked in it or inside it", "steps"),
        Column("unfinished", "how many never ended"),
        Column("total_s", "time together", "total s"),
        Column("mean_ms", "mean time", "mean ms"),
        Column("p50_ms", "median time"),
        Column("p99_ms", "99th percentile of the times"),
        Column("calls", "system calls of the phase's own thread that were entered in it", "calls"),
        Column("call_s", "time in these calls"),
        Column("faults", "page faults of the phase's own thread", "faults"),
        Column("written_pages", "pages that the whole machine wrote meanwhile", "written"),
    ),
    needs=("phases",),
    keys=("name", "part", "bucket"),
    parts=_parts,
    finish=_finish,
    note="Times are whole, also of phases that began before the recording; all else is what was"
    " recorded of them. Calls and faults: of the phase's own thread. Written: pages of the whole"
    " machine during any phase of that name, without the tracer's own. A dash: not recorded, or the"
    f" kernel has another number for the thread (in a container). {QUANTILES}",
)


def phases(trace: Trace) -> pd.DataFrame:
    """Returns phases by name: their number, durations, and kernel activity during them.

    `PHASES` has the columns. Null: not recorded, or marked by a thread whose id in the kernel
    differs (in a container).
    """
    return PHASES.of(trace)
