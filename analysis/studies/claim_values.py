"""The values that a claim is tested with: ratios and differences of pairs of runs, and levels.

Each function returns a function of the frame of all runs, and that returns a `Compared`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.studies.intervals import ANY, POSITIVE, SHARE
from tracer.analysis.studies.runs import FACTORS, UNLIMITED, WORK, by_time, is_usual
from tracer.digits import show_digits

Values = NDArray[np.float64]
Where = dict[str, object]
"""Factors and the values that they have."""


class _Given:
    """The value of a factor that a run has, whatever it is."""


class _NotZero:
    """The value of a factor that is not 0."""


GIVEN, NOT_ZERO = _Given(), _NotZero()
HOST: Where = {"where": "host"}
CONTAINER: Where = {"where": "1"}
FOUR: Where = {"where": "4"}
WITH_WORKERS: dict[str, Any] = {"workers": NOT_ZERO}
"""Prashanthi et al. 2023, section 4.2: all runs have workers. Those of section 5.1.4 without are an
attempt to explain, so no other claim of that paper counts them."""


@dataclass(frozen=True)
class Compared:
    """The values of a test. `kind`: what one value is, in the plural. `possible`: their bounds.

    `runs`: one row per value with the factors that are known for it (model, repeat).
    """

    values: Values
    kind: str
    possible: tuple[float, float] = ANY
    runs: pd.DataFrame | None = None
    more: str = ""
    """A sentence about other measures of these runs."""
    undivided: int = 0
    """Number of further pairs or runs without a value, because their divisor is 0."""

    def known(self) -> Compared:
        """Returns the same without the values that were not measured."""
        kept = np.isfinite(self.values)
        rows = self.runs if self.runs is None else self.runs[kept]
        return replace(self, values=self.values[kept], runs=rows)

    def said(self) -> str:
        """Returns, in words, what the values are: how many, of which models and repeats.

        Several models have a mean each: a claim may hold for some of them only.
        """
        told = [f"the mean of {len(self.values)} {self.kind}"]
        if self.runs is not None and "model" in self.runs:
            names = self.runs["model"].astype(str).reset_index(drop=True)
            means = pd.Series(self.values).groupby(names).mean()
            alone = len(means) == 1
            models = [
                name if alone else f"{name} {show_digits(mean)}" for name, mean in means.items()
            ]
            told.append(f"models: {', '.join(map(str, models))}")
        if self.runs is not None and "repeat" in self.runs:
            told.append(f"repeats: {self.runs['repeat'].nunique()}")
        if self.undivided:
            told.append(f"{self.undivided} more have a divisor of 0")
        return "; ".join([*told, *filter(None, [self.more])])


Compute = Callable[[pd.DataFrame], Compared]


def select(runs: pd.DataFrame, factors: Where) -> pd.DataFrame:
    """Returns the runs with these factors; those with limits or other habits only if asked for."""
    for name, value in factors.items():
        if name not in runs:
            if value is GIVEN or type(value) is int:
                return runs.iloc[:0]
        elif value is GIVEN:
            runs = runs[runs[name].notna()]
        elif value is NOT_ZERO:
            runs = runs[runs[name].isna() | (runs[name] != 0)]
        else:
            runs = runs[runs[name].isna() if value is None else runs[name] == value]
    for name in UNLIMITED:
        if name in runs and name not in factors:
            runs = runs[is_usual(runs[name], name)]
    return runs


def pairs(runs: pd.DataFrame, of: Where, to: Where) -> pd.DataFrame:
    """Returns pairs of runs that differ only in these factors; columns of the second end in " to".

    Factors that `of` and `to` both have with the same value select the runs of both sides. Raises
    KeyError if no run tells a factor in which they differ: each run would pair with itself.
    """
    shared = {name for name in of if name in to and of[name] == to[name]}
    untold = [name for name in of if name not in runs and name not in shared]
    if untold and len(runs):
        raise KeyError(untold[0])
    same = [name for name in FACTORS if name in runs and (name not in of or name in shared)]
    return select(runs, of).merge(select(runs, to), on=same, suffixes=("", " to"))


def numeric(frame: pd.DataFrame, name: str) -> Values:
    """Returns a column as numbers; null is NaN."""
    return np.asarray(pd.to_numeric(frame[name]), np.float64)


def divided(above: Values, below: Values) -> Values:
    """Returns quotients; NaN where the divisor is 0."""
    found = np.full(len(above), np.nan)
    np.divide(above, below, out=found, where=below != 0)
    return found


def quotients(
    above: Values, below: Values, kind: str, possible: tuple[float, float], frame: pd.DataFrame
) -> Compared:
    """Returns quotients as values of a test, which counts those whose divisor is 0."""
    undivided = int((np.isfinite(above) & (below == 0)).sum())
    return Compared(divided(above, below), kind, possible, frame, undivided=undivided)


def ratios(frame: pd.DataFrame, measure: str) -> Values:
    """Returns the ratios of a measure in pairs of runs."""
    return divided(numeric(frame, measure), numeric(frame, f"{measure} to"))


def ratio(measure: str, of: Where, to: Where, mode: str = "train", **both: object) -> Compute:
    """Makes the ratio of a measure in pairs of runs that differ only in these factors."""

    def compute(runs: pd.DataFrame) -> Compared:
        frame = pairs(runs[runs["mode"] == mode], {**of, **both}, {**to, **both})
        above, below = numeric(frame, measure), numeric(frame, f"{measure} to")
        return quotients(above, below, _said_pairs(of, to, both), POSITIVE, frame)

    return compute


def ratio_of_same_work(measure: str, of: Where, to: Where, **both: object) -> Compute:
    """Makes the ratio of a measure per step in pairs of trainings that differ in these factors.

    Jobs that train for a given time do more steps where they are faster. Jobs that do not tell
    their steps have done the same work if they had no such time.
    """

    def compute(runs: pd.DataFrame) -> Compared:
        frame = pairs(runs[runs["mode"] == "train"], {**of, **both}, {**to, **both})
        found = divided(ratios(frame, measure), _more_work(frame))
        return Compared(found, _said_pairs(of, to, both), POSITIVE, frame)

    return compute


def _more_work(frame: pd.DataFrame) -> Values:
    """Returns the ratios of the jobs' work in pairs of runs; NaN: not known."""
    same = np.where(by_time(frame), np.nan, 1.0)
    if WORK not in frame:
        return same
    told = ratios(frame, WORK)
    return np.where(np.isnan(told), same, told)


