"""The power modes of a study, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracer.analysis.studies.runs import SETTINGS

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from tracer.analysis.studies.power_modes import PowerModes


def as_json(found: PowerModes | None) -> dict[str, Any] | None:
    """Returns both tables as rows, with null for missing values; None if no mode was varied."""
    if found is None:
        return None
    return {
        "modes": _rows(found.modes),
        "jobs": _rows(found.jobs),
        "profiled": found.profiled,
        "set_by": found.set_by,
        "missing": found.missing,
    }


def print_power_modes(out: Console, found: PowerModes) -> None:
    """Prints a table of power modes for each job, and one of the errors of the predictions."""
    from tracer.cli.output import print_table

    known = [name for name in SETTINGS if name in found.modes]
    for job in found.jobs["job"]:
        rows = _rows(found.modes[found.modes["job"] == job])
        print_table(
            out,
            f"Power modes of {job}",
            [*known, "epoch s", "predicted", "error %", "J", "predicted J", "front"],
            [
                [
                    *(_short(row[name]) for name in known),
                    row["epoch_s"],
                    row.get("predicted_s"),
                    "profiled" if row.get("profiled") else row.get("error_percent"),
                    row["energy_j"],
                    row.get("predicted_energy_j"),
                    _yes(row.get("on_front")),
                ]
                for row in rows
            ],
        )
    print_table(
        out,
        "Prediction by power mode",
        ["job", "MAPE", "MAPE, modes not chosen by it", "energy MAPE", "default on front"],
        [
            [
                row["job"],
                row.get("mape"),
                row.get("unseen_mape"),
                row.get("energy_mape"),
                _yes(row.get("default_on_front")),
            ]
            for row in _rows(found.jobs)
        ],
        left=("job",),
        note="; ".join(_notes(found)),
    )


def _notes(found: PowerModes) -> list[str]:
    notes = [f"{name}: {by}" for name, by in found.set_by.items()]
    if found.profiled:
        notes.append(f"predictions learn from the modes {' | '.join(found.profiled)}")
        if found.jobs["unseen_mape"].isna().all():
            notes.append("MAPE covers modes that were chosen by the same epoch times")
    names = {"predicted_s": "no prediction", "energy_j": "no energy and no Pareto front"}
    return [*notes, *(f"{names[name]}: {why}" for name, why in found.missing.items())]


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _short(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"


def _yes(value: Any) -> bool | None:
    return None if value is None else bool(value)
