"""The order of a study's runs: drawn by the seed, but each model is trained before it is served."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.workloads.studies.study import Run


def in_order(runs: Sequence[Run], seed: int) -> list[Run]:
    """Returns the runs in the order in which they are made.

    One repeat ends before the next begins, so that an interrupted study still has pairs. Within a
    repeat the seed draws the order. A run that serves a model waits for the trainings of that model
    in the same place, or for all of them if there are none in that place; then it follows at once.
    """
    drawn = random.Random(seed)
    keyed = [(run.repeat, drawn.random(), run) for run in runs]
    left: Counter[_Key] = Counter()
    for run in runs:
        if run.factors.mode == "train":
            left.update(_keys(run))
    here_or_anywhere = {run: _needed(run, left) for run in runs if run.factors.mode == "serve"}
    found: list[Run] = []
    waiting: dict[_Key, list[Run]] = {}
    for run in (run for *_, run in sorted(keyed, key=lambda k: k[:2])):
        needed = here_or_anywhere.get(run)
        if needed is not None and left[needed]:
            waiting.setdefault(needed, []).append(run)
            continue
        found.append(run)
        if run.factors.mode == "train":
            for key in _keys(run):
                left[key] -= 1
                found += waiting.pop(key, ()) if not left[key] else ()
    return found


_Key = tuple[int, str, str | None, str | None]
"""Trainings that a serving waits for: repeat, model, data set, and place (None: any)."""


def _keys(run: Run) -> tuple[_Key, _Key]:
    of = run.factors
    anywhere = (run.repeat, of.model, of.dataset)
    return (*anywhere, of.where), (*anywhere, None)


def _needed(serving: Run, trainings: Counter[_Key]) -> _Key | None:
    return next((key for key in _keys(serving) if trainings[key]), None)