def difference(measure: str, of: Where, to: Where, **both: object) -> Compute:
    """Makes the difference of a measure in pairs of trainings that differ only in these factors."""

    def compute(runs: pd.DataFrame) -> Compared:
        frame = pairs(runs[runs["mode"] == "train"], {**of, **both}, {**to, **both})
        found = numeric(frame, measure) - numeric(frame, f"{measure} to")
        return Compared(found, _said_pairs(of, to, both), ANY, frame)

    return compute


def level(
    measure: str, where: str | None, possible: tuple[float, float] = POSITIVE, **factors: object
) -> Compute:
    """Makes the plain measure of the trainings in one place (None: in all places)."""
    asked = {"mode": "train", **({"where": where} if where else {}), **factors}

    def compute(runs: pd.DataFrame) -> Compared:
        own = select(runs, asked)
        return Compared(numeric(own, measure), _said_runs(asked), possible, own)

    return compute


def quotient(
    above: str, below: str, possible: tuple[float, float] = POSITIVE, **factors: object
) -> Compute:
    """Makes the ratio of two measures of the same training."""
    asked = {"mode": "train", **factors}

    def compute(runs: pd.DataFrame) -> Compared:
        own = select(runs, asked)
        dividends, divisors = numeric(own, above), numeric(own, below)
        return quotients(dividends, divisors, _said_runs(asked), possible, own)

    return compute


def models_in_which(measure: str, of: Where, to: Where) -> Compute:
    """Makes, by model, 1 if the mean difference over its pairs of trainings is above 0, else 0."""

    def compute(runs: pd.DataFrame) -> Compared:
        frame = pairs(runs[runs["mode"] == "train"], of, to)
        more = pd.Series(numeric(frame, measure) - numeric(frame, f"{measure} to"), frame.index)
        means = more.groupby(frame["model"]).mean().dropna()
        each = pd.DataFrame({"model": means.index})
        return Compared(np.asarray(means > 0, np.float64), "models", SHARE, each)

    return compute


