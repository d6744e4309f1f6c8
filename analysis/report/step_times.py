"""What minibatches were spent on, over all of them."""

from __future__ import annotations

import pandas as pd

from analysis.views.steps import steps
from tracer.store.trace import Trace

_PARTS = {
    "end to end": "total_ns",
    "fetch stall": "fetch_stall_ns",
    "compute": "compute_ns",
    "forward": "forward_ns",
    "backward": "backward_ns",
    "optimizer": "optimizer_ns",
    "checkpoint": "checkpoint_ns",
    "overhead": "overhead_ns",
    "gpu forward": "gpu_forward_ns",
    "gpu backward": "gpu_backward_ns",
    "gpu optimizer": "gpu_optimizer_ns",
}


def step_times(trace: Trace) -> pd.DataFrame:
    """Each part of a minibatch, over the steps that ended.

    Columns: stage (train, eval, inference; null: not marked), part, steps, mean_ms, p50_ms,
    p99_ms, share (of the end-to-end time; fetch stall, compute, checkpoint and overhead make 1;
    null of the GPU's times, which lie beside the CPU's). What the parts are, `steps` says. GPU
    rows are there where any step has them.
    """
    view = steps(trace)
    rows = " UNION ALL ".join(
        f"SELECT {number} AS number, '{part}' AS part, stage, {column} AS ns, total_ns FROM {view}"
        for number, (part, column) in enumerate(_PARTS.items())
    )
    return trace.sql(
        f"""
        SELECT stage, part, count(ns) AS steps, avg(ns) / 1e6 AS mean_ms,
            quantile_cont(ns, 0.5) / 1e6 AS p50_ms, quantile_cont(ns, 0.99) / 1e6 AS p99_ms,
            CASE WHEN part NOT LIKE 'gpu %' THEN sum(ns) / sum(total_ns) END AS share
        FROM ({rows}) WHERE ns IS NOT NULL AND total_ns IS NOT NULL
        GROUP BY stage, number, part
        ORDER BY stage != 'train', stage, number
        """
    )
