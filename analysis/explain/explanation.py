"""Numbers of an explanation: what the steps depended on, and what the slowest had more of.

All numbers are sums of segments of the view `critical_path`. Typical steps are those in the middle
half by their time; of fewer than four, those up to the median, but not the slowest unless all are
equal. The parts of a step add up to its time, and the means over the typical steps to their mean
time. So the differences between a slow step and a typical one add up, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from tracer.analysis.explain.losses import lossy_steps, lost, lost_in
from tracer.analysis.explain.segments import longest_segments
from tracer.analysis.findings.cpu_holders import holder_or_waker
from tracer.analysis.findings.finding import Finding
from tracer.analysis.findings.processors import steal
from tracer.analysis.findings.waits import waits
from tracer.analysis.views.phases.epoch_passes import has_passes, with_passes
from tracer.analysis.views.waiting.critical_path import main_steps, path_sums
from tracer.probes.errors import BadTrace, UsageError
from tracer.probes.text import shell_word
from tracer.store.trace import Trace

UNNAMED = "[unnamed]"
"""The name of a thread whose name is not known."""

GROUPS: dict[str, tuple[str, ...]] = {
    "kind": ("phase", "thread", "kind", "call", "by_comm", "detail"),
    "target": ("kind", "target", "by_target", "by_container"),
    "file": ("kind", "detail"),
    "thread": ("step_pid", "thread", "tid", "kind", "by_comm", "by_tid"),
    "line": ("thread", "kind", "line"),
}
"""Columns of `explained_parts` that parts of a step's time are grouped by."""

_SOURCES = {
    "thread": f"if(tid = step_tid, NULL, coalesce(comm, '{UNNAMED}'))",
    # A thread that waits for a CPU waits in any call, or in none.
    "call": "if(kind = 'cpu', NULL, call)",
    # A wait for others' data counts for those whose data it is, not for the journal's thread.
    "by_target": "coalesce(for_target, by_target)",
    "by_container": "coalesce(for_container, by_container)",
}
"""SQL for columns of `explained_parts` that are no columns of `critical_path`."""

_COLUMNS = f"""
    phase, {_SOURCES["thread"]} AS thread, tid, target, kind, {_SOURCES["call"]} AS call, detail,
    {{by_comm}} AS by_comm, by_tid, {_SOURCES["by_target"]} AS by_target,
    {_SOURCES["by_container"]} AS by_container, certainty, line, step_pid
"""

_PARTS = f"""
CREATE OR REPLACE TEMP VIEW explained_parts AS
SELECT step_tid, step_start, step_end, {_COLUMNS}, dur_ns AS ns FROM critical_path WHERE {{main}}
"""

# Few rows, whatever the number of steps.
_ALL_PARTS = f"""
CREATE OR REPLACE TEMP TABLE all_parts AS
SELECT typical, {_COLUMNS}, sum(dur_ns)::BIGINT AS ns FROM path_sums GROUP BY ALL
"""

_STEPS = """
CREATE OR REPLACE TEMP TABLE explained_steps AS
SELECT s.* FROM steps s SEMI JOIN (FROM path_steps WHERE {main}) p USING (tid, start, "end")
"""

# The middle half of two or three steps would have the slowest of them.
_LOW = "if(count(*) < 4, min(total_ns), quantile_disc(total_ns, 0.25))"
_HIGH = """
CASE WHEN count(*) >= 4 THEN quantile_disc(total_ns, 0.75)
    WHEN quantile_disc(total_ns, 0.5) < max(total_ns) THEN quantile_disc(total_ns, 0.5)
    ELSE min(total_ns) END
"""

# The parts of a process are compared with those of its own typical steps.
_TYPICAL = f"""
CREATE OR REPLACE TEMP TABLE typical_steps AS
WITH within AS (
    SELECT pid, {_LOW} AS low, {_HIGH} AS high FROM explained_steps GROUP BY pid
)
SELECT s.pid, s.tid, s.start, s."end", s.total_ns FROM explained_steps s
JOIN within w ON s.pid IS NOT DISTINCT FROM w.pid AND s.total_ns BETWEEN w.low AND w.high
"""
_IN_TYPICAL = '(tid, start, "end") IN (SELECT (tid, start, "end") FROM typical_steps)'