def greatest_of_models(measure: str, where: str, possible: tuple[float, float]) -> Compute:
    """Makes, by repeat, the greatest measure of any model's training in one place."""

    def compute(runs: pd.DataFrame) -> Compared:
        own = select(runs, {"mode": "train", "where": where})
        most = pd.Series(numeric(own, measure), own.index).groupby(own["repeat"]).max().dropna()
        each = pd.DataFrame({"repeat": most.index})
        return Compared(np.asarray(most, np.float64), "repeats", possible, each)

    return compute


def between_models(measure: str, more: str, less: str) -> Compute:
    """Makes, by repeat, a container's ratio to the host in one model minus that in another."""

    def compute(runs: pd.DataFrame) -> Compared:
        frame = pairs(
            runs[runs["mode"] == "train"], {**CONTAINER, **WITH_WORKERS}, {**HOST, **WITH_WORKERS}
        )
        found = pd.Series(ratios(frame, measure), frame.index)
        by = [
            found[frame["model"] == model].groupby(frame["repeat"]).mean() for model in (more, less)
        ]
        apart = (by[0] - by[1]).dropna()
        each = pd.DataFrame({"repeat": apart.index})
        return Compared(np.asarray(apart, np.float64), "repeats", ANY, each)

    return compute


def optimizer_beyond_the_rest(runs: pd.DataFrame) -> Compared:
    """Returns the optimizer's ratio of container to host, minus the greater one of other parts."""
    frame = pairs(
        runs[runs["mode"] == "train"], {**CONTAINER, **WITH_WORKERS}, {**HOST, **WITH_WORKERS}
    )
    own, *others = (
        ratios(frame, f"train_{part}_ms") for part in ("optimizer", "forward", "backward")
    )
    return Compared(
        own - np.maximum(*others), _said_pairs(CONTAINER, HOST, WITH_WORKERS), ANY, frame
    )


def overhead_without_workers(runs: pd.DataFrame) -> Compared:
    """Returns, by model and repeat, a container's ratio to the host: without workers / with."""
    train = runs[runs["mode"] == "train"]
    without = _overheads(train, "train_compute_ms", {"workers": 0})
    usual = _overheads(train, "train_compute_ms", WITH_WORKERS)
    return _by_model_and_repeat(without / usual, POSITIVE)


def inference_against_training(runs: pd.DataFrame) -> Compared:
    """Returns, by model and repeat, a container's compute overhead in inference less in training.

    Section 5.2.1 of the paper compares the two in each model, with workers.
    """
    training, inference = (
        _overheads(runs[runs["mode"] == mode], measure, WITH_WORKERS)
        for mode, measure in (("train", "train_compute_ms"), ("infer", "inference_forward_ms"))
    )
    return _by_model_and_repeat(inference - training, ANY)


def _overheads(runs: pd.DataFrame, measure: str, both: Where) -> pd.Series[float]:
    """Returns a container's ratios to the host by model and repeat."""
    frame = pairs(runs, {**CONTAINER, **both}, {**HOST, **both})
    found = pd.Series(ratios(frame, measure), frame.index)
    return found.groupby([frame["model"], frame["repeat"]]).mean()


def _by_model_and_repeat(found: pd.Series[float], possible: tuple[float, float]) -> Compared:
    known = found.dropna()
    each = known.index.to_frame(index=False)
    return Compared(np.asarray(known, np.float64), "models and repeats", possible, each)


def _said_pairs(of: Where, to: Where, both: Where) -> str:
    shared = {name: value for name, value in of.items() if to.get(name) is value}
    names = [name for name in of if name not in both | shared]
    apart = ", ".join(f"{name} {_said(of[name])} against {_said(to[name])}" for name in names)
    return f"pairs of runs that differ only in {apart}{_said_with(both | shared)}"


def _said_runs(asked: Where) -> str:
    return f"runs{_said_with(asked)}"


def _said_with(factors: Where) -> str:
    told = [_said_factor(name, value) for name, value in factors.items()]
    return f" ({', '.join(told)})" if told else ""


def _said_factor(name: str, value: object) -> str:
    if value is GIVEN:
        return f"with a limit of {name}"
    return f"{name} not 0" if value is NOT_ZERO else f"{name} {_said(value)}"


def _said(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
