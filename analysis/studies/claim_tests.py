"""The test of each claim of the papers: the values computed from the runs, and their bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.studies.power_modes import mode_table, on_front, power_modes, why_no_energy
from tracer.analysis.studies.runs import DEFAULT_MODE, FACTORS, SETTINGS, UNLIMITED

Values = NDArray[np.float64]
_Compute = Callable[[pd.DataFrame], Values]


@dataclass(frozen=True)
class Test:
    """The test of a claim: values computed from the runs, and the bounds between which it holds."""

    measured: str
    compute: _Compute
    least: float = -np.inf
    most: float = np.inf
    why: str = ""
    """Name of the column of `runs` with the reason why a measure is missing."""
    beside: Test | None = None
    """A second part of the claim; it counts if it was measured."""


_Where = dict[str, object]
"""Factors and the values that they have."""


class UnmeasuredError(Exception):
    """Raised if a measure that the test needs was not measured; the text says why."""


def _are(runs: pd.DataFrame, factors: _Where) -> pd.DataFrame:
    """Returns the runs with these factors; runs with limits only if the factors ask for them."""
    for name, value in {**UNLIMITED, **factors}.items():
        if name not in runs:
            continue
        runs = runs[runs[name].isna() if value is None else runs[name] == value]
    return runs


def _pairs(runs: pd.DataFrame, measure: str, of: _Where, to: _Where) -> tuple[Values, Values]:
    """Returns a measure in pairs of runs that differ in these factors only."""
    same = [name for name in FACTORS if name in runs and name not in of]
    pairs = _are(runs, of).merge(_are(runs, to), on=same, suffixes=("", " to"))
    return (
        np.asarray(pairs[measure], np.float64),
        np.asarray(pairs[f"{measure} to"], np.float64),
    )


def _ratio(measure: str, of: _Where, to: _Where, mode: str = "train") -> _Compute:
    def compute(runs: pd.DataFrame) -> Values:
        return _divided(*_pairs(runs[runs["mode"] == mode], measure, of, to))

    return compute


def _difference(measure: str, of: _Where, to: _Where) -> _Compute:
    def compute(runs: pd.DataFrame) -> Values:
        above, below = _pairs(runs[runs["mode"] == "train"], measure, of, to)
        return above - below

    return compute


def _level(measure: str, where: str | None) -> _Compute:
    """Makes a test of the plain measure of the trainings in one place (None: in all places)."""

    def compute(runs: pd.DataFrame) -> Values:
        own = _are(runs, {"mode": "train", **({"where": where} if where else {})})
        return np.asarray(own[measure], np.float64)

    return compute


def _quotient(above: str, below: str, **factors: object) -> _Compute:
    """Makes a test of the ratio of two measures of the same training."""

    def compute(runs: pd.DataFrame) -> Values:
        own = _are(runs, {"mode": "train", **factors})
        return _divided(np.asarray(own[above], np.float64), np.asarray(own[below], np.float64))

    return compute


def _saved_beyond_the_stall(runs: pd.DataFrame) -> Values:
    """Returns the share of a step's time that four workers save over one, minus that of stall."""
    own = runs[runs["mode"] == "train"]
    four, one = _pairs(own, "train_step_mean_ms", {"workers": 4}, {"workers": 1})
    _, stall = _pairs(own, "train_stall_share", {"workers": 4}, {"workers": 1})
    return 1 - _divided(four, one) - stall


def _inference_against_training(runs: pd.DataFrame) -> Values:
    """Returns, by model, a container's compute overhead in inference minus that in training."""

    def overheads(mode: str, measure: str) -> pd.Series[float]:
        own = runs[runs["mode"] == mode]
        found = {
            model: pd.Series(_divided(*_pairs(group, measure, _CONTAINER, _HOST))).mean()
            for model, group in own.groupby("model")
        }
        return pd.Series(found, dtype=float)

    both = overheads("infer", "inference_forward_ms") - overheads("train", "train_compute_ms")
    return np.asarray(both.dropna(), np.float64)


def _saving_left(runs: pd.DataFrame) -> Values:
    """Returns, by repeat, the share of the stall saved by a faster disk that remains with caching.

    The whole saving (hard disk minus the machine's disk) is that of the first epoch, from the
    dropped cache, without workers. The remaining saving is that of the later epochs with four
    workers. Both are summed over the models, because some models have no stall to save.
    """

    def saved(measure: str, workers: int) -> pd.Series[float]:
        own = _are(runs[runs["mode"] == "train"], {"workers": workers, "cache": "dropped"})
        same = [name for name in FACTORS if name in own and name != "medium"]
        pairs = _are(own, {"medium": "hdd"}).merge(
            _are(own, {"medium": "disk"}), on=same, suffixes=("", " to")
        )
        found = pairs[measure] - pairs[f"{measure} to"]
        return found.groupby(pairs["repeat"]).sum(min_count=1)

    whole = saved("stall_first_epoch_ms", 0)
    kept = saved("stall_later_epochs_ms", 4)[lambda left: left.index.isin(whole.index)]
    whole = whole.reindex(kept.index)
    return np.asarray((kept / whole)[whole > 0], np.float64)


