"""The extracts of each run: small frames of its trace for tables and figures, kept beside it.

Reading a trace takes seconds to minutes; reading its extracts takes almost no time. A study's
tables can still be made after its traces have been deleted.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from tracer.analysis.report.epochs import epochs
from tracer.analysis.report.faults import fault_causes
from tracer.analysis.report.page_heat import page_heat
from tracer.analysis.report.perf import counters
from tracer.analysis.report.step_times import step_times
from tracer.analysis.report.tables import (
    records,
    writeback_interval_quantiles,
    writeback_intervals,
    writeback_reasons,
)
from tracer.analysis.report.usage import usage
from tracer.analysis.studies.chains import own_chains
from tracer.analysis.studies.cpu_time import TASK_CLOCK, daemon_cpu_s
from tracer.analysis.studies.extract_columns import kept_kind
from tracer.analysis.studies.facts import Budget, RunFacts, keep, read_run
from tracer.analysis.studies.flush_layer import layer_curve
from tracer.analysis.studies.runs import (
    FACTORS,
    baseload_w,
    checkpoints_of,
    place_of,
    used,
    work_of,
)
from tracer.analysis.views.energy import energy, why_none
from tracer.probes.errors import BadTrace, TracerError
from tracer.store.checked import parsed
from tracer.store.devices import Devices
from tracer.store.manifest import Manifest, duration_s
from tracer.store.trace import Trace, dump

FILE = "extracts.json"
_TRACE = "run.trace"
VERSION = 7
"""Version of the extracts' contents: extracts of another version are made again."""
_OLDEST = 6
"""The oldest version that counts if the trace is gone: epochs without an end lack a row there."""

MOST_BYTES = 128 << 20
"""The most bytes that all extracts of a study may have."""
_MAX_BYTES = 8 << 20
_MOST_ROWS = 500_000
"""The most rows that all extracts of a study may have; one run has some hundreds."""
_MOST_CAUSES = 200


@dataclass(frozen=True)
class Extracts:
    """The extracts of every finished run.

    `frames`: frames by the names of `MAKERS`. Each has the columns id and the factors before its
    own. If the study left workers, batch_size and epochs to the model, they are those that the jobs
    used. If the jobs tell, checkpoints and checkpoint_bytes are those of `checkpoints_of`, and work
    is that of `work_of`. `energy` also has baseload_w, the power of the idle machine (null: not
    recorded).
    `why`: why an extract has no rows. `facts`: one row per run, about its machine and the losses of
    its trace. `left_out`: ids of runs whose extracts cannot be read, and why.
    """

    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    facts: pd.DataFrame = field(default_factory=pd.DataFrame)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def read_extracts(folder: Path, runs: pd.DataFrame) -> Extracts:
    """Returns the extracts of the runs in a study's folder; `runs` comes from `read_runs`."""
    factors = ["id", *(name for name in FACTORS if name in runs)]

    told, kept = Budget(), Budget(MOST_BYTES)

    def read() -> Iterator[tuple[dict[str, Any], dict[str, Any] | str]]:
        left = _MOST_ROWS
        for row in records(runs[factors]):
            place = place_of(folder, str(row["id"]))
            try:
                _check_rows(left)
                facts = read_run(place, told) or RunFacts()
                found = extract(place, facts.get("dev"), kept)
                left -= sum(len(table.get("rows", ())) for table in found["tables"].values())
                _check_rows(left)
                yield row | used(facts) | checkpoints_of(facts) | work_of(facts), found
            except TracerError as error:
                yield row, str(error)

    return gathered(read(), lambda: baseload_w(folder))


def _check_rows(left: int) -> None:
    if left < 0:
        raise BadTrace(f"the study's extracts have more than {_MOST_ROWS} rows")


def gathered(
    runs: Iterable[tuple[dict[str, Any], dict[str, Any] | str]],
    baseload: Callable[[], float | None],
) -> Extracts:
    """Returns the extracts of several runs as one.

    Each run is given as its id and factors, and the result of `of_trace` or the reason why there is
    none. `baseload` returns the power of the idle machine in W; it is called only if a run has
    energy.
    """
    frames: dict[str, list[pd.DataFrame]] = {name: [] for name in MAKERS}
    why: dict[str, Counter[str]] = {name: Counter() for name in MAKERS}
    facts = []
    left_out: list[tuple[str, str]] = []
    for row, found in runs:
        if isinstance(found, str):
            left_out.append((str(row["id"]), found))
            for reasons in why.values():
                reasons[found] += 1
            continue
        facts.append({"id": row["id"], **found["facts"]})
        for name in MAKERS:
            table = found["tables"][name]
            if "why" in table:
                why[name][table["why"]] += 1
                continue
            frame = pd.DataFrame(table["rows"], columns=table["columns"])
            frames[name].append(frame.assign(**row)[[*row, *table["columns"]]])
    whole = {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items() if parts}
    if "energy" in whole:
        whole["energy"]["baseload_w"] = baseload()
    return Extracts(
        whole,
        {
            name: why[name].most_common(1)[0][0] if why[name] else "this study has no runs for it"
            for name, parts in frames.items()
            if not parts
        },
        pd.DataFrame(facts),
        left_out,
    )


def extract(folder: Path, dev: str | None = None, budget: Budget | None = None) -> dict[str, Any]:
    """Returns the extracts of the run in `folder`: `tables` by name, columns and rows or `why`.

    `dev` is the device of the run's own file system; write-backs of other devices do not count.
    Raises TracerError if neither kept extracts nor the trace can be read.
    """
    damage: BadTrace | None = None
    try:
        found = (budget or Budget(MOST_BYTES)).read(folder / FILE, kept_kind(), _MAX_BYTES)
        if found is not None:
            gone = not (folder / _TRACE).exists()
            if found["version"] == VERSION or (gone and _OLDEST <= found["version"] < VERSION):
                return dict(found)
    except BadTrace as error:
        damage = error
    try:
        with Trace(folder / _TRACE) as trace:
            made = of_trace(trace, dev)
    except BadTrace as error:
        raise damage or error from None
    return parsed(kept_kind(), _keep(folder, made))  # type: ignore[no-any-return]


