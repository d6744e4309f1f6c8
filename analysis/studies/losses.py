"""The losses of the traces of a study's runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from tracer.analysis.studies.extracts import LOSSES, MOST_BYTES, extract, losses_of
from tracer.analysis.studies.facts import Budget
from tracer.analysis.studies.papers.made import said_lost
from tracer.analysis.studies.runs import place_of
from tracer.probes.errors import TracerError
from tracer.store import manifest as manifests

_MOST_LISTED = 10


def losses(folder: Path, runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the runs of a study whose traces have losses; `runs` comes from `read_runs`.

    The losses are those of the run's trace or, if it is gone, of its kept extracts. Columns: id,
    complete (false: the recording was cut off), lost_events, loss_windows, loss_unknown (gaps of
    unknown size). All but id are null for a run that has neither trace nor extracts.
    """
    budget = Budget(MOST_BYTES)
    rows = [{"id": id, **_losses(place_of(folder, str(id)), budget)} for id in runs["id"]]
    told = [row for row in rows if not row["complete"] or any(row[name] for name in LOSSES[1:])]
    return pd.DataFrame(told, columns=["id", *LOSSES], dtype=object)


def said_losses(lost: pd.DataFrame) -> str:
    """Returns the frame of `losses` in words; "" if it has no rows."""
    known = lost["complete"].notna()
    ids = list(lost.loc[~known, "id"])
    more = f" and {len(ids) - _MOST_LISTED} more" if len(ids) > _MOST_LISTED else ""
    told = [said_lost(lost[known], None)]
    if ids:
        told.append(f"not known, for want of a trace, in {', '.join(ids[:_MOST_LISTED])}{more}")
    return "; ".join(filter(None, told))


def _losses(place: Path, budget: Budget) -> dict[str, Any]:
    try:
        return losses_of(manifests.read(place / "run.trace"))
    except TracerError:  # it is gone or damaged
        pass
    try:
        facts = extract(place, budget=budget)["facts"]
    except TracerError:
        return dict.fromkeys(LOSSES)
    return {name: facts[name] for name in LOSSES}
