"""Phases as nested spans, thread by thread."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.figures.timeline import names_apart
from tracer.analysis.timeline.axis import Axis
from tracer.analysis.timeline.lane import Kind, Lane
from tracer.analysis.views.phases.phase_times import make_phase_times
from tracer.store.trace import Trace

MOST_SPANS = 6000
MOST_THREADS = 10

_SPANS = """
CREATE OR REPLACE TEMP TABLE timeline_spans AS
WITH marked AS (
    SELECT row AS id, coalesce(pid, -1) AS pid, coalesce(tid, -1) AS tid, name,
        epoch, step, greatest(start, {start}) AS start, "end" IS NOT NULL AS ended,
        least(coalesce(p.until, {end}), {end}) AS until
    FROM phase_times p
    WHERE start <= {end} AND coalesce(p.until, {end}) >= greatest(start, {start})
), edges AS (
    -- At the same moment, ends come before starts, except for spans without length. Of several
    -- starts, that of the longest span comes first.
    SELECT id, pid, tid, start AS moment, 1 AS kind, -until AS then_by, 1 AS change FROM marked
    UNION ALL
    SELECT id, pid, tid, until, CASE WHEN until > start THEN 0 ELSE 2 END, 0, -1 FROM marked
), open AS (
    SELECT id, change, sum(change) OVER (
        PARTITION BY pid, tid ORDER BY moment, kind, then_by, id ROWS UNBOUNDED PRECEDING) AS depth
    FROM edges
)
SELECT m.*, greatest(o.depth - 1, 0)::INTEGER AS depth
FROM marked m JOIN open o ON m.id = o.id AND o.change = 1
"""

_THREADS = """
CREATE OR REPLACE TEMP TABLE timeline_threads AS
WITH busy AS (
    SELECT pid, tid, sum((until - start)::DOUBLE) FILTER (depth = 0) AS length,
        min(start) AS first
    FROM timeline_spans GROUP BY ALL
    ORDER BY length DESC, pid, tid LIMIT {most}
), named AS (
    SELECT pid, tid, arg_max(comm, coalesce(start_ns, 0)) AS comm FROM processes GROUP BY ALL
)
SELECT busy.*, row_number() OVER (ORDER BY first, length DESC, pid, tid) - 1 AS place,
    CASE WHEN pid < 0 THEN 'process not known' WHEN pid = tid
        THEN concat_ws(' ', comm, pid) ELSE concat_ws(' ', comm, concat(pid, '/', tid)) END
        AS thread
FROM busy LEFT JOIN named USING (pid, tid)
"""

_KEPT = """
SELECT thread, place, depth, name, epoch, step, 1 AS spans, ended, {from_s} AS from_s,
    {to_s} AS to_s
