"""The measures of one run: the numbers that the claims are about, each from the run's trace.

If several containers run at once, measures of the jobs are per container.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, with_config
from typing_extensions import TypedDict

from tracer.analysis.findings.processors import steal_share
from tracer.analysis.report.calls import syscalls_of_jobs
from tracer.analysis.report.faults import fault_causes
from tracer.analysis.report.step_times import step_times
from tracer.analysis.report.tables import writeback_intervals, writeback_reasons
from tracer.analysis.report.usage import usage
from tracer.analysis.studies.chains import MEASURES as MEASURES_OF_CHAINS
from tracer.analysis.studies.chains import chain_measures
from tracer.analysis.studies.cpu_time import MEASURES as MEASURES_OF_CPU
from tracer.analysis.studies.cpu_time import cpu_measures
from tracer.analysis.studies.epoch_measures import epoch_energy, epoch_measures
from tracer.analysis.studies.facts import Budget, Long, Number, Text, keep
from tracer.analysis.studies.fault_functions import MEASURES as MEASURES_OF_CAUSES
from tracer.analysis.studies.fault_functions import cause_measures, named_causes
from tracer.analysis.studies.flush_layer import layer_curve, most_saved, run_writebacks
from tracer.analysis.views.energy import all_of, energy, why_none
from tracer.analysis.views.faults import FAULTS
from tracer.analysis.views.threads import make_threads, owns
from tracer.probes.errors import BadTrace
from tracer.probes.events.block import SECTOR_BYTES
from tracer.store.checked import STRICT
from tracer.store.trace import Trace

FILE = "measures.json"
VERSION = 11
"""Version of the measures: measures of another version are computed again."""

_ANEW = {10: ("top_cause_percent", "top_causes_percent"), 11: ("memory_median_bytes",)}
"""Measures that are computed in another way since a version. If a run's trace is gone, its kept
measures of the versions from 9 on count, without those that changed since."""

_MAX_BYTES = 1 << 18
_TOP = 10
_HOTTEST = 0.01

Value = float | str | None


@with_config(STRICT)
class Kept(TypedDict):
    """measures.json."""

    version: int
    measures: Annotated[dict[Text, Number | Long | None], Field(max_length=1000)]


def measure(
    folder: Path,
    dev: str | None = None,
    budget: Budget | None = None,
    also: Callable[[Trace], None] | None = None,
) -> dict[str, Value]:
    """Returns the measures of the run in `folder` and keeps them beside its trace.

    A measure is None if it was not measured. One whose name ends in _why is a text: the reason why
    another measure is missing.

    `dev` is the device of the run's own file system; write-backs of other devices do not count.
    `also` receives the trace if it has to be opened, so that shared results are computed once.
    """
    damage: BadTrace | None = None
    earlier: dict[str, Value] | None = None
    try:
        found: Kept | None = (budget or Budget()).read(folder / FILE, Kept, _MAX_BYTES)
        if found is not None and found["version"] == VERSION:
            return _known(found["measures"])
        if found is not None and min(_ANEW) - 1 <= found["version"] < VERSION:
            changed = itertools.chain(*(_ANEW[n] for n in _ANEW if n > found["version"]))
            earlier = _known(found["measures"]) | dict.fromkeys(changed)
    except BadTrace as error:
        damage = error
    if earlier is not None and not (folder / "run.trace").exists():
        return earlier
    try:
        with Trace(folder / "run.trace") as trace:
            measures = of_trace(trace, dev)
            if also is not None:
                also(trace)
    except BadTrace as error:
        raise damage or error from None
    text = json.dumps({"version": VERSION, "measures": measures}, allow_nan=False)
    keep(folder, FILE, text.encode())
    return measures


def _known(told: dict[str, Value]) -> dict[str, Value]:
    """Returns the measures with a known name. Raises BadTrace if one is of another kind."""
    found: dict[str, Value] = {}
    for name in itertools.chain.from_iterable(_MAKERS):
        value = told.get(name)
        if value is not None and isinstance(value, str) != name.endswith("_why"):
            raise BadTrace(f"{FILE} cannot be used: {name} is of another kind", "remove the file")
        found[name] = value
    return found


def of_trace(
    trace: Trace, dev: str | None = None, only: Collection[str] | None = None
) -> dict[str, Value]:
    """Returns the measures of a trace, by name; writes count on `dev`, or on all devices.

    `only`: the measures wanted; others computed with them are returned, too. None: all.
    """
    found: dict[str, Value] = {}
    for names, make in _MAKERS.items():
        if only is not None and not set(names) & set(only):
            continue
        try:
            values = make(trace, dev)
        except BadTrace:  # it lacks the table
            values = {}
        found |= {name: _finite(values.get(name)) for name in names}
    return found


def _finite(value: Any) -> Value:
    if isinstance(value, str):
        return value
    number = None if value is None or pd.isna(value) else float(value)
    return number if number is not None and abs(number) != float("inf") else None


def _jobs(trace: Trace) -> list[str]:
    """Returns the names of the targets that are jobs, not the daemon."""
    return [str(t["name"]) for t in trace.manifest["targets"] if t["role"] != "daemon"]


def _daemons(trace: Trace) -> list[str]:
    """Returns the names of dockerd's targets, without the commands that users give it."""
    return [str(t["name"]) for t in trace.manifest["targets"] if t["kind"] == "daemon"]


