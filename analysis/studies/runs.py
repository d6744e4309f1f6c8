"""The runs of a study, as the runner left them: their factors and measures in one frame."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd

from analysis.studies import facts
from analysis.studies.facts import Budget, RunFacts, StudyFacts
from analysis.studies.measures import measure, of_summaries
from analysis.views.energy import all_of, energy
from probes.errors import BadTrace, TracerError, UsageError
from tracer.store.names import escaped, original
from tracer.store.trace import Trace

DEFAULT_MODE = "default"
"""The power mode in which a study sets nothing."""

SETTINGS = ("cores", "cpu_mhz", "cpu_quota", "gpu_mhz", "memory_mhz")
"""Of a power mode."""

BASELOAD = "baseload.trace"
"""Of the idle machine, in the study's folder, recorded by `tracer record --baseload`."""

_NO_BASELOAD = (
    f"no baseload was recorded (tracer record --baseload -d 600 -o STUDY/{BASELOAD}, on the idle"
    " machine)"
)

FACTORS = (
    "model", "where", "mode", "dataset", "workers", "batch_size", "epochs", "threads", "cpus",
    "memory", "seccomp", "cache", "medium", "rate", "requests", "power_mode", "repeat",
)  # fmt: skip
"""What runs can differ in, as `workloads/studies/study.py` declares it."""

UNLIMITED: dict[str, object] = {
    "cpus": None, "memory": None, "seccomp": True, "power_mode": DEFAULT_MODE,
}  # fmt: skip
"""The factors of a run that nothing holds back. None: not given."""


class LeftOut(TypedDict):
    """A run that no result is made of. `state`: failed, damaged, or not ended."""

    id: str
    state: str
    reason: str


FAILED, DAMAGED, NOT_ENDED, NOT_BEGUN = "failed", "damaged", "not ended", "not begun"


Also = Callable[[Path, str | None, Trace], None]
"""Gets the folder of a run, the device of its file system, and its trace."""


def read_runs(
    folder: Path, also: Also | None = None
) -> tuple[StudyFacts, pd.DataFrame, list[LeftOut]]:
    """What was declared, a row a run that was done, and the runs that are left out, with reasons.

    Columns: id, the factors (model, where, mode, repeat, ...), the measures. Of the power mode
    its name, its settings (cores, cpu_mhz, cpu_quota, gpu_mhz, memory_mhz), and what set them
    (power_mode_by). `also` gets each trace that has to be opened. Raises UsageError where the
    folder is no study's, BadTrace where what was declared is damaged.
    """
    study = facts.read_study(folder)
    if study is None:
        raise UsageError(f"{folder} is no study's folder", "make one: tracer study run quick")
    rows: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    told, kept = Budget(), Budget()
    for place in _places(folder):
        id = escaped(place.name)
        try:
            with facts.held(place):
                found = facts.read_run(place, told)
            if found is None:
                left_out.append(LeftOut(id=id, state=NOT_ENDED, reason="it has no run.json"))
                continue
            if found["state"] != "done":
                why = found.get("reason") or "it does not say why"
                left_out.append(LeftOut(id=id, state=FAILED, reason=why))
                continue
            row = {"id": id} | factors_of(found)
            lacking = [name for name in facts.NEEDED if name not in row]
            if lacking:
                raise BadTrace(f"its factors lack {', '.join(lacking)}", "run it again")
            served = of_summaries(found.get("summaries"))
            dev = found.get("dev")
            beside = None if also is None else partial(also, place, dev)
            rows.append({**row, **served, **measure(place, dev, kept, beside)})
        except TracerError as error:
            left_out.append(LeftOut(id=id, state=DAMAGED, reason=str(error)))
    columns = ["id", "model", "where", "mode", "repeat"]
    runs = pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns)
    return study, _with_baseload(runs, baseload_w(folder)), left_out


