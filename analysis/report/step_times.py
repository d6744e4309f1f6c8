"""The table of the parts of minibatches, over all minibatches."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tracer.analysis.report.histogram import buckets, spread
from tracer.analysis.report.table import Column, MergedTable
from tracer.analysis.views.waiting.steps import in_recording, steps
from tracer.store.trace import Trace

WHOLE = "end to end"
_PARTS = {
    WHOLE: "total_ns",
    "fetch stall": "fetch_stall_ns",
    "compute": "compute_ns",
    "forward": "forward_ns",
    "backward": "backward_ns",
    "optimizer": "optimizer_ns",
    "checkpoint": "checkpoint_ns",
    "overhead": "overhead_ns",
    "wait for GPU": "gpu_wait_ns",
    "gpu forward": "gpu_forward_ns",
    "gpu backward": "gpu_backward_ns",
    "gpu optimizer": "gpu_optimizer_ns",
}


_KNOWN = "end to end, wait known"
"""The length of the steps whose wait for the GPU is known: of these, the wait is a share."""
_KEYS = ["stage", "part"]


def _parts(trace: Trace) -> pd.DataFrame:
    view = steps(trace)
    # The job may have been stopped, or at anything else, before it was attached to.
    whole = in_recording(trace)
    known = "if(gpu_wait_ns IS NULL, NULL, total_ns)"
    return trace.sql(
        f"""
        SELECT stage, part, {buckets("ns")} FROM (
            SELECT stage, unnest({[*_PARTS, _KNOWN]}) AS part,
                unnest([{", ".join(_PARTS.values())}, {known}]) AS ns
            FROM {view} WHERE {whole}
        ) WHERE ns IS NOT NULL GROUP BY ALL
        """
    )


def _finish(parts: pd.DataFrame) -> pd.DataFrame:
    times = spread(parts, _KEYS).reset_index()
    of_cpu = ~times["part"].str.startswith("gpu ")
    of = times["part"].where(times["part"] == "wait for GPU", WHOLE).replace("wait for GPU", _KNOWN)
    whole = times[["stage", "part", "total"]].set_axis(["stage", "of", "end_to_end"], axis=1)
    times = times.assign(of=of).merge(whole, on=["stage", "of"], how="left")
    found = pd.DataFrame(
        {
            "stage": times["stage"],
            "part": times["part"],
            "steps": times["values"].astype("int64"),
            "mean_ms": times["mean"] / 1e6,
            "p50_ms": times["p50"] / 1e6,
            "p99_ms": times["p99"] / 1e6,
            "share": (times["total"] / times["end_to_end"]).where(of_cpu),
        }
    )
    found = found[found["part"] != _KNOWN]
    place = {part: number for number, part in enumerate(_PARTS)}
    found = found.assign(last=found["stage"] != "train", place=found["part"].map(place))
    found = found.sort_values(["last", "stage", "place"], ignore_index=True)
    return found.drop(columns=["last", "place"])


STEP_TIMES = MergedTable(
    "step_times",
    "Time of steps, by part",
    (
        Column("stage", "train, eval or inference; null: not marked", "stage", text=True),
        Column("part", "part of the step, as in the view steps", "part", text=True),
        Column("steps", "steps that began and ended in the recording", "steps"),
        Column("mean_ms", "mean time", "mean ms"),
        Column("p50_ms", "median", "p50 ms"),
        Column("p99_ms", "99th percentile", "p99 ms"),
        Column(
            "share",
            "of the end-to-end time, of those steps whose part is known; null: in parallel to the"
            " CPU's",
            "share",
        ),
    ),
    needs=("phases",),
    keys=(*_KEYS, "bucket"),
    parts=_parts,
    finish=_finish,
    note="Steps that began before the recording, or ended after it, do not count. Compute: forward,"
    " backward and optimizer. GPU: measured with CUDA events, in parallel to the CPU. Shares of"
    " fetch stall, compute, checkpoint and overhead sum to 1. Wait for GPU: in any of these parts,"
    " spinning or asleep.",
)


def step_quantiles(parts: pd.DataFrame, shares: Sequence[float]) -> pd.DataFrame:
    """Returns quantiles of the length of whole minibatches, by stage.

    `parts`: the parts of `STEP_TIMES`. Columns: stage (null: not marked), one pQ_ms per share.
    Quantiles are those of `histogram.spread`.
    """
    times = spread(parts[parts["part"] == WHOLE], ["stage"], shares)
    columns = [f"p{100 * share:g}" for share in shares]
    return (times[columns] / 1e6).add_suffix("_ms").reset_index()


def step_processes(trace: Trace) -> int:
    """Returns the number of processes whose steps are added up: the most of any stage."""
    found = trace.rows(
        "SELECT coalesce(max(n), 0) FROM (SELECT count(DISTINCT pid) AS n"
        f" FROM {steps(trace)} WHERE {in_recording(trace)} GROUP BY stage)"
    )
    return int(found[0][0])


def about_processes(trace: Trace) -> list[str]:
    """Returns a sentence if the steps are those of several processes."""
    count = step_processes(trace)
    if count < 2:
        return []
    return [
        f"the steps of {count} processes are counted together: their times are means and quantiles"
        " over the steps of all of them"
    ]


def step_times(trace: Trace) -> pd.DataFrame:
    """Returns the times of each part of a minibatch, over the steps that the recording has whole.

    `STEP_TIMES` has the columns, and the view `steps` documents the parts. There are GPU rows if
    any step has GPU times.
    """
    return STEP_TIMES.of(trace)