def _slowdown_of_containers(runs: pd.DataFrame) -> Values:
    """Returns a container's slowdown minus the host's, by mode of less CPU speed, model and repeat.

    The slowdown is the mean compute time of a step over that in the default mode. It uses the
    mean, because a quota delays few steps, but delays them for long.
    """
    train = runs[runs["mode"] == "train"]
    found = []
    for mode in _of_less_cpu_speed(train):
        for _, group in train.groupby(["model", "repeat"]):
            container, host = (_slowdown(group, mode, where) for where in (_CONTAINER, _HOST))
            found.append(container - host)
    return np.asarray(found, np.float64)


def _slowdown(runs: pd.DataFrame, mode: str, where: _Where) -> float:
    slow, usual = {"power_mode": mode, **where}, {"power_mode": DEFAULT_MODE, **where}
    ratios = _divided(*_pairs(runs, "train_compute_mean_ms", slow, usual))
    return float(ratios.mean()) if len(ratios) else np.nan


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


def _default_beaten(runs: pd.DataFrame) -> Values:
    """Returns, by repeat, 1 if some job's default power mode is off its Pareto front, else 0."""
    found = []
    for _, repeat in runs.groupby("repeat"):
        modes = mode_table(repeat)
        if len(modes) and modes["energy_j"].isna().all():
            raise UnmeasuredError(why_no_energy(runs))
        default = modes[(modes["power_mode"] == DEFAULT_MODE) & modes["energy_j"].notna()]
        if len(default):
            found.append(float((~on_front(modes)[default.index]).any()))
    return np.asarray(found, np.float64)


def _well_predicted(runs: pd.DataFrame) -> Values:
    """Returns, by job and unprofiled power mode, 1 if its epoch time was predicted well, else 0."""
    found = power_modes(runs)
    if found is None:
        return np.empty(0)
    if "predicted_s" in found.missing:
        raise UnmeasuredError(found.missing["predicted_s"])
    held_out = found.modes[~found.modes["profiled"]]
    return np.asarray(held_out["error_percent"].abs() <= _SMALL_ERROR_PERCENT, np.float64)


def _divided(above: Values, below: Values) -> Values:
    found = np.full(len(above), np.nan)
    np.divide(above, below, out=found, where=below != 0)
    return found


_HOST: _Where = {"where": "host"}
_CONTAINER: _Where = {"where": "1"}
_FOUR: _Where = {"where": "4"}
_MUCH_ALIKE = (0.8, 1.25)
_SMALL_ERROR_PERCENT = 10
_GB = 1e9

