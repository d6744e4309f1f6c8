"""Values of claims that no ratio, difference or level of single runs gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from tracer.analysis.studies.claim_values import (
    CONTAINER,
    HOST,
    WITH_WORKERS,
    Compared,
    Where,
    divided,
    level,
    numeric,
    pairs,
    quotients,
    ratios,
    select,
)
from tracer.analysis.studies.fault_functions import CAUSES
from tracer.analysis.studies.intervals import ANY, PERCENT, POSITIVE, SHARE
from tracer.analysis.studies.power_modes import mode_table, on_front, power_modes, why_no_energy
from tracer.analysis.studies.runs import DEFAULT_MODE, FACTORS, SETTINGS

SMALL_ERROR_PERCENT = 10


class UnmeasuredError(Exception):
    """Raised if a measure that the test needs was not measured; the text says why."""


def faults_by_causes(runs: pd.DataFrame) -> Compared:
    """Returns the % of faults by the paper's causes in one container; the text has each cause."""
    found = level("faults_by_causes_percent", "1", PERCENT)(runs)
    own = pd.DataFrame() if found.runs is None else found.runs
    told = [
        f"{cause.replace('_', ' ')} {_mean(own, f'faults_by_{cause}_percent'):.3g} %"
        for cause in CAUSES
    ]
    unnamed = f"functions without a name {_mean(own, 'faults_unnamed_percent'):.3g} %"
    return replace(found, more=f"means: {', '.join([*told, unnamed])}")


def _mean(runs: pd.DataFrame, measure: str) -> float:
    return float(pd.to_numeric(runs[measure]).mean()) if measure in runs else np.nan


def later_stall_by_the_cache(runs: pd.DataFrame) -> Compared:
    """Returns the ratio of later epochs' stall to the first's, cache dropped over kept.

    The first epoch is slower for other reasons, too, such as the start of the workers. Those are
    alike in runs whose data is in the cache from the start. Without a disk, the cache has no part.
    """
    train = runs[runs["mode"] == "train"]
    if "medium" in train:
        train = train[train["medium"] != "ram"]
    frame = pairs(train, {"cache": "dropped"}, {"cache": "kept"})
    dropped, kept = (
        divided(
            numeric(frame, f"stall_later_epochs_ms{of}"),
            numeric(frame, f"stall_first_epoch_ms{of}"),
        )
        for of in ("", " to")
    )
    kind = "pairs of runs on disks that differ only in cache dropped against kept"
    return quotients(dropped, kept, kind, POSITIVE, frame)


def saved_beyond_the_stall(runs: pd.DataFrame) -> Compared:
    """Returns the share of a step's time that four workers save over one, minus that of stall."""
    frame = pairs(runs[runs["mode"] == "train"], {"workers": 4}, {"workers": 1})
    found = 1 - ratios(frame, "train_step_mean_ms") - numeric(frame, "train_stall_share to")
    return Compared(found, "pairs of runs that differ only in workers 4 against 1", ANY, frame)


def saving_left(runs: pd.DataFrame) -> Compared:
    """Returns, by repeat, the share of the stall saved by a faster disk that remains with caching.

    The whole saving (hard disk minus the machine's disk) is that of the first epoch, from the
    dropped cache, without workers. The remaining saving is that of the later epochs with four
    workers. Both are summed over the models, because some models have no stall to save. A model of
    which one of the two is not known counts in neither sum. Raises UnmeasuredError if a repeat has
    no saving.
    """
    measures = {"whole": ("stall_first_epoch_ms", 0), "kept": ("stall_later_epochs_ms", 4)}
    train = runs[runs["mode"] == "train"]
    same = [name for name in FACTORS if name in train and name not in ("medium", "workers")]

    def saved(measure: str, workers: int) -> pd.DataFrame:
        own = select(train, {"workers": workers, "cache": "dropped"})
        both = select(own, {"medium": "hdd"}).merge(
            select(own, {"medium": "disk"}), on=same, suffixes=("", " to")
        )
        return both[same].assign(saved=both[measure] - both[f"{measure} to"])

    whole, kept = (saved(*one) for one in measures.values())
    both = whole.merge(kept, on=same, suffixes=("_whole", "_kept"))
    known = both.dropna(subset=["saved_whole", "saved_kept"])
    sums = known.groupby("repeat")[["saved_whole", "saved_kept"]].sum()
    if nothing := int((sums["saved_whole"] <= 0).sum()):
        # Without them, noise would choose the repeats that count.
        raise UnmeasuredError(
            f"a faster disk saved no stall in {nothing} of {len(sums)} repeats, so none can be left"
        )
    left = sums["saved_kept"] / sums["saved_whole"]
    return Compared(np.asarray(left, np.float64), "repeats")


