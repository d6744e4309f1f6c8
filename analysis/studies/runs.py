"""The runs of a study: their factors and measures in one frame."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd

from tracer.analysis.studies import facts
from tracer.analysis.studies.facts import Budget, RunFacts, StudyFacts
from tracer.analysis.studies.measures import measure
from tracer.analysis.studies.served import served
from tracer.analysis.views.energy import all_of, energy
from tracer.probes.errors import BadTrace, TracerError, UsageError
from tracer.store import manifest as manifests
from tracer.store.names import escaped, original
from tracer.store.trace import Trace

DEFAULT_MODE = "default"
"""The power mode in which a study changes no setting."""

SETTINGS = ("cores", "cpu_mhz", "cpu_quota", "gpu_mhz", "memory_mhz")
"""The settings of a power mode."""

BASELOAD = "baseload.trace"
"""The trace of the idle machine in the study's folder, made with `tracer record --baseload`."""

_NO_BASELOAD = (
    f"no baseload was recorded (tracer record --baseload -d 600 -o STUDY/{BASELOAD}, on the idle"
    " machine)"
)

FACTORS = (
    "model", "where", "mode", "dataset", "workers", "batch_size", "epochs", "at_least", "at_most",
    "batches", "checkpoint_every", "checkpoint_way", "threads", "cpus", "memory", "swap",
    "page_cluster", "dirty_background_bytes", "seccomp", "cache", "medium", "rate", "requests",
    "power_mode", "repeat",
)  # fmt: skip
"""The factors in which runs can differ, as declared in `workloads/studies/study.py`."""

_BY_TIME = ("at_least", "at_most")
"""The factors that end a training by time, so that its work depends on its speed."""

WORK = "work"
"""The column of the jobs' work (`work_of`)."""

USUAL_CHECKPOINTS = {"checkpoint_every": "epoch", "checkpoint_way": "truncate"}
"""The times and the way of checkpoints in which the papers' jobs write them, as far as we know."""

UNLIMITED: dict[str, tuple[object, ...]] = {
    "cpus": (None,),
    "memory": (None,),
    "swap": (None,),
    "dirty_background_bytes": (None,),
    "seccomp": (True,),
    "power_mode": (DEFAULT_MODE,),
    **{name: (None, value) for name, value in USUAL_CHECKPOINTS.items()},
}
"""The values of factors without a limit and with the usual habits. None: not given.

Tables and claims leave out all other runs, unless they are about such a factor.
"""


def is_usual(values: pd.Series[Any], name: str) -> pd.Series[bool]:
    """Returns which values of a factor are usual by `UNLIMITED`."""
    usual = UNLIMITED[name]
    told = values.isin([value for value in usual if value is not None])
    return told | values.isna() if None in usual else told


def by_time(runs: pd.DataFrame) -> pd.Series[bool]:
    """Returns which runs train for a given time, so that their work depends on their speed."""
    return runs[[name for name in _BY_TIME if name in runs]].notna().any(axis=1)


class LeftOut(TypedDict):
    """A run that is left out of all results. `state`: failed, damaged, not ended, or a copy."""

    id: str
    state: str
    reason: str


FAILED, DAMAGED, NOT_ENDED, NOT_BEGUN = "failed", "damaged", "not ended", "not begun"
COPIED = "a copy"


Also = Callable[[Path, str | None, Trace], None]
"""A function that receives the folder of a run, the device of its file system, and its trace."""


def read_runs(
    folder: Path, also: Also | None = None
) -> tuple[StudyFacts, pd.DataFrame, list[LeftOut]]:
    """Returns the declaration, one row per finished run, and the runs left out, with reasons.

    Columns: id, the factors (model, where, mode, repeat, ...), work (`work_of`), the measures. A
    power mode has its name, its settings (cores, cpu_mhz, cpu_quota, gpu_mhz, memory_mhz), and the
    tool that set them (power_mode_by). `also` receives each trace that has to be opened. Raises
    UsageError if the folder is not a study's, BadTrace if the declaration is damaged.
    """
    study = facts.read_study(folder)
    if study is None:
        raise UsageError(
            f"{folder} is not the folder of a study", "make one: tracer study run quick"
        )
    rows: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    told, kept = Budget(), Budget()
    first: dict[str, str] = {}
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
            if (early := _ended_early(place)) is not None:
                left_out.append(LeftOut(id=id, state=FAILED, reason=early))
                continue
            row = {"id": id} | factors_of(found)
            lacking = [name for name in facts.NEEDED if name not in row]
            if lacking:
                raise BadTrace(f"its factors lack {', '.join(lacking)}", "run it again")
            factors = json.dumps([row.get(name) for name in FACTORS])
            if factors in first and row["repeat"] is not None:
                why = f"it has the factors and the repeat of {first[factors]}"
                left_out.append(LeftOut(id=id, state=COPIED, reason=why))
                continue
            dev = found.get("dev")
            beside = None if also is None else partial(also, place, dev)
            told_by_jobs = {**work_of(found), **served(found)}
            rows.append({**row, **told_by_jobs, **measure(place, dev, kept, beside)})
            first[factors] = id
        except TracerError as error:
            left_out.append(LeftOut(id=id, state=DAMAGED, reason=str(error)))
    columns = ["id", "model", "where", "mode", "repeat"]
    runs = pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns)
    return study, _with_baseload(runs, baseload_w(folder)), left_out


