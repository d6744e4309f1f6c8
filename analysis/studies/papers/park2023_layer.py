"""Park & Bahn 2023, Figure 6: the share of I/O latency that a non-volatile flush layer saves.

The paper gives no capacity, does not say whether the final drain of the layer counts, what makes a
page the same, and how its jobs write checkpoints. The tables give the number for each of these.
"""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from tracer.analysis.flushlayer.curves.every_capacity import PAGE_BYTES
from tracer.analysis.studies.flush_layer import ALL, possible_savings
from tracer.analysis.studies.intervals import SHARE
from tracer.analysis.studies.papers.numbers import numbers
from tracer.analysis.studies.runs import USUAL_CHECKPOINTS
from tracer.analysis.studies.spread import first_repeat, in_order, over_runs, without_limits

_MIB = 1 << 20
_ENDS = ("_low", "_high")
_TIMES = {"epoch": "each epoch", "end": "at the end"}
_WAYS = {
    "truncate": "truncated and written again",
    "overwrite": "overwritten in place",
    "rename": "renamed over the old one",
    "new": "under a new name",
}


def _trainings(curves: pd.DataFrame, but: Collection[str] = ()) -> pd.DataFrame:
    return without_limits(curves[curves["mode"] == "train"], but)


def _papers() -> pd.DataFrame:
    found = numbers("park2023_fig6_io_latency_improvement")
    return found.rename(columns={"improvement": "paper_improvement"})


def layer_improvement(curves: pd.DataFrame) -> pd.DataFrame:
    """Returns Figure 6 by page identity and by the writes that count, in the usual habit.

    `curves`: rows of `flush_layer.layer_curve` of each run, with checkpoint_bytes if it is known.

    Columns: where, model, identity, writes (all, or files: without journal and metadata),
    improvement (the most that any capacity saves with the final drain), improvement_at_full
    (without the drain, by a layer with room for all pages), bound (1 - distinct / written), written
    and distinct (pages of a run), fell_back (of them identified by another identity), needed_mib
    and needed_of_checkpoint (the capacity that reaches the paper's number without the final drain,
    in MiB and as a share of a checkpoint of all jobs), note, runs, paper_improvement. Each value
    has _low and _high, except the counts of pages. If no page was written twice, needed is null:
    any share of the pages would save that share; `note` says so. It also says if the bound is below
    the paper's number, so that only pages left in the layer reach it.
    """
    own = _trainings(curves).merge(_papers(), on=["where", "model"], how="left")
    each = _each_run(own, ["where", "model", "identity", "writes", "id"])
    values = ["improvement", "improvement_at_full", "bound", "written", "distinct", "fell_back"]
    values += ["needed_mib", "needed_of_checkpoint", "once", "left"]
    group = ["where", "model", "identity", "writes"]
    savings = possible_savings()
    possible = {"improvement": savings, "improvement_at_full": savings, "bound": SHARE}
    found = over_runs(each, group, values, possible)
    found["note"] = [
        _note(once, left, runs)
        for once, left, runs in zip(found["once"], found["left"], found["runs"], strict=True)
    ]
    ends = [f"{name}{end}" for name in ("written", "distinct", "fell_back") for end in _ENDS]
    notes = [f"{name}{end}" for name in ("once", "left") for end in ("", *_ENDS)]
    found = found.drop(columns=[*ends, *notes])
    found.insert(len(found.columns) - 1, "runs", found.pop("runs"))
    found = found.merge(_papers(), on=["where", "model"], how="outer")
    return in_order(found, ["model", "identity", "writes"])


