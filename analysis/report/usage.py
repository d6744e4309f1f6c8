"""Use of the machine during training or inference (Prashanthi et al. 2023, Figures 2, 4, 5)."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.views.phases.phase_times import make_phase_times
from tracer.store.trace import Trace

SERIES = (
    *("cpu_use", "memory_used", "gpu_use", "jetson_gpu_use"),
    *("gpu_power", "rail_power"),
)
_STEPS = 50
_STAGES = ("train", "inference")


def usage(trace: Trace) -> pd.DataFrame:
    """Returns quantiles of the machine's samples from the start to the end of training.

    Without training phases the inference phases count; without those, the whole recording.

    Columns: name (of `SERIES`), instance (GPU or rail; null if there is only one), unit,
    samples, share (0 to 1 in steps of 1/50), value (the quantile at that share; of cpu_use
    as a percentage of all CPUs). Needs table samples.
    """
    trace.require("samples")
    make_phase_times(trace)
    cpus = trace.manifest["host"].get("cpus") or None
    shares = [step / _STEPS for step in range(_STEPS + 1)]
    return trace.sql(
        f"""
        WITH stage AS (
            SELECT name, min(start) AS start, max(coalesce(until, 9223372036854775807)) AS ended
            FROM phase_times WHERE name IN {_STAGES} GROUP BY name
            ORDER BY name != '{_STAGES[0]}' LIMIT 1
        ), chosen AS (
            SELECT name, instance, unit, if(name = 'cpu_use', value / ?, value) AS value
            FROM samples
            WHERE target IS NULL AND name IN {SERIES} AND (
                (SELECT count(*) FROM stage) = 0
                OR ts BETWEEN (SELECT start FROM stage) AND (SELECT ended FROM stage)
            )
        ), spread AS (
            SELECT name, instance, any_value(unit) AS unit, count(*) AS samples,
                quantile_cont(value, {shares}) AS spread
            FROM chosen WHERE value IS NOT NULL GROUP BY name, instance
        )
        SELECT name, instance, unit, samples, unnest({shares}) AS share, unnest(spread) AS value
        FROM spread ORDER BY name, instance, share
        """,
        cpus,
    )