TESTS = {
    "P1": Test("CPU time, container / host", _ratio("cpu_s", _CONTAINER, _HOST), least=1.0),
    "P2": Test("page faults, container / host", _ratio("faults", _CONTAINER, _HOST), least=2.0),
    "P3": Test(
        "daemon's CPU time / container's",
        _level("daemon_cpu_share", "1"),
        most=0.27,
        beside=Test(
            "daemon's page faults / container's", _level("daemon_fault_share", "1"), most=1e-4
        ),
    ),
    "P4": Test(
        "share of block_rq_insert on the run's disk through wb_workfn",
        _level("insert_by_wb_workfn", "1"),
        0.1777,
        why="insert_by_wb_workfn_why",
        beside=Test("of the writes alone", _level("insert_writes_by_wb_workfn", "1"), 0.1777),
    ),
    "P5": Test(
        "mean write-back interval, container / host",
        _ratio("writeback_interval_s", _CONTAINER, _HOST),
        most=1.0,
        beside=Test(
            "standard deviation of the interval, container / host",
            _ratio("writeback_interval_std_s", _CONTAINER, _HOST),
            least=1.0,
        ),
    ),
    "P6": Test(
        "mean write-back interval, 4 containers / 1",
        _ratio("writeback_interval_s", _FOUR, _CONTAINER),
        *_MUCH_ALIKE,
    ),
    "P7": Test(
        "mean write-back interval / timer",
        _quotient("writeback_interval_s", "writeback_timer_s", where="1"),
        most=1.0,
    ),
    "P8": Test(
        "% of faults by the ten most frequent causes",
        _level("top_causes_percent", "1"),
        least=31.3,
        beside=Test(
            "% of faults by the most frequent cause", _level("top_cause_percent", "1"), least=6.2
        ),
    ),
    "P9": Test(
        "share of sync among write-backs",
        _level("writebacks_sync", "1"),
        most=0.008,
        beside=Test(
            "share of periodic among write-backs", _level("writebacks_periodic", "1"), least=0.5
        ),
    ),
    "P10": Test(
        "background's share, 4 containers - 1",
        _difference("writebacks_background", _FOUR, _CONTAINER),
        least=0.0,
    ),
    "P11": Test(
        "share of write-backs on the hottest 1 % of pages, last quarter - first",
        _level("hot_share_growth", "1"),
        least=0.0,
    ),
    # The paper gives no capacity. Without the final drain, a large layer can save any share.
    "P12": Test(
        "most that a flush layer saves, final drain included",
        _level("improvement", "1"),
        least=0.77,
    ),
    "P13": Test(
        "most that a flush layer saves, final drain included, 4 containers",
        _level("improvement", "4"),
        least=0.77,
    ),
    "C1": Test(
        "compute time of a step, container / host",
        _ratio("train_compute_ms", _CONTAINER, _HOST),
        1.0,
    ),
    "C2": Test(
        "median CPU utilisation, container / host",
        _ratio("cpu_use_percent", _CONTAINER, _HOST),
        least=1.0,
        beside=Test(
            "median GPU utilisation, container / host",
            _ratio("gpu_use_percent", _CONTAINER, _HOST),
            most=1.0,
            why="gpu_use_percent_why",
        ),
    ),
    "C3": Test(
        "slowdown of a step by less CPU speed, container - host",
        _slowdown_of_containers,
        least=0.0,
    ),
    "C4": Test("system calls, container / host", _ratio("syscalls", _CONTAINER, _HOST), least=1.0),
    "C5": Test(
        "time of the optimizer, container / host",
        _ratio("train_optimizer_ms", _CONTAINER, _HOST),
        1.0,
    ),
    "C6": Test(
        "compute time of a step, without seccomp / with it",
        _ratio(
            "train_compute_ms", {**_CONTAINER, "seccomp": False}, {**_CONTAINER, "seccomp": True}
        ),
        *_MUCH_ALIKE,
    ),
    "C7": Test(
        "energy of a training, container / host",
        _ratio("energy_j", _CONTAINER, _HOST),
        least=1.0,
        why="energy_j_why",
    ),
    "C8": Test(
        "memory used, container - host, bytes",
        _difference("memory_used_bytes", _CONTAINER, _HOST),
        most=0.35 * _GB,
    ),
    "C9": Test(
        "compute overhead of inference - of training", _inference_against_training, most=0.0
    ),
    "J1": Test(
        "fetch stall of a step, later epochs / first",
        _quotient("stall_later_epochs_ms", "stall_first_epoch_ms", cache="dropped"),
        most=1.0,
    ),
    "J2": Test(
        "fetch stall of a step, 1 worker / none",
        _ratio("train_fetch_stall_ms", {"workers": 1}, {"workers": 0}),
        most=0.5,
    ),
    "J3": Test(
        "share of a step saved by 4 workers, minus the share that was stall with 1",
        _saved_beyond_the_stall,
        most=0.05,
    ),
    "J4": Test(
        "stall saved by a faster disk: with cache and workers / without",
        _saving_left,
        most=0.05,
    ),
    "J5": Test(
        "time of an epoch, batches of 64 / of 4",
        _ratio("epoch_s", {"batch_size": 64}, {"batch_size": 4}),
        most=1.0,
    ),
    "J6": Test(
        "spread of epoch times / mean, after the first", _level("epoch_spread", None), most=0.05
    ),
    "J7": Test(
        "repeats in which some model's default mode is off the Pareto front",
        _default_beaten,
        least=0.5,
    ),
    "J8": Test(
        f"predicted epoch times within {_SMALL_ERROR_PERCENT} %", _well_predicted, least=31 / 40
    ),
    "J9": Test(
        "share of a training's energy that the idle machine would have used",
        _level("baseload_share", None),
        least=0.5,
        why="baseload_share_why",
    ),
}
"""The tests by claim. The bounds are the claim's own; of a range, the end that is easier to reach.
"Do not differ much" is 0.8 to 1.25, as in the usual test of equivalence; "sharply" is by half,
"little" is 5 %, a "small" error of a prediction is 10 %, "not always" is in more than half of the
repeats, "a large part" and "dominate" are a half."""
