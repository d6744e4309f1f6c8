"""Measures of a run's epochs: their time, the fetch stall of their steps, their energy."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracer.analysis.views.energy import all_of, energy, why_none
from tracer.analysis.views.waiting.steps import in_recording, steps
from tracer.probes.errors import BadTrace
from tracer.store.manifest import with_all_events
from tracer.store.trace import Trace


def epoch_measures(trace: Trace, dev: str | None) -> dict[str, Any]:
    """Returns the measures of the epochs; several jobs do the same work.

    Epochs, and steps, count if they began and ended in the recording. The first epoch has a stall
    only if the recording has its begin. Later epochs are those with a number above the least one.
    """
    view, first = steps(trace), _first_epoch(trace)
    from_start = f"epoch = {first} AND NOT EXISTS (SELECT 1 FROM ({_MARKS}) WHERE epoch = {first}"
    from_start += f" AND start < {with_all_events(trace.manifest)[0]})"
    stalls = trace.sql(
        f"""
        SELECT avg(fetch_stall_ns) FILTER ({from_start}) / 1e6 AS first,
            avg(fetch_stall_ns) FILTER (epoch > {first}) / 1e6 AS later
        FROM {view} WHERE stage = 'train' AND {in_recording(trace)}
        """
    ).iloc[0]
    epochs = trace.sql(
        f"""
        SELECT avg(s) AS mean, avg(s) FILTER (epoch > {first}) AS later,
            stddev_samp(s) FILTER (epoch > {first}) AS spread
        FROM (SELECT epoch, avg("end" - start) / 1e9 AS s FROM ({_MARKS})
              WHERE {in_recording(trace)} GROUP BY epoch)
        """
    ).iloc[0]
    return {
        "stall_first_epoch_ms": stalls["first"],
        "stall_later_epochs_ms": stalls["later"],
        "epoch_s": epochs["mean"],
        "later_epoch_s": epochs["later"],
        "epoch_spread": epochs["spread"] / epochs["later"] if epochs["later"] else None,
    }


_MARKS = "SELECT epoch, start, \"end\" FROM phases WHERE name = 'epoch'"


def _first_epoch(trace: Trace) -> int:
    """Returns the least number of an epoch: that of a resumed training is not 0."""
    found = trace.rows(f"SELECT min(epoch) FROM ({_MARKS})")
    return int(found[0][0] or 0)


def epoch_energy(trace: Trace, dev: str | None) -> dict[str, Any]:
    """Returns the energy of an epoch after the first: their mean power times their mean time."""
    epochs = trace.sql(
        f"""
        SELECT min(start) AS since, max("end") AS until, avg("end" - start) / 1e9 AS s
        FROM ({_MARKS}) WHERE epoch > {_first_epoch(trace)} AND {in_recording(trace)}
        """
    ).iloc[0]
    if pd.isna(epochs["s"]):
        return {"epoch_energy_j_why": "no epoch after the first began and ended in the recording"}
    try:
        frame = energy(trace, between=(int(epochs["since"]), int(epochs["until"])))
    except BadTrace as error:
        return {"epoch_energy_j_why": str(error)}
    if frame.empty:
        short = "the epochs ended before there were two samples (--sample-hz)"
        return {"epoch_energy_j_why": short if len(energy(trace)) else why_none(trace)}
    whole = all_of(frame)
    return {} if whole is None else {"epoch_energy_j": whole["mean_w"] * epochs["s"]}
