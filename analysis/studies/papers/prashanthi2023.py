"""Prashanthi et al. 2023: the cost of a container for training and inference.

Each table has the host (bare_metal) and one container side by side, by mode (train or infer), model
and settings (factors that differ from the usual ones: workers 0, cpus 0.5, seccomp off). The paper
has numbers for the usual settings only. increase_percent is over pairs of otherwise equal runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tracer.analysis.studies.intervals import ANY, PERCENT, POSITIVE
from tracer.analysis.studies.papers.numbers import numbers
from tracer.analysis.studies.runs import WORK, by_time
from tracer.analysis.studies.spread import Possible, increase, over_runs, place, settings
from tracer.analysis.views.energy import all_of, is_part

_KEYS = ["mode", "model", "settings"]
_STAGES = {"train": "train", "infer": "inference"}
_MINIBATCH = ("fetch stall", "compute", "overhead", "end to end")
_COMPUTE = ("forward", "backward", "optimizer")
_GB = 1e9


def minibatch_times(step_times: pd.DataFrame) -> pd.DataFrame:
    """Returns Figures 1a and 3a: the mean time of a minibatch, by part.

    `step_times`: one row per run, stage and part with mean_ms.

    Columns: mode, model, settings, part (fetch stall, compute, overhead, end to end), bare_metal_ms
    and container_ms (means of runs, each with _low, _high), increase_percent (_low, _high), pairs,
    paper_bare_metal_ms, paper_container_ms, paper_increase_percent.
    """
    paper = _paper({"compute_time": "compute", "compute_time_increase": "compute"}, "ms")
    return _times(step_times, _MINIBATCH, paper)


def compute_parts(step_times: pd.DataFrame) -> pd.DataFrame:
    """Returns Figure 7: the parts of a minibatch's compute time.

    Columns: those of `minibatch_times`; part is forward, backward or optimizer (parameter update).
    """
    parts = {
        "parameter_update_time": "optimizer",
        "forward_increase": "forward",
        "backward_increase": "backward",
    }
    return _times(step_times, _COMPUTE, _paper(parts, "ms"))


def _times(step_times: pd.DataFrame, parts: Sequence[str], paper: pd.DataFrame) -> pd.DataFrame:
    own = step_times[step_times["stage"] == step_times["mode"].map(_STAGES)]
    own = own[own["part"].isin(parts)].rename(columns={"mean_ms": "ms"})
    found = _beside(own, "part", "ms", paper)
    order = {part: number for number, part in enumerate(parts)}
    found["order"] = found["part"].map(order)
    found = found.sort_values(
        ["mode", "model", "settings", "order"], ascending=[False] + [True] * 3
    )
    return found.drop(columns="order").reset_index(drop=True)


def _beside(
    own: pd.DataFrame, what: str, unit: str, paper: pd.DataFrame, possible: Possible = POSITIVE
) -> pd.DataFrame:
    """Returns host and container beside each other and the paper; `unit`: the column of values."""
    own = own.assign(settings=settings(own))
    keys = [*_KEYS, what]
    found = None
    for where, name in (("host", "bare_metal"), ("1", "container")):
        here = own[own["where"] == where]
        one = over_runs(here, keys, [unit], {unit: possible}).drop(columns="runs")
        one.columns = [f"{name}_{c}" if c.startswith(unit) else c for c in one.columns]
        found = one if found is None else found.merge(one, on=keys, how="outer")
    assert found is not None
    found = found.merge(increase(own, keys, unit), on=keys, how="outer")
    found = found.merge(
        paper.assign(settings=""), on=["mode", "model", "settings", what], how="outer"
    )
    return found.sort_values(keys, ascending=[False, True, True, True], ignore_index=True)


def _paper(metrics: dict[str, str], unit: str, what: str = "part") -> pd.DataFrame:
    """Returns the paper's values of these metrics, and the increase in the container.

    The increase is computed if the paper gives both values; otherwise it is the paper's own.
    """
    own = numbers("prashanthi2023_container_overhead")
    own = own[own["metric"].isin(metrics)].copy()
    own[what] = own["metric"].map(metrics)
    given = own["metric"].str.endswith("_increase")
    of = own["bare_metal"].astype(float)
    own["paper_increase_percent"] = np.where(
        given, own["container"], 100 * (own["container"] / of - 1)
    )
    own[f"paper_bare_metal_{unit}"] = of
    own[f"paper_container_{unit}"] = own["container"].where(~given)
    names = [f"paper_bare_metal_{unit}", f"paper_container_{unit}", "paper_increase_percent"]
    return own.rename(columns={"stage": "mode"})[["mode", "model", what, *names]]


_SERIES = {
    "cpu_use": ("CPU utilisation", "%", 1.0),
    "gpu_use": ("GPU utilisation", "%", 1.0),
    "jetson_gpu_use": ("GPU utilisation", "%", 1.0),
    "gpu_power": ("power", "W", 1.0),
    "rail_power": ("power", "W", 1.0),
    "memory_used": ("memory used", "GB", _GB),
}
_PAPER_SERIES = {
    "cpu_utilization_median": "CPU utilisation",
    "gpu_utilization_median": "GPU utilisation",
    "power_median": "power",
    "memory_median": "memory used",
}


def usage_spread(usage: pd.DataFrame) -> pd.DataFrame:
    """Returns Figures 2, 4 and 5: quantiles of the use of CPU, GPU, power and memory, for violins.

    `usage`: one row per run, name, instance and share (0 to 1) with its value.

    Columns: mode, model, settings, where, series, unit (%: of all CPUs), instance,
    share, value (the mean of that quantile over the runs, _low, _high), runs.
    """
    own = _named(usage)
    own = own.sort_values("where", key=lambda names: names != "host", kind="stable")
    keys = [*_KEYS, "where", "series", "unit", "instance", "share"]
    found = over_runs(own, keys, ["value"], {"value": _possible})
    return found.assign(where=found["where"].map(place))


def usage_medians(usage: pd.DataFrame) -> pd.DataFrame:
    """Returns Figures 2, 4 and 5: medians of the use of CPU, GPU, power and memory.

    Of several GPUs, the use is the mean of their medians, and the power is the sum of theirs. Of a
    Jetson's rails, the power is that of the module, or else the sum.

    Columns: mode, model, settings, series (with its unit), bare_metal_median and container_median
    (_low, _high), increase_percent (_low, _high), pairs, and the paper's three.
    """
    own = _named(usage)
    own = _of_machine(own[own["share"] == 0.5]).rename(columns={"value": "median"})
    paper = _paper(_PAPER_SERIES, "median", "series")
    units = {series: unit for series, unit, _ in _SERIES.values()}
    own["series"], paper["series"] = (
        frame["series"].map(lambda name: f"{name}, {units[name]}") for frame in (own, paper)
    )
    return _beside(own, "series", "median", paper, _possible)


def _possible(of_series: pd.DataFrame) -> tuple[float, float]:
    """Returns the possible values of a series in its unit."""
    return PERCENT if (of_series["unit"] == "%").all() else POSITIVE


def _named(usage: pd.DataFrame) -> pd.DataFrame:
    own = usage[usage["where"].isin(["host", "1"]) & usage["name"].isin(_SERIES)]
    told = pd.DataFrame(list(_SERIES.values()), list(_SERIES), ["series", "unit", "scale"])
    own = own.assign(settings=settings(own)).drop(columns="unit", errors="ignore")
    own = own.join(told, on="name")
    own["value"] = pd.to_numeric(own["value"]) / own["scale"]
    return own


_POWER = {"gpu_power": "gpu", "rail_power": "jetson"}
"""The series of power, with their sources as `views.energy` names them."""


def _of_machine(own: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per run and series: the sum of its sources of power, the mean of other ones.

    A rail that another one feeds is no source of its own.
    """
    rows = []
    for _, one in own.groupby(["id", "series"], sort=False):
        instances = [name if isinstance(name, str) else None for name in one["instance"]]
        sources = list(zip(one["name"].map(_POWER).fillna(""), instances, strict=True))
        values = one.loc[[not is_part(*source, sources) for source in sources], "value"]
        is_power = bool(one["name"].isin(_POWER).all())
        value = values.sum(min_count=len(values)) if is_power else values.mean()
        rows.append(one.iloc[[0]].assign(value=value))
    return pd.concat(rows) if rows else own