_SUMMARY = f"""
SELECT count(*) AS steps, count(DISTINCT pid) AS processes, median(total_ns) AS median,
    quantile_disc(total_ns, 0.95) AS p95, max(total_ns) AS longest,
    sum(total_ns::HUGEINT)::DOUBLE AS total, {_LOW} AS low, {_HIGH} AS high,
    CASE WHEN min(coalesce(stage, '')) = max(coalesce(stage, '')) THEN any_value(stage) END AS stage
FROM explained_steps
"""


@dataclass(frozen=True)
class Part:
    """A part of the time of steps: all segments with the same values in the columns of a group.

    `ns`: their time, in all steps or in one. `share`: of the steps' time. `typical_ns`: their mean
    time in a typical step. `query` gives `ns` in its first cell.
    """

    group: dict[str, Any]
    ns: int
    share: float
    typical_ns: float
    query: str

    @property
    def more_ns(self) -> float:
        """Time beyond that in a typical step."""
        return self.ns - self.typical_ns


@dataclass(frozen=True)
class SlowStep:
    """A step with its parts, those that it has more of than a typical step first.

    They add up to its time, and their differences to its difference from a typical step.
    """

    epoch: int | None
    epoch_pass: int | None
    """Number of times that its process had marked the number of the epoch by then; None: no process
    of the trace marks one twice."""
    step: int | None
    pid: int | None
    tid: int
    start: int
    total_ns: int
    typical_steps: int
    typical_ns: float
    """Mean time of the typical steps that it is compared with: for parts by thread, those of its
    process."""
    parts: list[Part]
    segments: list[dict[str, Any]]
    """The longest segments in order of time, as in `critical_path`, each with `meanwhile`
    (`tracer.analysis.explain.meanwhile`)."""
    more_segments: int
    """Segments that are left out, since they are shorter than those."""
    storage: dict[str, Any] | None
    """The longest sleep for storage on the path, with `meanwhile`; None: there is none. It may have
    waited for several things, one after the other."""
    lossy: bool
    """True if events were lost during the step."""

    @property
    def alone(self) -> bool:
        """True if no other step is typical."""
        return self.typical_steps == 1 and self.typical_ns == self.total_ns


@dataclass(frozen=True)
class Explanation:
    """The explanation of a trace. Times are in ns."""

    stage: str | None
    """Stage of all these steps; None: they have none, or different ones."""
    steps: int
    processes: int
    """Processes whose steps count together."""
    targets: dict[int, str | None]
    """Target of each of these processes, by its number; None: it has none."""
    median_ns: int
    p95_ns: int
    longest_ns: int
    total_ns: float
    typical_steps: int
    typical_ns: float
    """Mean time of a typical step."""
    unknown_share: float
    """Share of the steps' time whose cause no event tells."""
    inferred_share: float
    lossy: bool
    """True if events were lost during the recording."""
    lossy_steps: int
    findings: list[Finding]
    """Sentences about waits that take much of the steps' time, and about steal, greatest first."""
    parts: list[Part]
    """Parts of the time of all steps, the longest first."""
    slowest: list[SlowStep]


