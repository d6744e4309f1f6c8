"""Summaries of runs: means over repeats with intervals, and places side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import pandas as pd

from tracer.analysis.studies.intervals import ANY, POSITIVE, interval
from tracer.analysis.studies.runs import FACTORS, UNLIMITED, is_usual

PLACES = {"host": "host", "1": "one container"}
"""Names of places; other values of `where` are a number of containers."""

_LEAST = 2


def place(where: object) -> str:
    """Returns the name of a run's place."""
    return PLACES.get(str(where), f"{where} containers")


def in_order(frame: pd.DataFrame, then: Sequence[str]) -> pd.DataFrame:
    """Sorts by place, the host first, then by these columns; puts names of places into `where`."""

    def key(where: str) -> tuple[bool, int, str]:
        return where != "host", len(where), where  # "4" is less than "16"

    places = sorted({str(where) for where in frame["where"]}, key=key)
    order = {where: number for number, where in enumerate(places)}
    found = frame.assign(_place=frame["where"].astype(str).map(order)).sort_values(
        ["_place", *then], ignore_index=True
    )
    return found.drop(columns="_place").assign(where=found["where"].map(place))


Bounds = tuple[float, float]
Possible = Bounds | Callable[[pd.DataFrame], Bounds]
"""The bounds of a value, or a function that returns those of the rows of a group."""


def over_runs(
    frame: pd.DataFrame,
    by: Sequence[str],
    values: Sequence[str],
    possible: Mapping[str, Possible] | None = None,
) -> pd.DataFrame:
    """Returns the mean of each value over the rows of a group, with its 95 % interval.

    The interval stays within the possible values (`tracer.analysis.studies.intervals`): above 0,
    unless `possible` gives the bounds of a value.

    Columns: `by`, and for each value VALUE, VALUE_low, VALUE_high (null for fewer than two rows),
    then runs (rows of the group). Nulls do not count; the mean is null if all are null.
    """
    rows = []
    for keys, group in frame.groupby(list(by), sort=False, dropna=False):
        row = dict(zip(by, keys, strict=True))
        for value in values:
            bounds = (possible or {}).get(value, POSITIVE)
            row |= _spread(value, group[value], bounds(group) if callable(bounds) else bounds)
        rows.append(row | {"runs": len(group)})
    names = [f"{value}{end}" for value in values for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=[*by, *names, "runs"])


def _spread(name: str, values: pd.Series[float], possible: Bounds) -> dict[str, float | None]:
    known = pd.to_numeric(values).dropna().to_numpy(float)
    low: float | None = None
    high: float | None = None
    mean = float(known.mean()) if len(known) else None
    if len(known) >= _LEAST:
        mean, low, high = interval(known, possible)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def increase(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Returns the percentage by which a value is higher in one container than on the host.

    Compares pairs of runs that are equal in all of `by` and in their repeat. Columns: `by`,
    increase_percent, increase_percent_low, increase_percent_high, pairs.
    """
    same = [*by, "repeat"]
    host, one = (frame[frame["where"] == where][[*same, value]] for where in ("host", "1"))
    pairs = host.merge(one, on=same, suffixes=("_host", ""))
    below = pd.to_numeric(pairs[f"{value}_host"])
    pairs["increase_percent"] = 100 * (pd.to_numeric(pairs[value]) / below.where(below != 0) - 1)
    pairs = pairs.dropna(subset=["increase_percent"])
    more_than_all = {"increase_percent": (-100.0, ANY[1])}
    found = over_runs(pairs, by, ["increase_percent"], more_than_all)
    return found.rename(columns={"runs": "pairs"})


_AMOUNTS = ("epochs", "at_least", "at_most", "batches", "requests")
"""Factors that say how much work a run does."""


def settings(frame: pd.DataFrame, but: Sequence[str] = ()) -> pd.Series[str]:
    """Returns, in words, the factors of a run that differ from those of most runs of its mode.

    The amount of work is compared with that of most runs of the same model. Model, where, mode,
    repeat and the factors `but` are left out. "" if no factor differs.
    """
    said: list[list[str]] = [[] for _ in range(len(frame))]
    left_out = {"model", "where", "mode", "repeat", *but}
    for name in FACTORS:
        if name not in frame or name in left_out:
            continue
        alike = ["mode", "model"] if name in _AMOUNTS else ["mode"]
        usual = {key: _usual(group, name) for key, group in frame.groupby(alike)}
        keys = zip(*(frame[column] for column in alike), strict=True)
        for words, key, value in zip(said, keys, frame[name], strict=True):
            if (told := _told(name, value)) != usual.get(key):
                words.append(f"{name} {'not set' if told is None else _plain(told)}")
    return pd.Series([", ".join(words) for words in said], index=frame.index, dtype=str)


def first_repeat(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Returns the rows of one run in each group: the first repeat with the usual settings.

    Settings are those of `settings`. If no run of a group has the usual ones, the first in
    alphabetical order count.
    """
    runs = frame.drop_duplicates("id")
    runs = runs.assign(settings=settings(runs))
    first = runs.sort_values(["settings", "repeat", "id"]).drop_duplicates(list(by))
    return frame[frame["id"].isin(first["id"])]


def _told(name: str, value: object) -> object:
    """Returns a factor's value; None: not set, or set to the value that is meant without it."""
    meant = UNLIMITED.get(name, ())
    unset = value is None or value != value or (None in meant and value in meant)
    return None if unset else value


def _usual(frame: pd.DataFrame, name: str) -> object:
    """Returns the value that most runs have; of several, None or else the first."""
    of_runs = Counter(_told(name, value) for value in frame.drop_duplicates("id")[name])
    most = max(of_runs.values())
    values = [value for value, runs in of_runs.items() if runs == most]
    return None if None in values else values[0]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def without_limits(frame: pd.DataFrame, but: Collection[str] = ()) -> pd.DataFrame:
    """Returns the runs without limits, without a power mode, and with the usual habits.

    The factors `but` may have any value.
    """
    for name in UNLIMITED:
        if name in frame and name not in but:
            frame = frame[is_usual(frame[name], name)]
    return frame