def _each_run(own: pd.DataFrame, run: list[str]) -> pd.DataFrame:
    """Returns one row per run, identity and kind of writes."""
    whole = own.groupby(run, sort=False)
    each = whole[["written", "distinct", "fell_back"]].first().astype(float)
    each["improvement"] = whole["improvement_with_drain"].max()
    largest = own["capacity_pages"] == whole["capacity_pages"].transform("max")
    each["improvement_at_full"] = own[largest].groupby(run, sort=False)["improvement"].first()
    each["bound"] = 1 - each["distinct"] / each["written"]
    each["once"] = (each["distinct"] == each["written"]).astype(float)
    reached = own[own["improvement"] >= own["paper_improvement"]]
    needed = reached.groupby(run, sort=False)["capacity_pages"].min() * PAGE_BYTES
    needed = needed.reindex(each.index).where(each["once"] == 0)
    below = each["bound"] < whole["paper_improvement"].first()
    each["left"] = (below & (each["once"] == 0)).astype(float)
    each["needed_mib"] = needed / _MIB
    checkpoint = pd.Series(float("nan"), index=each.index)
    if "checkpoint_bytes" in own:
        checkpoint = pd.to_numeric(whole["checkpoint_bytes"].first())
    each["needed_of_checkpoint"] = needed / checkpoint.where(checkpoint > 0)
    return each.reset_index()


def _note(once: float, left: float, runs: int) -> str | None:
    said = [
        text if share == 1 else f"{text} in {round(share * runs)} of {runs} runs"
        for share, text in (
            (once, "no page was written twice"),
            (left, "only pages left in the layer reach the paper's number"),
        )
        if share
    ]
    return "; ".join(said) or None


def layer_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Returns Figure 6 by capacity: the saving of a layer of each size, in one run of each model.

    The run is that of `first_repeat`. All writes count, in the usual habit.

    Columns: where, model, identity, capacity_share (of the distinct pages written), improvement
    (without the final drain), improvement_with_drain, paper_improvement.
    """
    own = _trainings(curves)
    own = own[own["writes"] == ALL]
    own = first_repeat(own, ["where", "model"])
    found = own.merge(_papers(), on=["where", "model"], how="left")
    columns = ["where", "model", "identity", "capacity_share", "improvement"]
    columns += ["improvement_with_drain", "paper_improvement"]
    return in_order(found[columns], ["model", "identity", "capacity_share"])


def layer_habits(curves: pd.DataFrame) -> pd.DataFrame:
    """Returns Figure 6 by checkpoint habit, for models and places with runs of several habits.

    `curves`: rows of `flush_layer.layer_curve` of each run, with checkpoints if it is known.

    Columns: where, model, habit (times and way of checkpoints), identity, improvement (_low,
    _high; the most that any capacity saves of all writes, with the final drain), checkpoints (E,
    which each job wrote), bound (1 - 1 / E: what a layer saves of a checkpoint's own pages if all
    its checkpoints are the same pages), runs, paper_improvement.
    """
    own = _trainings(curves, but=USUAL_CHECKPOINTS)
    own = own[own["writes"] == ALL]
    own = own.assign(habit=[_habit(*told) for told in zip(*_told(own), strict=True)])
    several = own.groupby(["where", "model"])["habit"].transform("nunique") > 1
    own = own[several]
    run = ["where", "model", "habit", "identity", "id"]
    whole = own.groupby(run, sort=False)
    each = whole["improvement_with_drain"].max().rename("improvement").to_frame()
    each["checkpoints"] = float("nan")
    if "checkpoints" in own:
        each["checkpoints"] = pd.to_numeric(whole["checkpoints"].first())
    each["bound"] = 1 - 1 / each["checkpoints"].where(each["checkpoints"] > 0)
    possible = {"improvement": possible_savings(), "bound": SHARE}
    found = over_runs(
        each.reset_index(), run[:4], ["improvement", "checkpoints", "bound"], possible
    )
    found = found.drop(columns=[f"{n}{e}" for n in ("checkpoints", "bound") for e in _ENDS])
    found = found.merge(_papers(), on=["where", "model"], how="left")
    return in_order(found, ["model", "habit", "identity"])


def _told(own: pd.DataFrame) -> list[pd.Series[str]]:
    return [
        own[name].where(own[name].notna(), usual)
        if name in own
        else pd.Series(usual, index=own.index)
        for name, usual in USUAL_CHECKPOINTS.items()
    ]


def _habit(every: str, way: str) -> str:
    return f"{_TIMES.get(every, f'every {every} steps')}, {_WAYS.get(way, way)}"