def explain(
    trace: Trace,
    by: str = "kind",
    slowest: int = 3,
    step: tuple[int, int] | None = None,
    segments: int = 12,
) -> Explanation:
    """Explains the time of a trace's training steps; of its other steps if it has none of those.

    `by`: a key of `GROUPS`. `step`: epoch and number of a step to explain instead of the slowest.
    Raises BadTrace if the trace lacks a table, UsageError if it has no such step.
    """
    main = main_steps(trace)
    by_comm = holder_or_waker(trace)
    trace.execute(_PARTS.format(main=main, by_comm=by_comm))
    trace.execute(_STEPS.format(main=main))
    told = trace.sql(_SUMMARY).iloc[0]
    if not told["steps"]:
        raise BadTrace(
            f"{trace.folder} has no step that began and ended in the recording",
            "record a training with its phases (docs/phases.md) from its start: "
            "tracer record -e default,sched -- python train.py",
        )
    columns = GROUPS[by]
    within = f"total_ns BETWEEN {int(told['low'])} AND {int(told['high'])}"
    typical = trace.sql(
        f"SELECT count(*) AS steps, avg(total_ns) AS ns FROM explained_steps WHERE {within}"
    ).iloc[0]
    all_typical = (int(typical["steps"]), float(typical["ns"]))
    of_process: dict[int | None, tuple[int, float]] = {}
    if "step_pid" in columns:
        trace.execute(_TYPICAL)
        of_process = {
            pid: (int(steps), float(ns))
            for pid, steps, ns in trace.rows(
                "SELECT pid, count(*), avg(total_ns) FROM typical_steps GROUP BY ALL"
            )
        }
    path_sums(trace, _IN_TYPICAL if of_process else within)
    trace.execute(_ALL_PARTS.format(by_comm=by_comm))
    means = _means(trace, columns, all_typical[0], of_process)
    certainty = _certainties(trace)
    anew = has_passes(trace)
    chosen = _chosen(trace, slowest, step)
    return Explanation(
        stage=told["stage"] if isinstance(told["stage"], str) else None,
        steps=int(told["steps"]),
        processes=int(told["processes"]),
        targets=_targets(trace),
        median_ns=int(told["median"]),
        p95_ns=int(told["p95"]),
        longest_ns=int(told["longest"]),
        total_ns=float(told["total"]),
        typical_steps=all_typical[0],
        typical_ns=all_typical[1],
        unknown_share=certainty.get("unknown", 0.0) / float(told["total"]),
        inferred_share=certainty.get("inferred", 0.0) / float(told["total"]),
        lossy=lost(trace),
        lossy_steps=lossy_steps(trace),
        findings=sorted([*waits(trace), *steal(trace)], key=lambda one: -one.weight),
        parts=_parts(trace, columns, float(told["total"]), means, main),
        slowest=[
            SlowStep(
                _optional(row["epoch"]),
                int(row["pass"]) if anew and not pd.isna(row["epoch"]) else None,
                _optional(row["step"]),
                _optional(row["pid"]),
                int(row["tid"]),
                int(row["start"]),
                int(row["total_ns"]),
                *of_process.get(_optional(row["pid"]), all_typical),
                sorted(
                    _parts(trace, columns, float(row["total_ns"]), means, main, row),
                    key=lambda part: -part.more_ns,
                ),
                longest,
                more,
                storage,
                lost_in(trace, row),
            )
            for row in chosen
            for longest, more, storage in [longest_segments(trace, _of_step(row), segments)]
        ],
    )


