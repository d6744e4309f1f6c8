"""The papers' claims held against the runs of a study: a value, its interval, a verdict.

A verdict is computed. `agrees`: the whole interval lies within the claim's bounds. `differs`: the
whole interval lies outside them; or, if the claim is about a number, the interval excludes that
number and is not within the bounds. `undecided`: neither. `not measured`: there is no value, and
the verdict says why. Intervals are those of the mean over models and repeats
(`tracer.analysis.studies.intervals`); if two places are compared, over pairs of the same model and
repeat. A claim of several parts holds if all parts hold that were measured; its value is that of
the first of these.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from tracer.analysis.studies.claim_tests import TESTS, Test
from tracer.analysis.studies.claim_values import Compared
from tracer.analysis.studies.intervals import interval
from tracer.analysis.studies.special_values import UnmeasuredError
from tracer.digits import show_digits

AGREES, DIFFERS, UNDECIDED, UNMEASURED = "agrees", "differs", "undecided", "not measured"

_REFERENCE = Path(__file__).with_name("reference") / "claims.csv"
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
    measures (`tracer.analysis.studies.measures`). Runs with limits, or with other habits of writing
    checkpoints than the usual one, count only for claims about these.
    """
    return [
        judge_one(claim, runs)
        for claim in claims().values()
        if paper is None or not paper or claim.seed == paper
    ]


def judge_one(claim: Claim, runs: pd.DataFrame) -> Verdict:
    """Returns the verdict with the value of the first part that was measured."""
    test = TESTS[claim.id]
    parts = [_judge_part(claim, runs, part) for part in (test, *test.others)]
    first = next((part for part in parts if part.verdict != UNMEASURED), parts[0])
    if first.verdict == UNMEASURED:
        return first
    found = {part.verdict for part in parts}
    told = [first.why, *(_said(part) for part in parts if part is not first)]
    return replace(
        first,
        verdict=next(one for one in (DIFFERS, UNDECIDED, AGREES) if one in found),
        why=". ".join(told),
    )


def _judge_part(claim: Claim, runs: pd.DataFrame, test: Test) -> Verdict:
    def unmeasured(why: str) -> Verdict:
        return Verdict(
            claim.id, claim.claim, claim.paper_value, test.measured, None, None, None, 0,
            UNMEASURED, why,
        )  # fmt: skip

    try:
        compared = test.compute(runs)
    except UnmeasuredError as error:
        return unmeasured(error.args[0])
    except KeyError as missing:
        return unmeasured(f"no run has {missing.args[0]}")
    known = compared.known()
    if len(known.values) < _LEAST:
        one = "one value has no interval"
        return unmeasured(one if len(known.values) else _why_none(test, runs, compared))
    value, low, high = interval(known.values, known.possible)
    verdict = _within(test, low, high)
    return Verdict(
        claim.id, claim.claim, claim.paper_value, test.measured,
        value, low, high, len(known.values), verdict,
        f"{_WORDS[verdict]} ({_bounds(test)}); {known.said()}",
    )  # fmt: skip


def _within(test: Test, low: float, high: float) -> str:
    if test.least < low and high < test.most:
        return AGREES
    if test.about is not None:
        return UNDECIDED if low <= test.about <= high else DIFFERS
    return DIFFERS if high <= test.least or low >= test.most else UNDECIDED


_WORDS = {
    AGREES: "the whole interval is where the claim holds",
    DIFFERS: "the interval is where the claim does not hold",
    UNDECIDED: "the interval leaves it open",
}


def _said(part: Verdict) -> str:
    value = ""
    if part.value is not None and part.low is not None and part.high is not None:
        ends = f"[{show_digits(part.low)}, {show_digits(part.high)}]"
        value = f"{show_digits(part.value)} {ends}, "
    return f"{part.measured}: {value}{part.why}"


def _why_none(test: Test, runs: pd.DataFrame, compared: Compared) -> str:
    """Returns the traces' reason for a missing measure, or whether there were runs to compare."""
    told = runs[test.why].dropna().astype(str).tolist() if test.why in runs else []
    if told:
        return str(max(told, key=told.count))
    if compared.undivided:
        return "every divisor is 0"
    if len(compared.values):
        return "its runs recorded no such events, or too few"
    return "this study has no runs for it"


def _bounds(test: Test) -> str:
    """Returns, in words, where the claim holds."""
    if np.isfinite(test.least) and np.isfinite(test.most):
        said = f"it holds between {show_digits(test.least, 4)} and {show_digits(test.most, 4)}"
    elif np.isfinite(test.least):
        said = f"it holds above {show_digits(test.least, 4)}"
    else:
        said = f"it holds below {show_digits(test.most, 4)}"
    if test.about is None:
        return said
    return f"{said}, and not if the interval excludes {show_digits(test.about, 4)}"
