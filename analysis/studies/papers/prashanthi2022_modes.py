"""Prashanthi et al. 2022: the energy of an epoch, the parts of its time by power mode, and limits.

Without a reader of power there is no energy. Without cpufreq there is no frequency: the modes of
such a machine are numbers of cores, and quotas of their time.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable
from typing import Any

import pandas as pd

from tracer.analysis.studies.papers.prashanthi2022 import PERCENTAGES, later, mode_times
from tracer.analysis.studies.power_modes import why_no_energy
from tracer.analysis.studies.runs import DEFAULT_MODE, SETTINGS, UNLIMITED, is_usual
from tracer.analysis.studies.spread import over_runs, settings

_TIMES = ["stall_s", "compute_s", "overhead_s", "epoch_s"]
_BY = ("workers", "medium", "power_mode")


def parts_by_mode(epochs: pd.DataFrame, where: str = "host") -> pd.DataFrame:
    """Returns Figure 9a: the parts of an epoch's time by power mode, after the first epoch.

    A run is left out if no other run differs from it in the power mode only.

    Columns: model, settings, power_mode, stall_s, compute_s, overhead_s, epoch_s (means of a run's
    epochs; each with _low, _high over runs), runs.
    """
    own = _of_host(epochs, where, "power_mode")
    own = own[later(own)]
    own = own[own.groupby(["model", "settings"])["power_mode"].transform("nunique") > 1]
    keys = ["model", "settings", "power_mode"]
    return _over_runs(own, keys, _TIMES)


def stall_by_memory(epochs: pd.DataFrame, where: str = "host") -> pd.DataFrame:
    """Returns section 5.1.1: the fetch stall of runs whose memory is limited, and of those alike.

    Columns: model, settings, memory (null: not limited), epoch (first or later), stall_s, read_mb
    (read from the run's own disk in one epoch), hit_percent (of the pages of files that the job
    used, those in the page cache), again_percent (those read again after reclaim had taken them out
    of it; null: not recorded), each with _low, _high; runs.
    """
    if "memory" not in epochs:
        raise KeyError("memory")
    own = _of_host(epochs, where, "memory")
    limited = own["memory"].notna().groupby([own["model"], own["settings"]]).transform("any")
    own = own[limited]
    own["epoch"] = later(own).map({False: "first", True: "later"})
    own["read_mb"] = pd.to_numeric(own["read_bytes"]) / 1e6
    values = ["stall_s", "read_mb", "hit_percent", "again_percent"]
    return _over_runs(own, ["model", "settings", "memory", "epoch"], values)


def epoch_energy(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns Figures 2c, 3c, 5b, 9b and 11: energy and mean power of an epoch after the first.

    Runs with limits are left out, except for those with a power mode.

    Columns: model, settings (other factors that differ), workers, medium, power_mode, energy_j,
    mean_w, baseload_percent (of the energy of the run: what the idle machine would have used), each
    with _low, _high; runs.
    """
    own = _of_host(runs, "host", "power_mode", by=_BY)
    energy_j = _column(own, "epoch_energy_j")
    own = own.assign(
        energy_j=energy_j,
        mean_w=energy_j / _column(own, "later_epoch_s"),
        baseload_percent=100 * _column(own, "baseload_share"),
        **{name: own.get(name) for name in _BY},
    )
    measured = own[own["energy_j"].notna()]
    keys = ["model", "settings", *_BY]
    return over_runs(measured, keys, ["energy_j", "mean_w", "baseload_percent"])


def why_no_epoch_energy(runs: pd.DataFrame) -> str:
    """Returns the reason why no run has the energy of an epoch."""
    return f"not measured: {why_no_energy(runs)}" if "later_epoch_s" in runs else ""


def by_one_setting(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns Figures 13 to 16: pairs of power modes that differ in one setting.

    Columns: job, setting (cores, cpu_mhz, cpu_quota, gpu_mhz, memory_mhz), low and high (its two
    neighbouring values), others (the other settings), epoch_low_s and epoch_high_s, change_percent
    (of the time, from low to high), energy_change_percent (null without energy).
    """
    modes = mode_times(runs)
    known = [name for name in SETTINGS if name in modes]
    rows = []
    for setting in known:
        others = [name for name in known if name != setting]
        for keys, own in modes.groupby(["job", *others], dropna=False, sort=True):
            ordered = own[own[setting].notna()].sort_values(setting).to_dict("records")
            for low, high in itertools.pairwise(ordered):
                if low[setting] == high[setting]:
                    continue  # two modes of the same settings, such as the default and its name
                rows.append(
                    {
                        "job": keys[0],
                        "setting": setting,
                        "low": low[setting],
                        "high": high[setting],
                        "others": _said(low, others),
                        "epoch_low_s": low["epoch_s"],
                        "epoch_high_s": high["epoch_s"],
                        "change_percent": 100 * (high["epoch_s"] / low["epoch_s"] - 1),
                        "energy_change_percent": _change(low["energy_j"], high["energy_j"]),
                    }
                )
    return pd.DataFrame(rows, columns=_ONE_SETTING)


_ONE_SETTING = [
    "job", "setting", "low", "high", "others", "epoch_low_s", "epoch_high_s", "change_percent",
    "energy_change_percent",
]  # fmt: skip


def no_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns an empty table, for a figure that no study of ours can measure."""
    return runs.iloc[:0, :0]


def why_no_governor(_: pd.DataFrame) -> str:
    """Returns the reason why Figure 6 is not measured."""
    return (
        "not measured: no study switches the governor of the frequencies (DVFS); that needs cpufreq"
        " and a reader of power, which most virtual machines lack"
    )


def why_no_idle_states(_: pd.DataFrame) -> str:
    """Returns the reason why Figure 7 is not measured."""
    return (
        "not measured: the idle states are without our recording, so they need a meter at the"
        " socket; `tracer record --baseload` gives the idle machine's power with the recording"
    )


def _of_host(epochs: pd.DataFrame, where: str, but: str, by: Collection[str] = ()) -> pd.DataFrame:
    """Returns trainings at one place without limits, but for one of them.

    Adds the column settings, which leaves out this limit and the factors `by`.
    """
    own = epochs[(epochs["mode"] == "train") & (epochs["where"] == where)]
    if "power_mode" not in own:
        own = own.assign(power_mode=DEFAULT_MODE)
    for name in UNLIMITED:
        if name in own and name != but:
            own = own[is_usual(own[name], name)]
    left_out = [but, *by, *(SETTINGS if but == "power_mode" else ())]
    return own.assign(settings=settings(own, left_out))


def _over_runs(own: pd.DataFrame, keys: list[str], values: list[str]) -> pd.DataFrame:
    """Returns means over runs of each run's mean, because epochs of one run are not repeats."""
    numeric = own.assign(**{value: pd.to_numeric(own[value]) for value in values})
    means = numeric.groupby([*keys, "id"], dropna=False, sort=False)[values].mean().reset_index()
    return over_runs(means, keys, values, PERCENTAGES).sort_values(keys, ignore_index=True)


def _said(mode: dict[Hashable, Any], names: list[str]) -> str:
    return ", ".join(f"{name} {mode[name]:g}" for name in names if pd.notna(mode[name]))


def _column(frame: pd.DataFrame, name: str) -> pd.Series[float]:
    if name in frame:
        return pd.to_numeric(frame[name])
    return pd.Series(float("nan"), frame.index)


def _change(low: float | None, high: float | None) -> float | None:
    if low is None or high is None or pd.isna(low) or pd.isna(high) or not low:
        return None
    return 100 * (high / low - 1)
