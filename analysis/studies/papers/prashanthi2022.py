"""Prashanthi et al. 2022: the parts of an epoch's time on an edge device.

The available text of the paper lacks its numbers for these figures, so the tables have only ours.
Times are per epoch. The first epoch is separate, because it reads the data from disk. Only
trainings without limits count, of one place: `where`, which is the host in a study.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tracer.analysis.studies.intervals import PERCENT
from tracer.analysis.studies.power_modes import power_modes
from tracer.analysis.studies.spread import over_runs, settings, without_limits

_HOST = "host"
_TIMES = ["stall_s", "compute_s", "overhead_s", "epoch_s"]
PERCENTAGES = dict.fromkeys(("residency_percent", "hit_percent", "again_percent"), PERCENT)
"""The possible values of shares of pages."""


def stall_by_workers(epochs: pd.DataFrame, where: str = _HOST) -> pd.DataFrame:
    """Returns Figure 2a: an epoch's time by the number of workers, after the first epoch.

    `epochs`: one row per run and epoch with its times. A run is left out if no other run differs
    from it in the number of workers only.

    Columns: model, settings (other factors that differ), workers, stall_s, compute_s, overhead_s,
    epoch_s (means of a run's epochs; each with _low, _high over runs), runs.
    """
    return _later_epochs(epochs, "workers", where)


def stall_by_medium(epochs: pd.DataFrame, where: str = _HOST) -> pd.DataFrame:
    """Returns Figure 3: an epoch's time by the storage medium of its data, first and later epochs.

    Columns: model, settings, medium, epoch (first or later), stall_s, compute_s, overhead_s,
    epoch_s (means of such epochs; each with _low, _high over runs), runs.
    """
    if "medium" not in epochs:
        raise KeyError("medium")
    own = _alone(epochs, ["medium"], where)
    own = own[own.groupby(["model", "settings"])["medium"].transform("nunique") > 1]
    own["epoch"] = later(own).map({False: "first", True: "later"})
    keys = ["model", "settings", "medium", "epoch"]
    found = over_runs(_of_a_run(own, keys, _TIMES), keys, _TIMES)
    return found.sort_values(keys, ignore_index=True)


def mode_times(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns Figures 8 and 10: time and energy of an epoch by power mode, measured and predicted.

    Columns: those of `modes` in `tracer.analysis.studies.power_modes.PowerModes`.
    """
    found = power_modes(runs)
    return pd.DataFrame(columns=["job", "power_mode"]) if found is None else found.modes


def stall_by_batch(epochs: pd.DataFrame, where: str = _HOST) -> pd.DataFrame:
    """Returns Figure 4: an epoch's time by the size of a batch, after the first epoch.

    The columns are those of `stall_by_workers`, with batch_size instead of workers, and stall_ms
    and compute_ms of a minibatch.
    """
    return _later_epochs(epochs, "batch_size", where, ["stall_ms", "compute_ms"])


def stall_by_epoch(epochs: pd.DataFrame, where: str = _HOST) -> pd.DataFrame:
    """Returns Figure 2b: fetch stall and bytes read in the first epoch and in later ones.

    Columns: model, settings, workers, epoch (first or later), stall_s (of one epoch), read_mb (read
    from the run's own disk in one epoch), page_cache_gb (of the machine), residency_percent (of the
    data's pages; null: not sampled), hit_percent (of the pages of files that the job used, those in
    the page cache; null: not recorded), each with _low, _high; runs.
    """
    own = _alone(epochs, ["workers"], where)
    own["epoch"] = later(own).map({False: "first", True: "later"})
    own["read_mb"] = pd.to_numeric(own["read_bytes"]) / 1e6
    own["page_cache_gb"] = pd.to_numeric(own["page_cache_bytes"]) / 1e9
    values = ["stall_s", "read_mb", "page_cache_gb", "residency_percent", "hit_percent"]
    keys = ["model", "settings", "workers", "epoch"]
    found = over_runs(_of_a_run(own, keys, values), keys, values, PERCENTAGES)
    return found.sort_values(keys, ignore_index=True)


def epoch_spread(epochs: pd.DataFrame, where: str = _HOST) -> pd.DataFrame:
    """Returns Figure 5: the variation of an epoch's time within a run, after the first epoch.

    Columns: model, settings, epoch_s (mean of a run's epochs), spread_percent (their standard
    deviation in per cent of the mean; null for fewer than two), each with _low, _high; runs.
    """
    own = _alone(epochs, [], where)
    own = own[later(own)]
    keys = ["model", "settings"]
    of_run = own.groupby([*keys, "id"], dropna=False)["epoch_s"]
    found = of_run.mean().to_frame()
    found["spread_percent"] = 100 * of_run.std() / found["epoch_s"]
    return over_runs(found.reset_index(), keys, ["epoch_s", "spread_percent"])


def epoch_times(epochs: pd.DataFrame, where: str = _HOST) -> pd.DataFrame:
    """Returns Figure 5: every epoch after the first, against the mean of its run, for violins.

    Columns: model, settings, id, epoch, epoch_s, of_mean_percent (epoch_s in per cent of the mean).
    """
    own = _alone(epochs, [], where)
    own = own[later(own)]
    own["of_mean_percent"] = 100 * own["epoch_s"] / own.groupby("id")["epoch_s"].transform("mean")
    return own[["model", "settings", "id", "epoch", "epoch_s", "of_mean_percent"]]


def later(epochs: pd.DataFrame) -> pd.Series[bool]:
    """Returns which epochs are not the first of their run: a resumed training begins with others.

    If the recording began within an epoch, that one is the first, and nothing of it is known.
    """
    return epochs["epoch"] > epochs.groupby("id")["epoch"].transform("min")


def _alone(epochs: pd.DataFrame, by: Sequence[str], where: str) -> pd.DataFrame:
    own = without_limits(epochs[(epochs["mode"] == "train") & (epochs["where"] == where)])
    return own.assign(settings=settings(own, by))


def _later_epochs(
    epochs: pd.DataFrame, by: str, where: str, more: Sequence[str] = ()
) -> pd.DataFrame:
    own = _alone(epochs, [by], where)
    own = own[later(own) & own[by].notna()]
    own = own[own.groupby(["model", "settings"])[by].transform("nunique") > 1]
    own[by] = own[by].astype(int)
    for part in ("stall", "compute"):
        own[f"{part}_ms"] = 1e3 * own[f"{part}_s"] / own["steps"]
    keys, values = ["model", "settings", by], [*_TIMES, *more]
    found = over_runs(_of_a_run(own, keys, values), keys, values)
    return found.sort_values(keys, ignore_index=True)


def _of_a_run(own: pd.DataFrame, keys: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Returns each run's mean over its epochs, because epochs of one run are not repeats."""
    numeric = own.assign(**{value: pd.to_numeric(own[value]) for value in values})
    means = numeric.groupby([*keys, "id"], dropna=False, sort=False)[list(values)].mean()
    return means.reset_index()