def memory_overhead(usage: pd.DataFrame) -> pd.DataFrame:
    """Returns Figure 5: the memory that a container adds, between the medians, in GB.

    Columns: mode, model, settings, overhead_gb (over pairs of runs, _low, _high), runs,
    paper_overhead_gb.
    """
    own = _named(usage)
    own = own[(own["share"] == 0.5) & (own["series"] == "memory used")]
    same = [*_KEYS, "repeat"]
    pairs = own[own["where"] == "1"].merge(
        own[own["where"] == "host"], on=same, suffixes=("", "_host")
    )
    pairs["overhead_gb"] = pairs["value"] - pairs["value_host"]
    paper = numbers("prashanthi2023_container_overhead")
    paper = paper[paper["metric"] == "memory_median"].rename(columns={"stage": "mode"})
    paper = paper.assign(settings="", paper_overhead_gb=paper["container"] - paper["bare_metal"])
    found = over_runs(pairs, _KEYS, ["overhead_gb"], {"overhead_gb": ANY})
    return found.merge(paper[[*_KEYS, "paper_overhead_gb"]], on=_KEYS, how="outer")


def energy_split(energy: pd.DataFrame) -> pd.DataFrame:
    """Returns Figures 1b and 3b: the energy per minibatch, and the idle machine's share of it.

    The paper compares the energy of the same work. Trainings of a given time do unequal work, so
    the energy of a run is divided by its minibatches.

    `energy`: one row per run and source; the total counts, or else the only source. work is the
    number of the run's minibatches, or of answered requests. baseload_w is the power of the idle
    machine (null: not recorded), multiplied by each run's time as in section 5.1.5 of the paper.

    Columns: mode, model, settings, where, per (minibatch; run: the work of some run is not known),
    energy_j, baseload_j, increment_j (each with _low, _high), runs, increase_percent (of energy_j
    in a container, _low, _high), pairs, paper_increase_percent.
    """
    own = energy[energy["where"].isin(["host", "1"])]
    rows = [row for _, one in own.groupby("id", sort=False) if (row := all_of(one)) is not None]
    own = pd.DataFrame(rows) if rows else own.iloc[:0]
    known = WORK in own and bool(own[WORK].notna().all())
    work = pd.to_numeric(own[WORK]) if known else 1
    energy_j = own["energy_j"] / work
    baseload = own["duration_s"] * pd.to_numeric(own["baseload_w"]) / work
    own = own.assign(
        settings=settings(own),
        per="minibatch" if known else "run",
        energy_j=energy_j,
        baseload_j=baseload,
        increment_j=energy_j - baseload,
    )
    found = over_runs(
        own,
        [*_KEYS, "where", "per"],
        ["energy_j", "baseload_j", "increment_j"],
        {"increment_j": ANY},
    )
    more = increase(own if known else own[~by_time(own)], _KEYS, "energy_j").assign(where="1")
    paper = _paper({"energy_increase": "energy"}, "j")
    paper = paper.assign(where="1", settings="")[[*_KEYS, "where", "paper_increase_percent"]]
    found = found.merge(more, on=[*_KEYS, "where"], how="left")
    found = found.merge(paper, on=[*_KEYS, "where"], how="left")
    return found.assign(where=found["where"].map(place))
