"""The papers' claims held against the runs of a study: a value, its interval, a verdict.

A verdict is computed. `agrees`: the whole interval is where the claim has it. `differs`: the whole
interval is where it does not. `undecided`: some of both, the runs do not tell. `not measured`: why
not. Intervals are Student's, 95 %, of the mean over models and repeats; where two places are
compared, over pairs of the same model and repeat.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from analysis.studies.power_modes import mode_table, on_front, power_modes, why_no_energy
from analysis.studies.runs import DEFAULT_MODE, FACTORS, SETTINGS, UNLIMITED

AGREES, DIFFERS, UNDECIDED, UNMEASURED = "agrees", "differs", "undecided", "not measured"

_REFERENCE = Path(__file__).with_name("reference") / "claims.csv"
_LEVEL = 0.975
"""Of each of the two sides."""
_LEAST = 2
"""Fewer values have no interval."""

_Values = NDArray[np.float64]
_Compute = Callable[[pd.DataFrame], _Values]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, as `reference/claims.csv` has it."""

    id: str
    seed: str
    where: str
    claim: str
    paper_value: str


@dataclass(frozen=True)
class Verdict:
    """What the runs say of a claim. Nulls: not measured. `values`: how many the interval is of."""

    id: str
    claim: str
    paper_value: str
    measured: str
    value: float | None
    low: float | None
    high: float | None
    values: int
    verdict: str
    why: str


@dataclass(frozen=True)
class Test:
    """How a claim is judged: what is computed of the runs, and between which bounds it holds."""

    measured: str
    compute: _Compute
    least: float = -np.inf
    most: float = np.inf
    why: str = ""
    """The column of `runs` that says why a measure is missing."""
    beside: Test | None = None
    """Another part of the claim, which counts where it was measured, too."""


def claims() -> dict[str, Claim]:
    """Every claim, by id."""
    with _REFERENCE.open(newline="") as file:
        return {
            row["id"]: Claim(row["id"], row["seed"], row["where"], row["claim"], row["paper_value"])
            for row in csv.DictReader(file)
        }


def judge(runs: pd.DataFrame, paper: str | None = None) -> list[Verdict]:
    """A verdict on each claim (of one paper).

    `runs` has a row a run that was done: its factors (model, where, mode, repeat, ...) and its
    measures (`analysis.studies.measures`).
    """
    return [
        _judge(claim, runs)
        for claim in claims().values()
        if paper is None or not paper or claim.seed == paper
    ]


def _judge(claim: Claim, runs: pd.DataFrame, test: Test | None = None) -> Verdict:
    test = test or TESTS[claim.id]

    def unmeasured(why: str, what: str = "") -> Verdict:
        return Verdict(
            claim.id, claim.claim, claim.paper_value, what, None, None, None, 0, UNMEASURED, why
        )

    try:
        values = test.compute(runs)
    except _Unmeasured as error:
        return unmeasured(error.args[0], test.measured)
    except KeyError as missing:
        return unmeasured(f"no run has {missing.args[0]}", test.measured)
    compared = len(values)
    values = values[np.isfinite(values)]
    if len(values) < _LEAST:
        why = "one value has no interval" if len(values) else _why_none(test, runs, compared)
        return unmeasured(why, test.measured)
    value, low, high = interval(values)
    verdict, why = _within(test, low, high)
    if test.beside is not None:
        other = _judge(claim, runs, test.beside)
        verdict = _both(verdict, other.verdict)
        said = other.why if other.value is None else f"{_said(other)}, {other.why}"
        why = f"{why}; {other.measured}: {said}"
    return Verdict(
        claim.id, claim.claim, claim.paper_value, test.measured,
        value, low, high, len(values), verdict, why,
    )  # fmt: skip


def _within(test: Test, low: float, high: float) -> tuple[str, str]:
    if test.least < low and high < test.most:
        return AGREES, _bounds(test)
    if high <= test.least or low >= test.most:
        return DIFFERS, _bounds(test)
    return UNDECIDED, f"the interval crosses the bound ({_bounds(test)})"