def _ended_early(place: Path) -> str | None:
    """Returns the reason for which the recording of a run ended before its job, or None.

    The runner of earlier versions said that such a run is done.
    """
    try:
        return manifests.why_early(manifests.read(place / "run.trace"))
    except TracerError:
        return None  # the trace may be gone if its measures are kept; `measure` says it otherwise


def _places(folder: Path) -> list[Path]:
    """Returns the runs' folders by name. Raises BadTrace for a link, UsageError for too many."""
    parent = folder / facts.RUNS
    if parent.is_symlink():
        raise BadTrace(
            f"{parent} is a symbolic link",
            "a study's folder has no links: copy it again with its contents",
        )
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
    """Returns the folder of the run with this id in `read_runs`."""
    return folder / facts.RUNS / os.fsdecode(original(id))


def name_of(study: StudyFacts) -> str:
    """Returns the name of a study."""
    return study.get("name", "a study without a name")


def said_runs(study: StudyFacts, runs: int, left_out: Sequence[LeftOut]) -> str:
    """Returns, in words, the number of runs, and of those left out by their state."""
    counts = Counter(one["state"] for one in left_out)
    counts[NOT_BEGUN] = not_begun(study, runs, left_out)
    states = {DAMAGED: DAMAGED, NOT_ENDED: NOT_ENDED, COPIED: "copied", NOT_BEGUN: NOT_BEGUN}
    more = [f"{counts[state]} {said}" for state, said in states.items()]
    told = [f"{runs} runs", f"{counts[FAILED]} failed"]
    return ", ".join([*told, *(one for one in more if not one.startswith("0 "))])


def not_begun(study: StudyFacts, runs: int, left_out: Sequence[LeftOut]) -> int:
    """Returns the number of declared runs that have no folder."""
    own = sum(1 for one in left_out if one["state"] != COPIED)
    return max(0, len(study.get("runs", ())) - runs - own)


def factors_of(found: RunFacts) -> dict[str, Any]:
    """Returns the factors of a run from its run.json, with its repeat.

    A power mode has its name, its settings (cores, cpu_mhz, cpu_quota, gpu_mhz, memory_mhz), and
    the tool that set them (power_mode_by).
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
    """Returns the values that a run's job used for factors that a study may leave to the model.

    The epochs of a job that trains for a given time are no factor: they depend on its speed.
    """
    first = next(iter(found.get("summaries", ())), None)
    told: dict[str, Any] = dict(first or {})
    factors = found.get("factors", {})
    by_time = any(factors.get(name) is not None for name in _BY_TIME)
    names = ("workers", "batch_size") if by_time else ("workers", "batch_size", "epochs")
    every = {name: told.get(name) for name in names}
    return {name: value for name, value in every.items() if value is not None}


def work_of(found: RunFacts) -> dict[str, int | None]:
    """Returns the work of a run's jobs, summed over them; null if one does not tell.

    Work is counted in steps of a training, batches of an inference, answered requests of a serving.
    """
    told = [_work(dict(one or {})) for one in found.get("summaries", ())]
    known = [one for one in told if one]
    return {WORK: sum(known) if known and len(known) == len(told) else None}


def _work(summary: dict[str, Any]) -> int | None:
    answered = (summary.get("client") or {}).get("answered")
    found: int | None = summary.get("steps") or summary.get("batches") or answered
    return found


def checkpoints_of(found: RunFacts) -> dict[str, int | None]:
    """Returns the checkpoints that a run's jobs wrote.

    checkpoints: by each job; null if the jobs differ, or do not tell. checkpoint_bytes: of one
    checkpoint, summed over the jobs (each writes its own); null if one does not tell.
    """
    told: list[dict[str, Any]] = [dict(one or {}) for one in found.get("summaries", ())]
    counts = {one.get("checkpoints") for one in told}
    sizes = [size for one in told if (size := one.get("checkpoint_bytes")) is not None]
    return {
        "checkpoints": counts.pop() if len(counts) == 1 else None,
        "checkpoint_bytes": sum(sizes) if told and len(sizes) == len(told) else None,
    }


def baseload_w(folder: Path) -> float | None:
    """Returns the idle machine's power in W, from `baseload.trace`; None: not recorded.

    Raises BadTrace or UsageError if that trace is not one of the idle machine.
    """
    path = folder / BASELOAD
    if not path.exists():
        return None
    with Trace(path) as idle:
        found = all_of(energy(idle, idle))  # raises for a trace with a target
    return None if found is None else float(found["mean_w"])


def _with_baseload(runs: pd.DataFrame, watts: float | None) -> pd.DataFrame:
    """Adds the share of a run's energy that the idle machine would have used in the same time."""
    if "energy_j" not in runs:
        return runs
    energy_j = pd.to_numeric(runs["energy_j"])
    share = pd.to_numeric(runs["energy_s"]) * (float("nan") if watts is None else watts) / energy_j
    why = runs["energy_j_why"].where(runs["energy_j_why"].notna(), _NO_BASELOAD)
    return runs.assign(baseload_share=share, baseload_share_why=why)
