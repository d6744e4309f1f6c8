"""The runs of a study, as the runner left them: their factors and measures in one frame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.studies.measures import measure, of_summaries
from probes.errors import BadTrace, TracerError, UsageError
from tracer.store.files import read_bounded

DEFAULT_MODE = "default"
"""The power mode in which a study sets nothing."""

SETTINGS = ("cores", "cpu_mhz", "cpu_quota", "gpu_mhz", "memory_mhz")
"""Of a power mode."""

_MAX_BYTES = 1 << 22
_MAX_RUNS = 100_000


def read_runs(folder: Path) -> tuple[dict[str, Any], pd.DataFrame, list[dict[str, Any]]]:
    """What was declared, a row a run that was done, and the runs that failed.

    Columns: id, the factors (model, where, mode, repeat, ...), the measures. Of the power mode
    its name, its settings (cores, cpu_mhz, cpu_quota, gpu_mhz, memory_mhz), and what set them
    (power_mode_by). Raises UsageError where the folder is no study's.
    """
    study = _object(folder / "study.json")
    if study is None:
        raise UsageError(f"{folder} is no study's folder", "make one: tracer study run quick")
    rows: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for place in sorted((folder / "runs").glob("*"))[:_MAX_RUNS]:
        facts = _object(place / "run.json")
        if facts is None:
            continue  # it has not ended
        factors = facts.get("factors")
        told = factors if isinstance(factors, dict) else {}
        row = {"id": place.name, **told, **_power_mode(facts), "repeat": facts.get("repeat")}
        if facts.get("state") != "done":
            failed.append({**row, "reason": str(facts.get("reason"))})
            continue
        try:
            served = of_summaries(facts.get("summaries"))
            rows.append({**row, **served, **measure(place, facts.get("dev"))})
        except TracerError as error:
            failed.append({**row, "reason": str(error)})
    columns = ["id", "model", "where", "mode", "repeat"]
    return study, pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns), failed


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


def _object(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(read_bounded(path, _MAX_BYTES))
    except (OSError, ValueError, BadTrace):
        return None
    return found if isinstance(found, dict) else None