def _both(one: str, other: str) -> str:
    """A claim of two parts holds where both do; a part that was not measured says nothing."""
    if UNMEASURED in (one, other):
        return one if other == UNMEASURED else other
    return next(v for v in (DIFFERS, UNDECIDED, AGREES) if v in (one, other))


def _said(verdict: Verdict) -> str:
    return f"{verdict.value:.3g} [{verdict.low:.3g}, {verdict.high:.3g}]"


def _why_none(test: Test, runs: pd.DataFrame, compared: int) -> str:
    """As the traces say why a measure is missing; else whether there were runs to compare."""
    told = runs[test.why].dropna().astype(str).tolist() if test.why in runs else []
    if told:
        return str(max(told, key=told.count))
    if compared:
        return "its runs recorded nothing of the kind, or too little"
    return "this study has no runs for it"


def interval(values: _Values) -> tuple[float, float, float]:
    """The mean and its 95 % interval by Student's t, for as few values as repeats are."""
    mean = float(values.mean())
    half = float(stats.t.ppf(_LEVEL, len(values) - 1) * stats.sem(values))
    return mean, mean - half, mean + half


def _bounds(test: Test) -> str:
    if np.isfinite(test.least) and np.isfinite(test.most):
        return f"it holds between {test.least:g} and {test.most:g}"
    if np.isfinite(test.least):
        return f"it holds above {test.least:g}"
    return f"it holds below {test.most:g}"


_Where = dict[str, object]
"""Factors and the values that they have."""


class _Unmeasured(Exception):
    """What is to be computed was not measured; the text says why."""


def _are(runs: pd.DataFrame, factors: _Where) -> pd.DataFrame:
    """The runs with these factors, and without limits unless they are asked for."""
    for name, value in {**UNLIMITED, **factors}.items():
        if name not in runs:
            continue
        runs = runs[runs[name].isna() if value is None else runs[name] == value]
    return runs


def _pairs(runs: pd.DataFrame, measure: str, of: _Where, to: _Where) -> tuple[_Values, _Values]:
    """A measure of runs that differ in these factors alone, side by side."""
    same = [name for name in FACTORS if name in runs and name not in of]
    pairs = _are(runs, of).merge(_are(runs, to), on=same, suffixes=("", " to"))
    return (
        np.asarray(pairs[measure], np.float64),
        np.asarray(pairs[f"{measure} to"], np.float64),
    )


def _ratio(measure: str, of: _Where, to: _Where, mode: str = "train") -> _Compute:
    def compute(runs: pd.DataFrame) -> _Values:
        return _divided(*_pairs(runs[runs["mode"] == mode], measure, of, to))

    return compute


def _difference(measure: str, of: _Where, to: _Where) -> _Compute:
    def compute(runs: pd.DataFrame) -> _Values:
        above, below = _pairs(runs[runs["mode"] == "train"], measure, of, to)
        return above - below

    return compute


def _level(measure: str, where: str | None) -> _Compute:
    """A measure as it is, of the trainings in one place or in all."""

    def compute(runs: pd.DataFrame) -> _Values:
        own = _are(runs, {"mode": "train", **({"where": where} if where else {})})
        return np.asarray(own[measure], np.float64)

    return compute


def _quotient(above: str, below: str, **factors: object) -> _Compute:
    """One measure over another of the same training."""

    def compute(runs: pd.DataFrame) -> _Values:
        own = _are(runs, {"mode": "train", **factors})
        return _divided(np.asarray(own[above], np.float64), np.asarray(own[below], np.float64))

    return compute


def _saved_beyond_the_stall(runs: pd.DataFrame) -> _Values:
    """Of a step's time with one worker, the share that four save less the share that was stall."""
    own = runs[runs["mode"] == "train"]
    four, one = _pairs(own, "train_step_mean_ms", {"workers": 4}, {"workers": 1})
    _, stall = _pairs(own, "train_stall_share", {"workers": 4}, {"workers": 1})
    return 1 - _divided(four, one) - stall


