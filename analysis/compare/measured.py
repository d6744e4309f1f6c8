"""Measures of one trace, for the comparison of traces.

If several jobs run at once, measures of the jobs are per job. If the whole machine was recorded, or
the trace names no target, all programs count as one job. Measures of events without a known target
are those of the whole machine, and their topic says so. A topic that a trace cannot give is
missing, and `whys` gives the reason. A call that was never made is 0, and so are a write-back
reason and a request that never occurred, if these events were recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from tracer.analysis.compare.evidence import lacking, of_reason, of_wait
from tracer.analysis.compare.known_events import require_event
from tracer.analysis.findings.finding import ELSEWHERE
from tracer.analysis.findings.window import of_jobs
from tracer.analysis.report.block import operation_times
from tracer.analysis.report.calls import syscalls_of_jobs
from tracer.analysis.report.histogram import buckets, spread
from tracer.analysis.report.step_times import (
    STEP_TIMES,
    WHOLE,
    step_processes,
    step_quantiles,
)
from tracer.analysis.report.tables import records, writeback_reasons
from tracer.analysis.report.waits import path_times
from tracer.analysis.studies.measures import of_trace
from tracer.analysis.views.calls_by_kind import SYNC
from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.disks.volumes import on_one_level, requests_on_one_level
from tracer.analysis.views.threads import of_everybody, whole_machine
from tracer.analysis.views.writing.flushes import flushes
from tracer.analysis.views.writing.whose import MINE, everybody_because
from tracer.probes.errors import BadTrace
from tracer.store.manifest import duration_s, with_all_events
from tracer.store.trace import Trace

TARGETS_PAGES = "flushed pages"
"""Topic of the pages that targets dirtied, alone or with others."""
MACHINES_PAGES = "flushed pages of the machine"
"""Topic of the pages of all writers except the recorder."""
WRITEBACKS = "write-backs of the machine"
REQUESTS = "requests of the machine"
LARGEST = {"calls": 20}
"""Number of names that lead in a trace, by topic; other topics have no limit."""
_SPREAD = ("p50", "p99")
"""Quantiles of times that are measures in addition to the mean."""
_MOST_NAMED = 1000
"""Most rows of a topic that counts by name: a trace may have any number of names."""


class Row(NamedTuple):
    """A measure of a trace.

    `weight` (0 to 1): the share of the job's time that it is about, as far as that is known.
    `absent`: its value in a trace that has the whole topic but not this measure. `leading`: it is
    one of the largest of its topic; a comparison shows the measures that lead in one of its traces.
    `evidence`: tables that tell this measure from others of its topic.
    """

    topic: str
    measure: str
    unit: str
    value: float | None
    weight: float
    absent: float | None = None
    leading: bool = True
    evidence: frozenset[str] = frozenset()


COLUMNS = list(Row._fields)


@dataclass(frozen=True)
class Measured:
    """The measures of a trace.

    `frame`: one row per measure, with the columns of `Row`. `whys`: topics that were not recorded,
    with the reason; other topics without a row have nothing to measure. `cut`: topics with too many
    names, of which the smallest were left out. `notes`: clauses on whose measures these are.
    `lacks`: tables of evidence that the trace lacks. `length_s`: the length of the recording; None:
    not known.
    """

    frame: pd.DataFrame
    whys: dict[str, str]
    cut: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    length_s: float | None = None
    lacks: frozenset[str] = frozenset()


def measured(trace: Trace, dev: str | None = None) -> Measured:
    """Returns all measures of a trace. Writes count on the device `dev`; None: on all devices."""
    rows: list[Row] = []
    whys: dict[str, str] = {}
    cut = set()
    for topic, make in _MAKERS.items():
        try:
            made = [row for row in make(trace, dev) if row.value is None or pd.notna(row.value)]
        except BadTrace as error:  # it lacks the table
            whys[topic] = error.what.replace(f"{trace.folder} has", "a trace has")
            continue
        named = [row for row in made if row.absent is not None]
        if len(named) > _MOST_NAMED:
            cut.add(topic)
            made = [row for row in made if row.absent is None] + named[:_MOST_NAMED]
        rows += made
    frame = pd.DataFrame(rows, columns=COLUMNS)
    length_s = duration_s(trace.manifest)
    return Measured(frame, whys, frozenset(cut), tuple(_notes(trace)), length_s, lacking(trace))


def _notes(trace: Trace) -> list[str]:
    said = []
    if of_everybody(trace):
        machine = whole_machine(trace)
        why = "the whole machine was recorded" if machine else "a trace names no target"
        said.append(f"all programs count as one job, since {why}")
    if "phases" in trace.tables and step_processes(trace) > _jobs(trace):
        said.append("stages and minibatches are means over several processes of a job")
    return said


def _times(topic: str, label: str, times: dict[str, Any], weight: float) -> list[Row]:
    """Returns the mean, the median and the 99th percentile of a time as measures."""
    mean = Row(topic, label, "ms", times["mean_ms"], weight)
    return [mean, *(Row(topic, f"{label}, {q}", "ms", times[f"{q}_ms"], weight) for q in _SPREAD)]


def _jobs(trace: Trace) -> int:
    """Returns the number of jobs that measures are divided by."""
    if of_everybody(trace):
        return 1
    return max(1, sum(1 for one in trace.manifest["targets"] if one["role"] != "daemon"))


def _length_s(trace: Trace) -> float:
    """Returns the length of the recording in s, for events of the whole machine."""
    clock = trace.manifest["clock"]
    return _positive_s(trace, clock["start_ns"], clock["end_ns"])


def _of_targets_s(trace: Trace) -> float:
    """Returns the length in s of the time in which the events of targets were recorded."""
    return _positive_s(trace, *with_all_events(trace.manifest))


def _positive_s(trace: Trace, begin: int, end: int | None) -> float:
    if end is None or end <= begin:
        raise BadTrace(f"{trace.folder} has no duration", "record again")
    return (end - begin) / 1e9


def _steps(trace: Trace, dev: str | None) -> list[Row]:
    parts = STEP_TIMES.parts(trace)
    frame = STEP_TIMES.finish(parts)
    totals = {one["stage"]: one["mean_ms"] for one in records(frame) if one["part"] == WHOLE}
    rows = []
    for one in records(frame):
        total = totals.get(one["stage"], 0.0)
        weight = one["mean_ms"] / total if total > 0 else 0.0
        label = f"{one['stage'] or 'step'}: {one['part']}"
        rows.append(Row("minibatch", label, "ms", one["mean_ms"], weight))
    for one in records(step_quantiles(parts, (0.5, 0.95))):
        for share in ("p50", "p95"):
            label = f"{one['stage'] or 'step'}: {WHOLE}, {share}"
            rows.append(Row("minibatch", label, "ms", one[f"{share}_ms"], 1.0))
    return rows


def _stages(trace: Trace, dev: str | None) -> list[Row]:
    trace.require("phases")
    length = _length_s(trace)
    begin, end = trace.manifest["clock"]["start_ns"], trace.manifest["clock"]["end_ns"]
    # A stage has its whole length, but only its recorded part is a share of the recording.
    frame = trace.sql(
        f"""
        SELECT name, avg(s) AS s, avg(recorded_s) AS recorded_s FROM (
            SELECT name, pid, sum("end" - start) / 1e9 AS s,
                sum(greatest(0, least("end", {end}) - greatest(start, {begin}))) / 1e9 AS recorded_s
            FROM phases
            WHERE "end" > start AND name IN ('data_load', 'model_load', 'train', 'inference')
            GROUP BY ALL
        ) GROUP BY name ORDER BY name
        """
    )
    rows = [
        Row("stages", str(name), "s", float(s), min(1.0, float(recorded) / length))
        for name, s, recorded in zip(frame["name"], frame["s"], frame["recorded_s"], strict=True)
    ]
    epoch_s = of_trace(trace, dev, ("epoch_s",)).get("epoch_s")
    if isinstance(epoch_s, float):
        rows.append(Row("stages", "an epoch", "s", epoch_s, 1.0))
    return rows


def _calls(trace: Trace, dev: str | None) -> list[Row]:
    frame = syscalls_of_jobs(trace)
    length, jobs = _of_targets_s(trace), _jobs(trace)
    total_s = float(frame["total_s"].sum()) / jobs
    rows = [
        Row("calls", "all", "calls/s", float(frame["calls"].sum()) / jobs / length, ELSEWHERE),
        Row("calls", "time in all", "s", total_s, ELSEWHERE),
    ]
    for number, one in enumerate(records(frame)):
        leading = number < LARGEST["calls"]
        seconds = (one["total_s"] or 0.0) / jobs
        weight = ELSEWHERE * min(1.0, seconds / length)
        rows.append(Row("calls", f"time in {one['name']}", "s", seconds, weight, 0.0, leading))
        per_s = one["calls"] / jobs / length
        rows.append(Row("calls", str(one["name"]), "calls/s", per_s, weight, 0.0, leading))
    return rows


def _faults(trace: Trace, dev: str | None) -> list[Row]:
    trace.require("page_faults", "processes")
    frame = trace.sql(
        "SELECT count(*) AS n, count(*) FILTER (kind = 'major') AS major,"
        " coalesce(bool_or(kind != 'unknown'), count(*) = 0) AS told"
        f" FROM {of_jobs(trace, 'page_faults')}"
    ).iloc[0]
    jobs = _jobs(trace)
    rows = [Row("page faults", "all", "faults", float(frame["n"]) / jobs, ELSEWHERE)]
    if frame["told"]:
        rows.append(Row("page faults", "major", "faults", float(frame["major"]) / jobs, ELSEWHERE))
    return rows


def _writebacks(trace: Trace, dev: str | None) -> list[Row]:
    require_event(trace, "writeback", "start")
    frame = writeback_reasons(trace, dev)
    minutes = _length_s(trace) / 60
    total = float(frame["writebacks"].sum())
    rows = [Row(WRITEBACKS, "all", "1/min", total / minutes, ELSEWHERE)]
    for reason, count in zip(frame["reason"], frame["writebacks"], strict=True):
        weight = ELSEWHERE * float(count) / total
        rows.append(Row(WRITEBACKS, str(reason), "1/min", float(count) / minutes, weight, 0.0))
    return rows


def _flushed(topic: str, whose: str) -> Callable[[Trace, str | None], list[Row]]:
    def make(trace: Trace, dev: str | None) -> list[Row]:
        if topic == TARGETS_PAGES and (why := everybody_because(trace, all_writers=False)):
            raise BadTrace(f"the targets' pages are not known: {why}")
        require_event(trace, "block", "bio_queue")
        view = flushes(trace)
        frame = trace.sql(
            f"SELECT reason, sum(pages)::DOUBLE AS pages FROM {view} WHERE {whose}"
            f" AND {on_one_level(trace, dev)} GROUP BY reason ORDER BY pages DESC, reason"
        )
        total = float(frame["pages"].sum())
        jobs = _jobs(trace) if topic == TARGETS_PAGES else 1
        rows = [Row(topic, "all", "pages", total / jobs, ELSEWHERE)]
        for reason, pages in zip(frame["reason"], frame["pages"], strict=True):
            weight = ELSEWHERE * float(pages) / total if total else 0.0
            row = Row(topic, str(reason), "pages", float(pages) / jobs, weight, 0.0)
            rows.append(row._replace(evidence=of_reason(str(reason))))
        return rows

    return make


def _requests(trace: Trace, dev: str | None) -> list[Row]:
    require_event(trace, "block", "issue")
    view = requests(trace)
    frame = trace.sql(
        f"""
        SELECT operation, count(*)::DOUBLE AS n
        FROM {view} WHERE {requests_on_one_level(trace, dev)} GROUP BY operation ORDER BY operation
        """
    )
    length = _length_s(trace)
    total = float(frame["n"].sum())
    weights = {one["operation"]: ELSEWHERE * one["n"] / total for one in records(frame)}
    rows = [
        Row(
            REQUESTS,
            str(one["operation"]),
            "1/s",
            one["n"] / length,
            weights[one["operation"]],
            0.0,
        )
        for one in records(frame)
    ]
    for one in records(operation_times(trace, dev)):
        label = f"{one['operation']}: {one['part']}"
        rows += _times(REQUESTS, label, one, weights[one["operation"]])
    return rows


def _stalls(trace: Trace, dev: str | None) -> list[Row]:
    trace.require("processes")
    require_event(trace, "dirty", "balance_dirty_pages")
    length, jobs = _of_targets_s(trace), _jobs(trace)
    frame = trace.sql(
        f"SELECT coalesce(sum(pause_ns), 0) / 1e9 AS s FROM {of_jobs(trace, 'dirty')}"
        " WHERE event = 'balance_dirty_pages' AND pause_ns > 0"
    )
    seconds = float(frame["s"].iloc[0]) / jobs
    return [Row("stalls", "write-back stalls", "s", seconds, min(1.0, seconds / length))]


def _syncs(trace: Trace, dev: str | None) -> list[Row]:
    trace.require("syscalls", "processes")
    length, jobs = _of_targets_s(trace), _jobs(trace)
    parts = trace.sql(
        f"SELECT 'call' AS what, {buckets('dur_ns')} FROM {of_jobs(trace, 'syscalls')}"
        f" WHERE name IN {SYNC} AND dur_ns >= 0 GROUP BY ALL"
    )
    seconds = float(parts["sum_ns"].sum()) / 1e9 / jobs
    weight = min(1.0, seconds / length)
    rows = [Row("syncs", "fsync and the like", "s", seconds, weight)]
    for times in records(
        spread(parts, ["what"])[["mean", "p50", "p99"]].div(1e6).add_suffix("_ms")
    ):
        rows += _times("syncs", "a call", times, weight)
    return rows


def _path(trace: Trace, dev: str | None) -> list[Row]:
    trace.require("phases", "off_cpu", "processes")
    frame, steps = path_times(trace)
    if not steps:
        raise BadTrace(
            f"{trace.folder} has no step that began and ended in the recording",
            "record a training from its start",
        )
    total = frame["ns"].sum()
    return [
        Row(
            "critical path",
            f"{one['kind']}: {one['whose']}",
            "ms a step",
            one["ns"] / steps / 1e6,
            one["ns"] / total,
            0.0,
            evidence=of_wait(str(one["kind"])),
        )
        for one in records(frame)
    ]


_OF_STUDIES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "CPU": (
        ("cpu_s", "CPU time of a job", "s"),
        ("cpu_use_percent", "median use of the machine's CPUs", "%"),
        ("steal_percent", "share of the CPUs' work time that the host took (steal)", "%"),
    ),
    "GPU": (("gpu_use_percent", "median use of the GPU", "%"),),
    "memory": (("memory_used_bytes", "most memory of the machine in use", "bytes"),),
    "energy": (("energy_j", "energy", "J"),),
}
"""Topics whose measures come from studies: name in studies, name here, and unit."""


def _of_studies(topic: str) -> Callable[[Trace, str | None], list[Row]]:
    wanted = _OF_STUDIES[topic]

    def make(trace: Trace, dev: str | None) -> list[Row]:
        found = of_trace(trace, dev, [name for name, _, _ in wanted])
        why = next((str(v) for k, v in found.items() if k.endswith("_why") and v), None)
        rows = [
            Row(topic, label, unit, value, ELSEWHERE)
            for name, label, unit in wanted
            if isinstance(value := found.get(name), float)
        ]
        if not rows and why is not None:
            raise BadTrace(why)
        return rows

    return make


_MAKERS: dict[str, Callable[[Trace, str | None], list[Row]]] = {
    "minibatch": _steps,
    "stages": _stages,
    "critical path": _path,
    "calls": _calls,
    "page faults": _faults,
    WRITEBACKS: _writebacks,
    TARGETS_PAGES: _flushed(TARGETS_PAGES, f"NOT own AND whose IN {MINE}"),
    MACHINES_PAGES: _flushed(MACHINES_PAGES, "NOT own"),
    REQUESTS: _requests,
    "stalls": _stalls,
    "syncs": _syncs,
    **{topic: _of_studies(topic) for topic in _OF_STUDIES},
}
