"""The times in which events were lost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracer.analysis.timeline.axis import Axis
from tracer.probes.loss import OF_EVENTS
from tracer.store.trace import Trace

MOST_SPANS = 200


def losses(trace: Trace, axis: Axis) -> pd.DataFrame:
    """Returns the stretches of time in which any stream lacks events, rounded to whole bins.

    Columns: from_s, to_s, gaps (number of rows of the table loss), events (lost in these gaps;
    null: the kernel did not count some of them), streams (number of streams that lack events).
    There are at most 200 stretches: those with the least time between them are joined. Needs the
    table loss.
    """
    trace.require("loss")
    begin = f'least(greatest(coalesce("from", {axis.start_ns}), {axis.start_ns}), {axis.end_ns})'
    until = f'least(greatest(coalesce("to", {axis.end_ns}), {begin}), {axis.end_ns})'
    found = trace.sql(
        f"""
        SELECT {axis.bin(begin)} AS first, {axis.bin(until)} AS last, count(*) AS gaps,
            sum(greatest(count, 0)::DOUBLE) AS events, count(*) - count(count) AS unknown,
            list(DISTINCT stream)[:64] AS streams
        FROM loss WHERE {OF_EVENTS} GROUP BY ALL ORDER BY first
        """
    )
    columns = ["from_s", "to_s", "gaps", "events", "streams"]
    if not len(found):
        return pd.DataFrame(columns=columns)
    first = found["first"].to_numpy(np.int64)
    last = np.maximum.accumulate(found["last"].to_numpy(np.int64))
    apart = np.concatenate([[0], first[1:] - last[:-1]])
    far = 1
    if (apart > 1).sum() >= MOST_SPANS:
        far = max(1, int(np.sort(apart)[-MOST_SPANS]))
    found["stretch"] = np.cumsum(apart > far)
    made = found.groupby("stretch").agg(
        first=("first", "min"), last=("last", "max"), gaps=("gaps", "sum"),
        events=("events", "sum"), unknown=("unknown", "sum"),
        streams=("streams", lambda names: len({name for some in names for name in some})),
    )  # fmt: skip
    made["events"] = made["events"].where(made["unknown"] == 0)
    made["from_s"] = made["first"] * axis.width_s
    made["to_s"] = np.minimum((made["last"] + 1) * axis.width_s, axis.length_s)
    return made[columns].reset_index(drop=True)