def _optional(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _targets(trace: Trace) -> dict[int, str | None]:
    """Returns the target of each process that has steps."""
    found = trace.rows(
        "SELECT step_pid, any_value(target) FILTER (pid = step_pid) FROM path_sums"
        " WHERE step_pid IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    return {int(pid): target for pid, target in found}


def _means(
    trace: Trace,
    columns: tuple[str, ...],
    steps: int,
    of_process: dict[int | None, tuple[int, float]],
) -> dict[tuple[Any, ...], float]:
    """Returns the mean time of each part in a typical step: of `steps`, or those of its process."""
    frame = trace.sql(
        f"SELECT {', '.join(columns)}, sum(ns)::DOUBLE AS ns FROM all_parts WHERE typical"
        " GROUP BY ALL"
    )

    def count(row: dict[Any, Any]) -> int:
        return of_process[_optional(row["step_pid"])][0] if of_process else steps

    return {_key(row, columns): row["ns"] / count(row) for row in frame.to_dict("records")}


def _key(row: dict[Any, Any], columns: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(None if pd.isna(row[name]) else row[name] for name in columns)


def _certainties(trace: Trace) -> dict[str, float]:
    frame = trace.sql("SELECT certainty, sum(ns)::DOUBLE AS ns FROM all_parts GROUP BY ALL")
    return dict(zip(frame["certainty"], frame["ns"], strict=True))


def _chosen(trace: Trace, slowest: int, step: tuple[int, int] | None) -> list[dict[Any, Any]]:
    columns = 'epoch, pass, step, pid, tid, start, "end", total_ns'
    # The batch of a step may be fetched before its epoch begins.
    steps = with_passes("explained_steps", 'p."end" - 1')
    if step is None:
        query = f'ORDER BY total_ns DESC, start, tid, "end" LIMIT {slowest}'
    else:
        named = f"coalesce(epoch, 0) = {step[0]} AND step = {step[1]}"
        query = f'WHERE {named} ORDER BY start, tid, "end"'
    frame = trace.sql(f"SELECT {columns} FROM ({steps}) {query}")
    if step is not None and not len(frame):
        raise UsageError(
            f"no training step {step[0]}:{step[1]} began in the recording and ended in it",
            _steps_of_epoch(trace, step[0]),
        )
    return frame.to_dict("records")


def _steps_of_epoch(trace: Trace, epoch: int) -> str:
    steps = f"FROM explained_steps WHERE coalesce(epoch, 0) = {epoch}"
    ((first, last),) = trace.rows(f"SELECT min(step), max(step) {steps}")
    if first is not None:
        return f"epoch {epoch} has steps {first} to {last}"
    return f'see: tracer query {shell_word(trace.folder)} "SELECT epoch, step FROM steps"'


def _parts(
    trace: Trace,
    columns: tuple[str, ...],
    total: float,
    means: dict[tuple[Any, ...], float],
    main: str,
    step: dict[Any, Any] | None = None,
) -> list[Part]:
    """Returns the parts of all steps, or of one, the longest first.

    A step also has the parts that only typical steps have, with a time of 0.
    """
    of_step = "true" if step is None else _of_step(step)
    table = "all_parts" if of_step == "true" else f"(FROM explained_parts WHERE {of_step})"
    where = " AND ".join(one for one in (main, of_step) if one != "true")
    names, sources = ", ".join(columns), {**_SOURCES, "by_comm": holder_or_waker(trace)}
    frame = trace.sql(
        f"SELECT {names}, sum(ns)::BIGINT AS ns FROM {table} GROUP BY ALL ORDER BY ns DESC, {names}"
    )
    times = {_key(row, columns): int(row["ns"]) for row in frame.to_dict("records")}
    if step is not None:
        pid = _optional(step["pid"])
        of_process = (
            key for key in means if dict(zip(columns, key, strict=True)).get("step_pid", pid) == pid
        )
        times |= {key: 0 for key in of_process if key not in times}
    return [
        Part(
            dict(zip(columns, key, strict=True)),
            ns,
            ns / total,
            means.get(key, 0.0),
            _query(dict(zip(columns, key, strict=True)), where, sources),
        )
        for key, ns in times.items()
    ]


def _of_step(step: dict[Any, Any]) -> str:
    """Returns the SQL condition of a step's rows."""
    tid, start, end = (int(step[name]) for name in ("tid", "start", "end"))
    return f"step_tid = {tid} AND step_start = {start} AND step_end = {end}"


def _query(group: dict[str, Any], where: str, sources: dict[str, str]) -> str:
    """Returns the query of a part's time, for `tracer query` on the same trace."""
    conditions = [where] if where else []
    for name, value in group.items():
        column = sources.get(name, name)
        if value is None:
            conditions.append(f"{column} IS NULL")
        elif isinstance(value, str):
            quoted = value.replace("'", "''")
            conditions.append(f"{column} = '{quoted}'")
        else:
            conditions.append(f"{column} = {int(value)}")
    wanted = " AND ".join(conditions)
    return f"SELECT coalesce(sum(dur_ns), 0)::BIGINT AS ns FROM critical_path WHERE {wanted}"
