"""The order of a study's runs: drawn by the seed, but each model is trained before it is served."""

from __future__ import annotations

import random
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
    found: list[Run] = []
    waiting: list[tuple[Run, set[str]]] = []
    by_repeat = [run for *_, run in sorted(keyed, key=lambda k: k[:2])]
    for run in by_repeat:
        needed = _trainings_of(run, runs) - {one.id for one in found}
        if needed:
            waiting.append((run, needed))
            continue
        found.append(run)
        for needs in waiting:
            needs[1].discard(run.id)
        found += [one for one, needs in waiting if not needs]
        waiting = [one for one in waiting if one[1]]
    return found


def _trainings_of(run: Run, runs: Sequence[Run]) -> set[str]:
    if run.factors.mode != "serve":
        return set()
    every = [
        one for one in runs
        if one.factors.mode == "train" and one.repeat == run.repeat
        and (one.factors.model, one.factors.dataset) == (run.factors.model, run.factors.dataset)
    ]  # fmt: skip
    here = [one for one in every if one.factors.where == run.factors.where]
    return {one.id for one in here or every}
