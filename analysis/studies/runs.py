"""The runs of a study, as the runner left them: their factors and measures in one frame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.studies.measures import measure, of_summaries
from analysis.views.energy import all_of, energy
from probes.errors import BadTrace, TracerError, UsageError
from tracer.store.files import read_bounded
from tracer.store.trace import Trace

DEFAULT_MODE = "default"
"""The power mode in which a study sets nothing."""

SETTINGS = ("cores", "cpu_mhz", "cpu_quota", "gpu_mhz", "memory_mhz")
"""Of a power mode."""

_MAX_BYTES = 1 << 22
_MAX_RUNS = 100_000

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


def read_runs(folder: Path) -> tuple[dict[str, Any], pd.DataFrame, list[dict[str, Any]]]:
    """What was declared, a row a run that was done, and the runs that failed.

    Columns: id, the factors (model, where, mode, repeat, ...), the measures. Of the power mode
    its name, its settings (cores, cpu_mhz, cpu_quota, gpu_mhz, memory_mhz), and what set them
    (power_mode_by). Raises UsageError where the folder is no study's.
    """
    study = read_object(folder / "study.json")
    if study is None:
        raise UsageError(f"{folder} is no study's folder", "make one: tracer study run quick")
    rows: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for place in sorted((folder / "runs").glob("*"))[:_MAX_RUNS]:
        facts = read_facts(place)
        if facts is None:
            continue  # it has not ended
        row = {"id": place.name} | factors_of(facts)
        if facts.get("state") != "done":
            failed.append({**row, "reason": str(facts.get("reason"))})
            continue
        try:
            served = of_summaries(facts.get("summaries"))
            rows.append({**row, **served, **measure(place, facts.get("dev"))})
        except TracerError as error:
            failed.append({**row, "reason": str(error)})
    columns = ["id", "model", "where", "mode", "repeat"]
    runs = pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns)
    return study, _with_baseload(runs, baseload_w(folder)), failed


def factors_of(facts: dict[str, Any]) -> dict[str, Any]:
    """The factors of a run, as its run.json has them: plain values alone, its repeat among them.

    Of the power mode its name, its settings (cores, cpu_mhz, cpu_quota, gpu_mhz, memory_mhz), and
    what set them (power_mode_by).
    """
    factors = facts.get("factors")
    told = factors if isinstance(factors, dict) else {}
    told = {**told, "repeat": facts.get("repeat")}
    plain = {
        name: told[name]
        for name in FACTORS
        if name in told and isinstance(told[name], str | int | float | None)
    }
    return plain | _power_mode(facts)


def used(facts: dict[str, Any]) -> dict[str, Any]:
    """What a run's job used of what its study may have left to the model."""
    match facts.get("summaries"):
        case [dict(summary), *_]:
            told = {name: summary.get(name) for name in ("workers", "batch_size", "epochs")}
            return {name: value for name, value in told.items() if isinstance(value, int)}
    return {}


def _power_mode(facts: dict[str, Any]) -> dict[str, Any]:
    told = facts.get("power_mode")
    mode = told if isinstance(told, dict) else {}
    settings, by = mode.get("settings"), mode.get("by")
    numbers = settings if isinstance(settings, dict) else {}
    return {
        "power_mode": str(mode.get("name", DEFAULT_MODE)),
        "power_mode_by": by if isinstance(by, dict) else {},
        **{name: numbers[name] for name in SETTINGS if isinstance(numbers.get(name), int | float)},
    }


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


def read_facts(place: Path) -> dict[str, Any] | None:
    """How the run in this folder went; None where it has not ended."""
    return read_object(place / "run.json")


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is none."""
    try:
        found = json.loads(read_bounded(path, _MAX_BYTES))
    except (OSError, ValueError, BadTrace):
        return None
    return found if isinstance(found, dict) else None