def _inference_against_training(runs: pd.DataFrame) -> _Values:
    """By model: what a container adds to an inference's compute time, less that of a training."""

    def overheads(mode: str, measure: str) -> pd.Series[float]:
        own = runs[runs["mode"] == mode]
        found = {
            model: pd.Series(_divided(*_pairs(group, measure, _CONTAINER, _HOST))).mean()
            for model, group in own.groupby("model")
        }
        return pd.Series(found, dtype=float)

    both = overheads("infer", "inference_forward_ms") - overheads("train", "train_compute_ms")
    return np.asarray(both.dropna(), np.float64)


def _saving_left(runs: pd.DataFrame) -> _Values:
    """By repeat: of the stall that the machine's disk saves over a hard disk's, the share left.

    All of it is of the first epoch, from the dropped cache, without workers; what is left is of the
    later epochs with four. Summed over the models, since some have no stall to save.
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


def _slowdown_of_containers(runs: pd.DataFrame) -> _Values:
    """By mode of less CPU speed, model and repeat: a container's slowdown less the host's.

    Slowdown: the mean compute time of a step over that in the default mode. The mean, since a
    quota holds up few steps, and those for long.
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
    """Power modes that differ from the default one in the CPUs' frequency or quota alone."""
    known = [name for name in SETTINGS if name in runs]
    modes = runs.groupby("power_mode")[known].first()
    if DEFAULT_MODE not in modes.index:
        return []
    lower = (modes < modes.loc[DEFAULT_MODE]).any(axis=1)
    others = modes[[name for name in known if name not in ("cpu_mhz", "cpu_quota")]]
    same = (others.isna() | (others == others.loc[DEFAULT_MODE])).all(axis=1)
    return [str(name) for name in modes.index[lower & same]]


def _default_beaten(runs: pd.DataFrame) -> _Values:
    """By repeat: 1 where some job's default power mode is off its Pareto front, else 0."""
    found = []
    for _, repeat in runs.groupby("repeat"):
        modes = mode_table(repeat)
        if len(modes) and modes["energy_j"].isna().all():
            raise _Unmeasured(why_no_energy(runs))
        default = modes[(modes["power_mode"] == DEFAULT_MODE) & modes["energy_j"].notna()]
        if len(default):
            found.append(float((~on_front(modes)[default.index]).any()))
    return np.asarray(found, np.float64)


def _well_predicted(runs: pd.DataFrame) -> _Values:
    """By job and power mode that was not learned from: 1 where its epoch time was foretold."""
    found = power_modes(runs)
    if found is None:
        return np.empty(0)
    if "predicted_s" in found.missing:
        raise _Unmeasured(found.missing["predicted_s"])
    held_out = found.modes[~found.modes["profiled"]]
    return np.asarray(held_out["error_percent"].abs() <= _SMALL_ERROR_PERCENT, np.float64)


def _divided(above: _Values, below: _Values) -> _Values:
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
        "share of block_rq_insert through wb_workfn", _level("insert_by_wb_workfn", "1"), 0.1777
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
        beside=Test("% by the most frequent", _level("top_cause_percent", "1"), least=6.2),
    ),
    "P9": Test(
        "share of sync among write-backs",
        _level("writebacks_sync", "1"),
        most=0.008,
        beside=Test("share of periodic", _level("writebacks_periodic", "1"), least=0.5),
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
    "P12": Test("improvement by the flush layer", _level("improvement", "1"), least=0.77),
    "P13": Test("improvement, 4 containers", _level("improvement", "4"), least=0.77),
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
        "share of a step saved by 4 workers, less the share that was stall with 1",
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
        "share of a training's energy that the idle machine would have taken",
        _level("baseload_share", None),
        least=0.5,
        why="baseload_share_why",
    ),
}
"""By claim. Bounds are the claim's own; where it gives a range, the end that is easier to reach.
"Do not differ much" is 0.8 to 1.25, as the usual test of equivalence has it; "sharply" is by half,
"little" 5 %, a "small" error of a prediction 10 %, "not always" in more repeats than not, "a large
part" and "dominate" a half."""