def slowdown_of_containers(runs: pd.DataFrame) -> Compared:
    """Returns a container's slowdown minus the host's, by mode of less CPU speed, model and repeat.

    The slowdown is the mean compute time of a step over that in the default mode. It uses the
    mean, because a quota delays few steps, but delays them for long.
    """
    train = runs[runs["mode"] == "train"]
    found = []
    for mode in _of_less_cpu_speed(train):
        for _, group in train.groupby(["model", "repeat"]):
            container, host = (_slowdown(group, mode, where) for where in (CONTAINER, HOST))
            found.append(container - host)
    kind = "modes of less CPU speed, models and repeats"
    return Compared(np.asarray(found, np.float64), kind)


def _slowdown(runs: pd.DataFrame, mode: str, where: Where) -> float:
    same = {**where, **WITH_WORKERS}
    slow, usual = {"power_mode": mode, **same}, {"power_mode": DEFAULT_MODE, **same}
    found = ratios(pairs(runs, slow, usual), "train_compute_mean_ms")
    return float(found.mean()) if len(found) else np.nan


def _of_less_cpu_speed(runs: pd.DataFrame) -> list[str]:
    """Returns the power modes that differ from the default in CPU frequency or quota only."""
    known = [name for name in SETTINGS if name in runs]
    modes = runs.groupby("power_mode")[known].first()
    if DEFAULT_MODE not in modes.index:
        return []
    lower = (modes < modes.loc[DEFAULT_MODE]).any(axis=1)
    others = modes[[name for name in known if name not in ("cpu_mhz", "cpu_quota")]]
    same = (others.isna() | (others == others.loc[DEFAULT_MODE])).all(axis=1)
    return [str(name) for name in modes.index[lower & same]]


def default_beaten(runs: pd.DataFrame) -> Compared:
    """Returns, by repeat, 1 if some job's default power mode is off its Pareto front, else 0."""
    found = []
    without = False
    for _, repeat in runs.groupby("repeat"):
        modes = mode_table(repeat)
        without |= bool(len(modes) and modes["energy_j"].isna().all())
        default = modes[(modes["power_mode"] == DEFAULT_MODE) & modes["energy_j"].notna()]
        if len(default):
            found.append(float((~on_front(modes)[default.index]).any()))
    if without and not found:
        raise UnmeasuredError(why_no_energy(runs))
    return Compared(np.asarray(found, np.float64), "repeats", SHARE)


def well_predicted(runs: pd.DataFrame) -> Compared:
    """Returns, by job and unprofiled power mode, 1 if its epoch time was predicted well, else 0."""
    found = power_modes(runs)
    if found is None:
        return Compared(np.empty(0), "predictions", SHARE)
    if "predicted_s" in found.missing:
        raise UnmeasuredError(found.missing["predicted_s"])
    held_out = found.modes[~found.modes["profiled"]]
    well = np.asarray(held_out["error_percent"].abs() <= SMALL_ERROR_PERCENT, np.float64)
    return Compared(well, "predictions", SHARE)