def _faults(trace: Trace, dev: str | None) -> dict[str, Any]:
    trace.require("page_faults", "processes")
    make_threads(trace)
    frame = trace.sql(
        f"""
        SELECT target, count(*) AS faults,
            if(bool_or(kind != 'unknown'), count(*) FILTER (kind = 'major'), NULL) AS major
        FROM page_faults f JOIN threads t ON {owns("t", "f")}
        WHERE target IS NOT NULL GROUP BY target
        """
    ).set_index("target")
    jobs = [name for name in _jobs(trace) if name in frame.index]
    daemons = [name for name in _daemons(trace) if name in frame.index]
    of_jobs = frame.loc[jobs].sum()
    told = bool(frame.loc[jobs, "major"].notna().all())
    found = {
        "faults": of_jobs["faults"] / len(jobs) if jobs else None,
        "major_faults": of_jobs["major"] / len(jobs) if jobs and told else None,
    }
    if _daemons(trace):
        share = frame.loc[daemons, "faults"].sum() / of_jobs["faults"] if jobs else None
        found["daemon_fault_share"] = share
    return found


def _stage_faults(trace: Trace, dev: str | None) -> dict[str, Any]:
    """Returns the faults within the jobs' stages: the same work on the host and in a container.

    The faults of a container's start, and of a program's own start, lie in no stage.
    """
    trace.require("page_faults", "processes", "phases")
    view = FAULTS.make(trace)
    jobs = _jobs(trace)
    marks = ", ".join("?" * len(jobs))
    frame = trace.sql(
        f"SELECT count(*) AS n FROM {view} WHERE stage IS NOT NULL AND target IN ({marks})", *jobs
    )
    return {"stage_faults": frame["n"].iloc[0] / len(jobs)} if jobs else {}


def _cpu(trace: Trace, dev: str | None) -> dict[str, Any]:
    return cpu_measures(trace)


def _memory(trace: Trace, dev: str | None) -> dict[str, Any]:
    trace.require("samples")
    frame = trace.sql(
        "SELECT max(value) AS bytes FROM samples WHERE name = 'memory_used' AND target IS NULL"
    )
    return {"memory_used_bytes": frame["bytes"].iloc[0]}


def _use(trace: Trace, dev: str | None) -> dict[str, Any]:
    """Returns medians of the samples during training or inference; CPU use is of all CPUs.

    Steal is its share of the time in which CPUs had work.
    """
    frame = usage(trace)
    medians = frame[frame["share"] == 0.5].groupby("name")["value"].mean()
    missing = trace.manifest.get("samples", {}).get("not_available", {})
    readers = [f"{name}: {missing[name]}" for name in ("gpu", "jetson") if name in missing]
    gpu = medians.get("gpu_use", medians.get("jetson_gpu_use"))
    steal = steal_share(trace)
    return {
        "cpu_use_percent": medians.get("cpu_use"),
        "steal_percent": steal.value if steal else None,
        "gpu_use_percent": gpu,
        "memory_median_bytes": medians.get("memory_used"),
        "gpu_use_percent_why": "; ".join(readers) if gpu is None and readers else None,
    }


def _energy(trace: Trace, dev: str | None) -> dict[str, Any]:
    """Returns the energy of all sources that are not part of another; null without a source."""
    found = all_of(energy(trace))
    if found is None:
        return {"energy_j_why": why_none(trace)}
    return {"energy_j": found["energy_j"], "energy_s": found["duration_s"]}


def _calls(trace: Trace, dev: str | None) -> dict[str, Any]:
    return {"syscalls": syscalls_of_jobs(trace)["calls"].sum() / max(1, len(_jobs(trace)))}


def _intervals(trace: Trace, dev: str | None) -> dict[str, Any]:
    """Returns the intervals between wakes of the flusher, and between its passes, of any reason."""
    frame = writeback_intervals(trace, dev)
    every = frame[frame["reason"] == "all"].set_index("between")
    return {
        "writeback_interval_s": every["mean_s"].get("wakes"),
        "writeback_interval_std_s": every["std_s"].get("wakes"),
        "pass_interval_s": every["mean_s"].get("passes"),
        "pass_interval_std_s": every["std_s"].get("passes"),
        "writeback_timer_s": trace.manifest["vm"].get("dirty_writeback_centisecs", 0) / 100 or None,
    }


