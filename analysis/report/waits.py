"""The table of waits: what each target's threads waited for, and whose it was."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.findings.cpu_holders import holder
from tracer.analysis.report.table import Column, MergedTable
from tracer.analysis.views.threads import same_work
from tracer.analysis.views.waiting.critical_path import RUN, main_steps, path_sums
from tracer.analysis.views.waiting.waits import waits
from tracer.store.trace import Trace

_KEYS = ("target", "kind", "whose", "blamed")

_BLAMED = f"""
SELECT coalesce(w.target, '') AS target, w.kind, w.dur_ns, CASE
        WHEN w.for_pid = w.pid OR w.for_target = w.target THEN 'itself'
        WHEN w.for_target IS NOT NULL THEN 'target'
        WHEN w.for_container IS NOT NULL THEN 'container'
        WHEN w.for_pid IS NOT NULL THEN 'process'
        WHEN w.by_tid IS NOT NULL THEN
            CASE WHEN w.by_pid = w.pid OR w.by_target = w.target THEN 'itself'
                WHEN w.by_target IS NOT NULL THEN 'target'
                WHEN w.by_container IS NOT NULL THEN 'container'
                WHEN k.kernel THEN 'kernel' ELSE 'process' END
        WHEN w.kind = 'timer' THEN 'itself'
        WHEN w.kind = 'gpu' THEN 'GPU'
        WHEN w.kind = 'throttled' THEN 'its CPU quota'
        WHEN w.kind = 'cpu' AND w.certainty = 'exact' THEN 'idle CPU'
        WHEN w.detail IS NULL THEN 'unknown'
        WHEN w.kind = 'fault' THEN 'file'
        WHEN w.kind IN ('disk', 'dirty', 'sync') THEN 'device'
        ELSE 'unknown'
    END AS whose,
    CASE whose WHEN 'target' THEN coalesce(w.for_target, w.by_target)
        WHEN 'container' THEN left(coalesce(w.for_container, w.by_container), 12)
        WHEN 'kernel' THEN {same_work("w.by_comm")}
        WHEN 'process' THEN
            if(w.for_pid IS NULL, if(w.kind = 'cpu', {{holder}}, w.by_comm), w.for_comm)
        WHEN 'device' THEN if(w.kind = 'sync', NULL, w.detail) WHEN 'file' THEN w.detail
    END AS blamed
FROM {{rows}} w
-- Other threads have had the number, before or after, by other names or of other processes.
LEFT JOIN (SELECT tid, pid, comm, bool_and(kernel) AS kernel FROM threads GROUP BY ALL) k
    ON w.by_tid = k.tid AND w.by_pid IS NOT DISTINCT FROM k.pid
    AND w.by_comm IS NOT DISTINCT FROM k.comm
WHERE w.kind != '{RUN}'
"""


def _blamed(trace: Trace, rows: str) -> str:
    return _BLAMED.format(rows=rows, holder=holder(trace))


def path_times(trace: Trace) -> tuple[pd.DataFrame, int]:
    """Returns the time of steps' critical paths by cause, and the number of the steps.

    Columns: kind (run, or that of a wait), whose (own or another thread, for run; else as in
    `WAITS`), ns. Steps of training count; others if there are none.
    """
    path = path_sums(trace)
    frame = trace.sql(
        f"""
        SELECT kind, whose, sum(dur_ns)::DOUBLE AS ns FROM ({_blamed(trace, path)})
        GROUP BY ALL
        UNION ALL
        SELECT kind, if(tid = step_tid, 'own thread', 'another thread'), sum(dur_ns)::DOUBLE
        FROM {path} WHERE kind = '{RUN}' GROUP BY ALL
        """
    )
    steps = trace.rows(f"SELECT count(*) FROM path_steps WHERE {main_steps(trace)}")
    return frame, int(steps[0][0])


def _parts(trace: Trace) -> pd.DataFrame:
    waits(trace)
    keys = ", ".join(_KEYS)
    found = trace.sql(
        f"SELECT {keys}, count(*) AS n, count(*) FILTER (dur_ns IS NULL) AS unended,"
        " coalesce(sum(dur_ns), 0)::DOUBLE AS ns"
        f" FROM ({_blamed(trace, 'waits')}) GROUP BY ALL"
    )
    found["path_ns"] = None
    if "phases" in trace.tables:
        on_path = trace.sql(
            f"SELECT {keys}, sum(dur_ns)::DOUBLE AS path_ns"
            f" FROM ({_blamed(trace, path_sums(trace))}) GROUP BY ALL"
        )
        found = found.drop(columns="path_ns").merge(on_path, on=list(_KEYS), how="outer")
        if trace.rows("SELECT 1 FROM path_steps LIMIT 1"):
            found["path_ns"] = found["path_ns"].fillna(0)
        counted = ["n", "unended", "ns"]
        found[counted] = found[counted].fillna(0)
    names = found[list(_KEYS)].astype(object)
    found[list(_KEYS)] = names.where(names.notna(), None)
    return found.astype({"n": "int64", "unended": "int64", "path_ns": "Float64"})


def _finish(parts: pd.DataFrame) -> pd.DataFrame:
    groups = parts.groupby(list(_KEYS), dropna=False, sort=False)
    found = groups[["n", "unended", "ns"]].sum()
    found["path_ns"] = groups["path_ns"].sum(min_count=1)
    found = found.reset_index()
    whole = found.groupby("target")["ns"].transform("sum")
    found["share"] = (found["ns"] / whole).where(whole > 0)
    found["total_s"] = found["ns"] / 1e9
    found["path_s"] = found["path_ns"] / 1e9
    found["target"] = found["target"].replace("", None)
    found = found.rename(columns={"n": "waits"})
    return found.sort_values(
        ["path_s", "total_s", "target", "kind", "whose", "blamed"],
        ascending=[False, False, True, True, True, True],
        ignore_index=True,
    )[[column.name for column in WAITS.columns]]


WAITS = MergedTable(
    "waits",
    "Waits of the targets' threads, by what they waited for",
    (
        Column("target", "target of the waiting thread; null: the trace has none", "target", True),
        Column("kind", "cause of the wait, as in the view waits", "kind", text=True),
        Column(
            "whose",
            "itself, another target, a container, a kernel thread, another process, a device, a "
            "file, a GPU, an idle CPU, its CPU quota (the target had used it up), or unknown",
            "whose",
            text=True,
        ),
        Column(
            "blamed", "name of that target, container, thread, device or file", "name", text=True
        ),
        Column("waits", "how many", "waits"),
        Column("unended", "how many of unknown length: they count in no time"),
        Column("total_s", "time of these waits, in all threads together", "total s"),
        Column("share", "share of all time that the target's threads waited", "share"),
        Column(
            "path_s",
            "time on the critical paths of training steps (of all steps if none trains); null: no "
            "steps",
            "path s",
        ),
    ),
    needs=("processes", "off_cpu"),
    keys=_KEYS,
    parts=_parts,
    finish=_finish,
    note="Path s is the part that steps depended on. Threads that have nothing to do wait, too.",
)


def waits_table(trace: Trace) -> pd.DataFrame:
    """Returns what threads waited for, by target and cause. `WAITS` has the columns."""
    return WAITS.of(trace)