def keep_extracts(folder: Path, dev: str | None, trace: Trace) -> None:
    """Makes the extracts of the run in `folder` from its open trace, if there are none yet.

    Raises nothing if they cannot be made: `extract` reports the reason later.
    """
    if not (folder / FILE).exists():
        with contextlib.suppress(BadTrace):
            _keep(folder, of_trace(trace, dev))


def _keep(folder: Path, made: dict[str, Any]) -> bytes:
    data = dump({"version": VERSION, **made}).encode()
    keep(folder, FILE, data)
    return data


def of_trace(trace: Trace, dev: str | None = None) -> dict[str, Any]:
    """Returns the extracts of a trace, and the facts about its machine, its time and its losses."""
    tables: dict[str, Any] = {}
    for name, make in MAKERS.items():
        try:
            frame = make(trace, dev)
        except BadTrace as error:  # it lacks the table
            tables[name] = {"why": str(error).replace(f"{trace.folder} has", "the runs have")}
            continue
        columns = [str(column) for column in frame.columns]
        rows = [list(row.values()) for row in records(frame)]
        tables[name] = {"columns": columns, "rows": rows} if rows else {"why": _empty(name, trace)}
    return {"facts": _facts(trace, dev), "tables": tables}


def _empty(name: str, trace: Trace) -> str:
    if name == "energy":
        return why_none(trace)
    where = " on their own disks" if name == "call_chains" else ""
    return f"the runs recorded no such events{where}"


def _facts(trace: Trace, dev: str | None) -> dict[str, Any]:
    manifest = trace.manifest
    host, vm = manifest["host"], manifest["vm"]
    devices = Devices(manifest)
    own = [] if dev is None else devices.disks(dev)
    under = [below for one in own for disks in devices.below(one).values() for below in disks]
    named = {one.get("dev"): one for one in manifest["disks"]}
    disks = [named[one] for one in dict.fromkeys([*own, *under]) if one in named]
    return {
        "kernel": manifest["kernel"].get("release"),
        "machine": host.get("machine"),
        "cpu": host.get("cpu"),
        "cpus": host.get("cpus"),
        "memory_bytes": host.get("memory_bytes"),
        "disk": ", ".join(_disk(one) for one in disks),
        "vm": ", ".join(f"{key} {vm[key]}" for key in sorted(vm) if key.startswith("dirty_")),
        "backend": manifest.get("backend"),
        "tool": " ".join(str(manifest.get("tool", {}).get(key, "")) for key in ("name", "version")),
        "duration_s": duration_s(manifest),
        **losses_of(manifest),
    }


LOSSES = ("complete", "lost_events", "loss_windows", "loss_unknown")
"""The facts about the losses of a trace."""


def losses_of(manifest: Manifest) -> dict[str, Any]:
    """Returns the facts of `LOSSES` from the manifest of a trace."""
    loss = manifest["loss"]
    told = (manifest["complete"], loss.get("events"), loss.get("windows"), loss.get("unknown"))
    return dict(zip(LOSSES, told, strict=True))


def _disk(disk: Any) -> str:
    size = f"{disk['bytes'] / 1e9:.0f} GB" if disk.get("bytes") else "size not known"
    return f"{disk.get('name')} ({size}, scheduler {disk.get('scheduler')})"


def _counters(trace: Trace, dev: str | None) -> pd.DataFrame:
    """Returns perf's counts by role: the mean per job, and the daemon's; null: not counted.

    The commands that users give the daemon (target "docker CLI") are neither. The daemon's CPU time
    is that of the samples (`daemon_cpu_s`).
    """
    frame = counters(trace)
    roles = {
        str(one["name"]): "daemon" if one["role"] == "daemon" else "job"
        for one in trace.manifest["targets"]
        if (one["role"] == "daemon") == (one["kind"] == "daemon")
    }
    frame["role"] = frame["target"].map(roles)
    found = (
        frame.dropna(subset=["role"])
        .assign(value=pd.to_numeric(frame["value"]))
        .groupby(["event", "role"], sort=False)["value"]
        .agg(lambda values: values.sum(min_count=len(values)))
        .reset_index()
    )
    jobs = sum(1 for role in roles.values() if role == "job")
    found["value"] = found["value"].astype(float)
    found.loc[found["role"] == "job", "value"] /= max(1, jobs)
    clock = (found["event"] == TASK_CLOCK) & (found["role"] == "daemon")
    seconds = daemon_cpu_s(trace) if clock.any() else None
    found.loc[clock, "value"] = float("nan") if seconds is None else 1e9 * seconds
    return found


def _energy(trace: Trace, dev: str | None) -> pd.DataFrame:
    return energy(trace)


MAKERS: dict[str, Callable[[Trace, str | None], pd.DataFrame]] = {
    "counters": _counters,
    "call_chains": own_chains,
    "fault_causes": lambda trace, dev: fault_causes(trace).head(_MOST_CAUSES),
    "writeback_reasons": writeback_reasons,
    "writeback_intervals": writeback_intervals,
    "interval_quantiles": writeback_interval_quantiles,
    "page_heat": page_heat,
    "step_times": lambda trace, dev: step_times(trace),
    "epochs": epochs,
    "usage": lambda trace, dev: usage(trace),
    "energy": _energy,
    "layer_curve": layer_curve,
}
"""The functions that make each extract from a trace, by name."""