def _places(folder: Path) -> list[Path]:
    """The folders of the runs, by name. Raises BadTrace for a link, UsageError for too many."""
    parent = folder / facts.RUNS
    if parent.is_symlink():
        raise BadTrace(f"{parent} is a symbolic link", "a study's folder holds none: copy it again")
    try:
        with os.scandir(parent) as entries:
            names = [one.name for one in itertools.islice(entries, facts.MOST_RUNS + 1)]
    except (FileNotFoundError, NotADirectoryError):
        names = []
    if len(names) > facts.MOST_RUNS:
        raise UsageError(
            f"{parent} holds more than {facts.MOST_RUNS} runs", "report on a part of them"
        )
    return [parent / name for name in sorted(names)]


def place_of(folder: Path, id: str) -> Path:
    """The folder of the run that `read_runs` calls so."""
    return folder / facts.RUNS / os.fsdecode(original(id))


def name_of(study: StudyFacts) -> str:
    """The name of a study."""
    return study.get("name", "a study without a name")


def said_runs(study: StudyFacts, runs: int, left_out: Sequence[LeftOut]) -> str:
    """The number of runs, and of those that are left out, by why, in words."""
    counts = Counter(one["state"] for one in left_out)
    counts[NOT_BEGUN] = not_begun(study, runs, left_out)
    more = [f"{counts[state]} {state}" for state in (DAMAGED, NOT_ENDED, NOT_BEGUN)]
    told = [f"{runs} runs", f"{counts[FAILED]} failed"]
    return ", ".join([*told, *(one for one in more if not one.startswith("0 "))])


def not_begun(study: StudyFacts, runs: int, left_out: Sequence[LeftOut]) -> int:
    """The number of runs that were declared and have no folder."""
    return max(0, len(study.get("runs", ())) - runs - len(left_out))


def factors_of(found: RunFacts) -> dict[str, Any]:
    """The factors of a run, as its run.json has them, its repeat among them.

    Of the power mode its name, its settings (cores, cpu_mhz, cpu_quota, gpu_mhz, memory_mhz), and
    what set them (power_mode_by).
    """
    told: dict[str, Any] = {**found.get("factors", {}), "repeat": found.get("repeat")}
    mode = found.get("power_mode", {})
    numbers: dict[str, Any] = dict(mode.get("settings", {}))
    return {
        **{name: told[name] for name in FACTORS if name in told},
        "power_mode": mode.get("name", DEFAULT_MODE),
        "power_mode_by": mode.get("by", {}),
        **{name: numbers[name] for name in SETTINGS if numbers.get(name) is not None},
    }


def used(found: RunFacts) -> dict[str, int]:
    """What a run's job used of what its study may have left to the model."""
    first = next(iter(found.get("summaries", ())), None)
    told: dict[str, Any] = dict(first or {})
    every = {name: told.get(name) for name in ("workers", "batch_size", "epochs")}
    return {name: value for name, value in every.items() if value is not None}


def baseload_w(folder: Path) -> float | None:
    """The power of the idle machine, of the study's own `baseload.trace`; None: not recorded.

    Raises BadTrace or UsageError where that is none of the idle machine.
    """
    path = folder / BASELOAD
    if not path.exists():
        return None
    with Trace(path) as idle:
        found = all_of(energy(idle, idle))  # refuses one with a target
    return None if found is None else float(found["mean_w"])


def _with_baseload(runs: pd.DataFrame, watts: float | None) -> pd.DataFrame:
    """With the share of a run's energy that the idle machine would have taken in its time."""
    if "energy_j" not in runs:
        return runs
    energy_j = pd.to_numeric(runs["energy_j"])
    share = pd.to_numeric(runs["energy_s"]) * (float("nan") if watts is None else watts) / energy_j
    why = runs["energy_j_why"].where(runs["energy_j_why"].notna(), _NO_BASELOAD)
    return runs.assign(baseload_share=share, baseload_share_why=why)
