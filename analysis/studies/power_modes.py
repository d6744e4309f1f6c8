"""The power modes of a study: measured and predicted epoch times, and the Pareto front."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracer.analysis.studies.pareto import pareto_front
from tracer.analysis.studies.predictor import PROFILED, choose, mape, predict, predict_energy
from tracer.analysis.studies.runs import DEFAULT_MODE, FACTORS, SETTINGS
from tracer.probes.errors import UsageError

_JOB = tuple(name for name in FACTORS if name not in ("power_mode", "repeat"))
"""The factors in which one job differs from another."""


@dataclass(frozen=True)
class PowerModes:
    """The results for the power modes of a study.

    `modes` has one row per job and mode. Columns: job, power_mode, the known settings (cores,
    cpu_mhz, cpu_quota, gpu_mhz, memory_mhz), runs, epoch_s (mean of the epochs after the first,
    then of the runs), energy_j (of such an epoch; null: not measured), profiled (true: the mode is
    one of those that the prediction learned from), predicted_s, error_percent (of predicted_s
    against epoch_s), predicted_energy_j, on_front (of time and energy; null without energy).

    `jobs` has one row per job. Columns: job, mape (in per cent, of the modes that are not
    profiled), unseen_mape (the same error with modes chosen by the other jobs; null for a single
    job), energy_mape, default_on_front. `set_by`: the tool that set each setting. `missing`: each
    missing result, and why.
    """

    modes: pd.DataFrame
    jobs: pd.DataFrame
    profiled: list[str]
    set_by: dict[str, str]
    missing: dict[str, str]


def power_modes(runs: pd.DataFrame, count: int = PROFILED) -> PowerModes | None:
    """Returns the results by power mode of a study's runs (`read_runs`); None: no mode varies."""
    modes = mode_table(runs)
    if modes.empty:
        return None
    missing: dict[str, str] = {}
    jobs = pd.DataFrame({"job": modes["job"].unique()})
    profiled: list[str] = []
    try:
        profiled = _predict_times(modes, jobs, count)
    except UsageError as error:
        missing["predicted_s"] = str(error)
    if modes["energy_j"].isna().all():
        missing["energy_j"] = why_no_energy(runs)
    else:
        _add_energy(modes, jobs, profiled)
    return PowerModes(modes, jobs, profiled, _set_by(runs), missing)


def mode_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per job and mode, for jobs trained in several modes: see PowerModes."""
    columns = ["job", "power_mode", "runs", "epoch_s", "energy_j"]
    if "power_mode" not in runs or "later_epoch_s" not in runs:
        return pd.DataFrame(columns=columns)
    own = runs[(runs["mode"] == "train") & runs["later_epoch_s"].notna()]
    factors = [name for name in _JOB if name in own]
    same = own.groupby(factors, dropna=False)
    own = own[same["power_mode"].transform("nunique") > 1]
    own = own.assign(job=_jobs(own, factors))
    known = [name for name in SETTINGS if name in own]
    grouped = own.groupby(["job", "power_mode"], sort=True)
    found = grouped.agg(
        **{name: (name, "first") for name in known},
        runs=("id", "count"),
        epoch_s=("later_epoch_s", "mean"),
        energy_j=("epoch_energy_j", "mean"),
    )
    told = [name for name in known if found[name].notna().any()]
    found = found[[*told, *columns[2:]]].reset_index()
    return found.sort_values(["job", *told], ignore_index=True)


def on_front(modes: pd.DataFrame) -> pd.Series[bool]:
    """Returns whether each row of a mode table is on the Pareto front of its job."""
    found = pd.Series(False, modes.index)
    for _, own in modes.groupby("job"):
        times, energies = (own[name].to_numpy(np.float64) for name in ("epoch_s", "energy_j"))
        found[own.index] = pareto_front(times, energies)
    return found


def why_no_energy(runs: pd.DataFrame) -> str:
    """Returns the traces' reasons for missing energy."""
    known = runs[runs["later_epoch_s"].notna()]
    told = (
        known["epoch_energy_j_why"].dropna()
        if "epoch_energy_j_why" in known
        else pd.Series(dtype=object)
    )
    return str(told.iloc[0]) if len(told) else "the runs do not say why"


def _jobs(runs: pd.DataFrame, factors: list[str]) -> pd.Series[str]:
    """Returns a name for each run's job: its model, and the factors in which the jobs differ."""
    told = [name for name in factors if name != "model" and runs[name].nunique(dropna=False) > 1]
    names = [
        " ".join([str(run["model"]), *(f"{n}={run[n]}" for n in told if pd.notna(run[n]))])
        for run in runs[factors].to_dict("records")
    ]
    return pd.Series(names, runs.index, dtype=str)


def _set_by(runs: pd.DataFrame) -> dict[str, str]:
    found: dict[str, str] = {}
    for told in runs["power_mode_by"].dropna() if "power_mode_by" in runs else []:
        found |= told
    return found


def _predict_times(modes: pd.DataFrame, jobs: pd.DataFrame, count: int) -> list[str]:
    """Adds the predictions to both frames; returns the modes that the prediction learned from."""
    known = [name for name in SETTINGS if name in modes and modes[name].notna().all()]
    settings = modes.groupby("power_mode")[known].first()
    times = modes.pivot(index="power_mode", columns="job", values="epoch_s")
    profiled = choose(times, settings, count)
    modes["profiled"] = modes["power_mode"].isin(profiled)
    for job, own in modes.groupby("job"):
        predicted = predict(times[job].loc[profiled], settings)
        modes.loc[own.index, "predicted_s"] = own["power_mode"].map(predicted)
    modes["error_percent"] = 100 * (modes["predicted_s"] / modes["epoch_s"] - 1)
    held_out = modes[~modes["profiled"]]
    errors = held_out["error_percent"].abs().groupby(held_out["job"]).mean()
    jobs["mape"] = jobs["job"].map(errors)
    jobs["unseen_mape"] = [_unseen(times, settings, str(job), count) for job in jobs["job"]]
    return profiled


def _unseen(times: pd.DataFrame, settings: pd.DataFrame, job: str, count: int) -> float | None:
    """Returns a job's error with modes chosen by the other jobs (section 5.7.2: VGG11)."""
    others = times.drop(columns=job)
    if others.shape[1] == 0:
        return None
    profiled = choose(others.loc[times.dropna().index], settings, count)
    own = times[job].dropna()
    predicted = predict(own[profiled], settings)
    rest = own.drop(profiled)
    return mape(rest, predicted[rest.index])


def _add_energy(modes: pd.DataFrame, jobs: pd.DataFrame, profiled: list[str]) -> None:
    known = modes[modes["energy_j"].notna()]
    modes.loc[known.index, "on_front"] = on_front(known).astype(float)
    default = modes[modes["power_mode"] == DEFAULT_MODE].set_index("job")["on_front"]
    jobs["default_on_front"] = jobs["job"].map(default)
    learned = known[known["power_mode"].isin(profiled)]
    if len(learned) < 2:
        return
    settings = [name for name in SETTINGS if name in modes and modes[name].notna().all()]
    modes["predicted_energy_j"] = predict_energy(learned, modes, settings)
    held_out = modes[~modes["power_mode"].isin(profiled) & modes["energy_j"].notna()]
    errors = (100 * (held_out["predicted_energy_j"] / held_out["energy_j"] - 1)).abs()
    jobs["energy_mape"] = jobs["job"].map(errors.groupby(held_out["job"]).mean())
