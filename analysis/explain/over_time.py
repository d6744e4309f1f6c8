"""The time of steps by cause, in order of time, for figures."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.explain.words import bar_called
from tracer.analysis.figures.critical_path import CAUSES
from tracer.store.trace import Trace

_MOST_BARS = 600


def over_time(trace: Trace) -> pd.DataFrame:
    """Returns the mean time of steps by cause, for at most 600 groups of neighbouring steps.

    Columns: first (number of the group's first step, from 0), called (the group's name in words),
    and ms of each cause. Needs the tables that `tracer.analysis.explain.explanation.explain` makes.
    """
    steps = trace.rows("SELECT count(*) FROM explained_steps")[0][0]
    each = max(1, -(-int(steps) // _MOST_BARS))
    frame = trace.sql(
        f"""
        WITH numbered AS (
            SELECT tid, start, "end",
                (row_number() OVER (ORDER BY start, tid, "end") - 1) // {each} AS bar
            FROM explained_steps
        ), sizes AS (SELECT bar, count(*) AS steps FROM numbered GROUP BY bar)
        SELECT n.bar * {each} AS first, p.kind, sum(p.ns) / any_value(s.steps) / 1e6 AS ms
        FROM explained_parts p JOIN numbered n
            ON p.step_tid = n.tid AND p.step_start = n.start AND p.step_end = n."end"
        JOIN sizes s USING (bar) GROUP BY ALL
        """
    )
    wide = frame.pivot_table(index="first", columns="kind", values="ms", aggfunc="sum")
    wide = wide.fillna(0.0).sort_index()
    found = pd.DataFrame({"first": wide.index.to_numpy()})
    groups = trace.rows(
        f"""
        WITH numbered AS (
            SELECT *,
                (row_number() OVER (ORDER BY start, tid, "end") - 1) // {each} * {each} AS first
            FROM explained_steps
        )
        SELECT first, count(*), arg_min(struct_pack(epoch, step, pid), (start, tid, "end")),
            (SELECT count(DISTINCT pid) FROM explained_steps)
        FROM numbered GROUP BY ALL
        """
    )
    called = {
        first: bar_called(count, of["epoch"], of["step"], of["pid"] if processes > 1 else None)
        for first, count, of, processes in groups
    }
    found["called"] = [called[first] for first in found["first"]]
    for cause, kinds in CAUSES.items():
        there = [kind for kind in kinds if kind in wide.columns]
        found[cause] = wide[there].sum(axis="columns").to_numpy() if there else 0.0
    return found
