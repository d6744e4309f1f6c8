"""The papers' claims held against the runs of a study: a value, its interval, a verdict.

A verdict is computed. `agrees`: the whole interval lies within the claim's bounds. `differs`: the
whole interval lies outside them. `undecided`: the interval crosses a bound. `not measured`: there
is no value, and the verdict says why. Intervals are Student's, 95 %, of the mean over models and
repeats; if two places are compared, over pairs of the same model and repeat.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tracer.analysis.statistics import t_quantile
from tracer.analysis.studies.claim_tests import TESTS, Test, UnmeasuredError, Values
from tracer.analysis.studies.runs import usual_checkpoints

AGREES, DIFFERS, UNDECIDED, UNMEASURED = "agrees", "differs", "undecided", "not measured"

_REFERENCE = Path(__file__).with_name("reference") / "claims.csv"
_LEVEL = 0.975
"""Probability in each of the two tails."""
_LEAST = 2
"""The fewest values that have an interval."""


@dataclass(frozen=True)
class Claim:
    """A claim of a paper: a row of `reference/claims.csv`."""

    id: str
    seed: str
    where: str
    claim: str
    paper_value: str


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim. Nulls: not measured. `values`: how many values the interval has."""

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


def claims() -> dict[str, Claim]:
    """Returns every claim, by id."""
    with _REFERENCE.open(newline="") as file:
        return {
            row["id"]: Claim(row["id"], row["seed"], row["where"], row["claim"], row["paper_value"])
            for row in csv.DictReader(file)
        }


def judge(runs: pd.DataFrame, paper: str | None = None) -> list[Verdict]:
    """Returns a verdict on each claim, of all papers or of one.

    `runs` has one row per finished run: its factors (model, where, mode, repeat, ...) and its
    measures (`tracer.analysis.studies.measures`). Runs that write checkpoints at other times or in
    another way than the usual one do not count.
    """
    runs = usual_checkpoints(runs)
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
    except UnmeasuredError as error:
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
    """Returns the verdict of a claim of two parts: both must hold; unmeasured parts are ignored."""
    if UNMEASURED in (one, other):
        return one if other == UNMEASURED else other
    return next(v for v in (DIFFERS, UNDECIDED, AGREES) if v in (one, other))


def _said(verdict: Verdict) -> str:
    return f"{verdict.value:.3g} [{verdict.low:.3g}, {verdict.high:.3g}]"


def _why_none(test: Test, runs: pd.DataFrame, compared: int) -> str:
    """Returns the traces' reason for a missing measure, or whether there were runs to compare."""
    told = runs[test.why].dropna().astype(str).tolist() if test.why in runs else []
    if told:
        return str(max(told, key=told.count))
    if compared:
        return "its runs recorded no such events, or too few"
    return "this study has no runs for it"


def interval(values: Values) -> tuple[float, float, float]:
    """Returns the mean and its 95 % interval by Student's t, which suits few repeats."""
    mean = float(values.mean())
    error = values.std(ddof=1) / np.sqrt(len(values))
    half = t_quantile(_LEVEL, len(values) - 1) * error
    return mean, mean - half, mean + half


def _bounds(test: Test) -> str:
    if np.isfinite(test.least) and np.isfinite(test.most):
        return f"it holds between {test.least:g} and {test.most:g}"
    if np.isfinite(test.least):
        return f"it holds above {test.least:g}"
    return f"it holds below {test.most:g}"