FROM timeline_spans JOIN timeline_threads USING (pid, tid) WHERE depth < {levels}
ORDER BY place, depth, start, id
"""

# Joins consecutive spans of the same name with less than {gap} ns between them.
_MERGED = """
WITH outermost AS (
    SELECT *, lag(name) OVER w AS last_name, lag(until) OVER w AS last_until
    FROM timeline_spans JOIN timeline_threads USING (pid, tid) WHERE depth = 0
    WINDOW w AS (PARTITION BY place ORDER BY start, id)
), runs AS (
    SELECT *, sum((name IS DISTINCT FROM last_name OR start - last_until >= {gap})::INTEGER)
        OVER (PARTITION BY place ORDER BY start, id ROWS UNBOUNDED PRECEDING) AS run
    FROM outermost
), merged AS (
    SELECT any_value(thread) AS thread, place, 0 AS depth, any_value(name) AS name,
        CASE WHEN count(DISTINCT epoch) = 1 THEN any_value(epoch) END AS epoch,
        CASE WHEN count(*) = 1 THEN any_value(step) END AS step, count(*) AS spans,
        bool_and(ended) AS ended, min(start) AS start, max(until) AS until
    FROM runs GROUP BY place, run
)
SELECT * EXCLUDE (start, until), {from_s} AS from_s, {to_s} AS to_s
FROM merged ORDER BY place, start
"""


def phases(trace: Trace, axis: Axis, most: int = MOST_SPANS, threads: int = MOST_THREADS) -> Lane:
    """Returns the phases of the `threads` threads with the most time in phases.

    Columns: thread (name and pid, and tid if it differs), place (number of the thread, in the order
    in which threads began), depth (0: in no other phase), name, epoch, step, from_s, to_s, spans
    (number of joined phases), ended (all of them ended).

    The frame has at most `most` spans. If there are more, whole levels are left out, the innermost
    first. If even the outermost level has too many, neighbouring spans of the same name are joined;
    of those, the longest are kept. `note` says so. Needs the table phases.
    """
    trace.require("phases")
    trace.empty_if_missing("processes")
    make_phase_times(trace)
    trace.execute(_SPANS.format(start=axis.start_ns, end=axis.end_ns))
    trace.execute(_THREADS.format(most=threads))
    levels = trace.sql(
        "SELECT depth, count(*) AS spans, sum(count(*)) OVER (ORDER BY depth) AS upto"
        " FROM timeline_spans JOIN timeline_threads USING (pid, tid) GROUP BY depth ORDER BY depth"
    )
    fit = levels[levels["upto"] <= most]
    seconds = {"from_s": axis.second("start"), "to_s": axis.second("until")}
    if len(fit) or not len(levels):
        query = _KEPT.format(levels=len(fit), **seconds)
        frame = trace.sql(query)
    else:
        frame = _merged(trace, axis, most, seconds)
    notes = _notes(trace, levels, len(fit), frame)
    if others := frame["name"].nunique() - len(names_apart(frame)):
        notes = f"{notes} Names of phases with less time that share a colour: {others:,}.".lstrip()
    trace.drop("timeline_spans", "timeline_threads")
    example = 'SELECT pid, tid, name, epoch, step, start, "end" FROM phases ORDER BY start'
    return Lane("Phases", "Phases", "", Kind.SPANS, frame, notes, example)


def _merged(trace: Trace, axis: Axis, most: int, seconds: dict[str, str]) -> pd.DataFrame:
    gap = axis.width_ns
    while True:
        frame = trace.sql(_MERGED.format(gap=gap, **seconds))
        if len(frame) <= most:
            return frame
        if gap > axis.end_ns - axis.start_ns:  # the names alternate, so nothing more can be joined
            return frame.sort_values("to_s", key=lambda to_s: frame["from_s"] - to_s)[:most]
        gap *= 4


def _notes(trace: Trace, levels: pd.DataFrame, kept: int, frame: pd.DataFrame) -> str:
    said = []
    dropped = levels.iloc[kept:] if kept or not len(levels) else levels.iloc[1:]
    if len(dropped):
        spans = int(dropped["spans"].sum())
        which = "level is" if len(dropped) == 1 else f"{len(dropped)} levels are"
        said.append(
            f"There are too many phases to draw. The innermost {which} left out ({spans:,} phases)."
        )
    if not kept and len(levels):
        drawn = int(frame["spans"].sum())
        if drawn > len(frame):
            said.append(
                f"{drawn:,} phases are drawn as {len(frame):,} spans:"
                " neighbours with the same name are joined."
            )
        if left_out := int(levels["spans"].iloc[0]) - drawn:
            said.append(f"{left_out:,} phases are left out: those of the shortest spans.")
    others = trace.sql(
        "SELECT count(DISTINCT (pid, tid)) - (SELECT count(*) FROM timeline_threads) AS n"
        " FROM timeline_spans"
    )
    if n := int(others["n"].iloc[0]):
        said.append(f"{n:,} more threads with less time in phases are left out.")
    return " ".join(said)
