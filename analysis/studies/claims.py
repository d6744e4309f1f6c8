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

AGREES, DIFFERS, UNDECIDED, UNMEASURED = "agrees", "differs", "undecided", "not measured"

_REFERENCE = Path(__file__).with_name("reference") / "claims.csv"
_LEVEL = 0.975
"""Of each of the two sides."""
_LEAST = 2
"""Fewer values have no interval."""

_Values = NDArray[np.float64]


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
    compute: Callable[[pd.DataFrame], _Values]
    least: float = -np.inf
    most: float = np.inf


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


def _judge(claim: Claim, runs: pd.DataFrame) -> Verdict:
    test = TESTS.get(claim.id)

    def unmeasured(why: str, what: str = "") -> Verdict:
        return Verdict(
            claim.id, claim.claim, claim.paper_value, what, None, None, None, 0, UNMEASURED, why
        )

    if test is None:
        return unmeasured("nothing here measures it yet")
    try:
        values = test.compute(runs)
    except KeyError as missing:
        return unmeasured(f"no run has {missing.args[0]}", test.measured)
    values = values[np.isfinite(values)]
    if len(values) < _LEAST:
        why = "this study has no runs for it" if not len(values) else "one value has no interval"
        return unmeasured(why, test.measured)
    value, low, high = interval(values)
    if test.least <= low and high <= test.most:
        verdict, why = AGREES, _bounds(test)
    elif high < test.least or low > test.most:
        verdict, why = DIFFERS, _bounds(test)
    else:
        verdict, why = UNDECIDED, f"the interval crosses the bound ({_bounds(test)})"
    return Verdict(
        claim.id, claim.claim, claim.paper_value, test.measured,
        value, low, high, len(values), verdict, why,
    )  # fmt: skip


def interval(values: _Values) -> tuple[float, float, float]:
    """The mean and its 95 % interval by Student's t, for as few values as repeats are."""
    mean = float(values.mean())
    half = float(stats.t.ppf(_LEVEL, len(values) - 1) * stats.sem(values))
    return mean, mean - half, mean + half


def _bounds(test: Test) -> str:
    if np.isfinite(test.least) and np.isfinite(test.most):
        return f"it holds from {test.least:g} to {test.most:g}"
    if np.isfinite(test.least):
        return f"it holds from {test.least:g} on"
    return f"it holds up to {test.most:g}"


def _ratio(
    measure: str, of: str, to: str, mode: str = "train"
) -> Callable[[pd.DataFrame], _Values]:
    """Ratios of a measure between two places, run by run: same model, same repeat."""

    def compute(runs: pd.DataFrame) -> _Values:
        own = runs[runs["mode"] == mode]
        pairs = own[own["where"] == of].merge(
            own[own["where"] == to], on=["model", "repeat"], suffixes=("", " to")
        )
        above = pairs[measure].to_numpy(np.float64)
        below = pairs[f"{measure} to"].to_numpy(np.float64)
        return _divided(above, below)

    return compute


def _level(measure: str, where: str) -> Callable[[pd.DataFrame], _Values]:
    """A measure as it is, of the runs in one place."""

    def compute(runs: pd.DataFrame) -> _Values:
        own = runs[(runs["where"] == where) & (runs["mode"] == "train")]
        return np.asarray(own[measure], np.float64)

    return compute


def _share_of_timer(runs: pd.DataFrame) -> _Values:
    own = runs[runs["where"] == "1"]
    seconds = own["writeback_interval_s"].to_numpy(np.float64)
    timer = own["writeback_timer_s"].to_numpy(np.float64)
    return _divided(seconds, timer)


def _divided(above: _Values, below: _Values) -> _Values:
    found = np.full(len(above), np.nan)
    np.divide(above, below, out=found, where=below != 0)
    return found


def _difference(measure: str, of: str, to: str) -> Callable[[pd.DataFrame], _Values]:
    def compute(runs: pd.DataFrame) -> _Values:
        own = runs[runs["mode"] == "train"]
        pairs = own[own["where"] == of].merge(
            own[own["where"] == to], on=["model", "repeat"], suffixes=("", " to")
        )
        return np.asarray(pairs[measure] - pairs[f"{measure} to"], np.float64)

    return compute


TESTS = {
    "P1": Test("CPU time, container / host", _ratio("cpu_s", "1", "host"), least=1.0),
    "P2": Test("page faults, container / host", _ratio("faults", "1", "host"), least=2.0),
    "P3": Test("daemon's CPU time / container's", _level("daemon_cpu_share", "1"), most=0.27),
    "P4": Test(
        "share of block_rq_insert through wb_workfn", _level("insert_by_wb_workfn", "1"), 0.1777
    ),
    "P5": Test(
        "mean write-back interval, container / host",
        _ratio("writeback_interval_s", "1", "host"),
        most=1.0,
    ),
    "P6": Test(
        "mean write-back interval, 4 containers / 1",
        _ratio("writeback_interval_s", "4", "1"),
        least=0.8,
        most=1.25,
    ),
    "P7": Test("mean write-back interval / timer", _share_of_timer, most=1.0),
    "P8": Test(
        "% of faults by the ten most frequent causes", _level("top_causes_percent", "1"), least=31.3
    ),
    "P9": Test("share of sync among write-backs", _level("writebacks_sync", "1"), most=0.008),
    "P10": Test(
        "background's share, 4 containers - 1",
        _difference("writebacks_background", "4", "1"),
        least=0.0,
    ),
    "P12": Test("improvement by the flush layer", _level("improvement", "1"), least=0.77),
    "P13": Test("improvement, 4 containers", _level("improvement", "4"), least=0.77),
    "C1": Test(
        "compute time of a step, container / host", _ratio("train_compute_ms", "1", "host"), 1.0
    ),
    "C4": Test("system calls, container / host", _ratio("syscalls", "1", "host"), least=1.0),
    "C5": Test(
        "time of the optimizer, container / host", _ratio("train_optimizer_ms", "1", "host"), 1.0
    ),
}
"""By claim. Bounds are the claim's own; where it gives a range, the end that is easier to reach.
"Do not differ much" is within a fifth, 0.8 to 1.25, as the usual test of equivalence has it."""