def _reasons(trace: Trace, dev: str | None) -> dict[str, Any]:
    ratios = writeback_reasons(trace, dev).set_index("reason")["ratio"]
    if not len(ratios):
        return {}
    reasons = ("periodic", "background", "sync")
    return {f"writebacks_{reason}": ratios.get(reason, 0.0) for reason in reasons}


def _writebacks(trace: Trace, dev: str | None) -> dict[str, Any]:
    return {"writebacks": writeback_reasons(trace, dev)["writebacks"].sum()}


def _written(trace: Trace, dev: str | None) -> dict[str, Any]:
    bios = run_writebacks(trace, dev).bios
    sectors = 0 if bios is None else int(bios.sectors.sum())
    return {"written_mib": sectors * SECTOR_BYTES / (1 << 20)}


def _causes(trace: Trace, dev: str | None) -> dict[str, Any]:
    shares = named_causes(fault_causes(trace))["percent"]
    if not len(shares):
        return {}
    return {"top_cause_percent": shares.max(), "top_causes_percent": shares.head(_TOP).sum()}


def _paper_causes(trace: Trace, dev: str | None) -> dict[str, Any]:
    return dict(cause_measures(trace))


def _steps(trace: Trace, dev: str | None) -> dict[str, Any]:
    frame = step_times(trace)
    found = {}
    for stage in ("train", "inference"):
        parts = frame[frame["stage"] == stage].set_index("part")
        found[f"{stage}_compute_mean_ms"] = parts["mean_ms"].get("compute")
        own = parts["p50_ms"]
        for part in ("end to end", "fetch stall", "compute", "forward", "backward", "optimizer"):
            found[f"{stage}_{part.replace(' ', '_')}_ms"] = own.get(part)
    training = frame[frame["stage"] == "train"].set_index("part")
    return found | {
        "train_step_mean_ms": training["mean_ms"].get("end to end"),
        "train_stall_share": training["share"].get("fetch stall"),
    }


def _hot_pages(trace: Trace, dev: str | None) -> dict[str, Any]:
    """Returns the hottest pages' share of write-backs in the last quarter minus the first."""
    accesses = run_writebacks(trace, dev)
    quarter = len(accesses) // 4
    if quarter == 0:
        return {}
    first, last = (_hot_share(part) for part in (accesses.page[:quarter], accesses.page[-quarter:]))
    return {"hot_share_growth": last - first}


def _hot_share(pages: NDArray[np.int32]) -> float:
    """Returns the share of write-backs on the 1 % of pages written most (at least one page)."""
    counts = np.sort(np.unique(pages, return_counts=True)[1])[::-1]
    return float(counts[: max(1, round(len(counts) * _HOTTEST))].sum() / len(pages))


def _layer(trace: Trace, dev: str | None) -> dict[str, Any]:
    return {"improvement": most_saved(layer_curve(trace, dev))}


_Makers = dict[tuple[str, ...], Callable[[Trace, str | None], dict[str, Any]]]

_MAKERS: _Makers = {
    ("faults", "major_faults", "daemon_fault_share"): _faults,
    ("stage_faults",): _stage_faults,
    MEASURES_OF_CPU: _cpu,
    ("memory_used_bytes",): _memory,
    (
        *("cpu_use_percent", "steal_percent", "gpu_use_percent", "gpu_use_percent_why"),
        "memory_median_bytes",
    ): _use,
    ("energy_j", "energy_s", "energy_j_why"): _energy,
    ("syscalls",): _calls,
    (
        *("writeback_interval_s", "writeback_interval_std_s"),
        *("pass_interval_s", "pass_interval_std_s", "writeback_timer_s"),
    ): _intervals,
    ("writebacks_periodic", "writebacks_background", "writebacks_sync"): _reasons,
    ("writebacks",): _writebacks,
    ("written_mib",): _written,
    ("top_cause_percent", "top_causes_percent"): _causes,
    MEASURES_OF_CAUSES: _paper_causes,
    MEASURES_OF_CHAINS: chain_measures,
    (
        *(
            f"{stage}_{part}_ms"
            for stage in ("train", "inference")
            for part in (
                "end_to_end",
                "fetch_stall",
                "compute",
                "compute_mean",
                "forward",
                "backward",
                "optimizer",
            )
        ),
        *("train_step_mean_ms", "train_stall_share"),
    ): _steps,
    (
        "stall_first_epoch_ms",
        "stall_later_epochs_ms",
        "epoch_s",
        "later_epoch_s",
        "epoch_spread",
    ): epoch_measures,
    ("epoch_energy_j", "epoch_energy_j_why"): epoch_energy,
    ("hot_share_growth",): _hot_pages,
    ("improvement",): _layer,
}
