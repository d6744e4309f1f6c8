"""Lanes of samples of the machine and of each target, by topic and unit."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from tracer.analysis.timeline.axis import Axis
from tracer.analysis.timeline.lane import MOST_LINES, Kind, Lane
from tracer.probes.sampler.catalogue import COUNTERS
from tracer.store.manifest import page_bytes
from tracer.store.trace import Trace

_MIB = 1 << 20


@dataclass(frozen=True)
class _Topic:
    """The series of one lane. A sample times `scale` is its value in `unit`.

    `pages`: the samples are numbers of pages, so the size of a page is a factor, too.
    """

    title: str
    unit: str
    scale: float
    series: tuple[str, ...]
    group: str = "Samples"
    pages: bool = False


_TOPICS = (
    _Topic(
        "Dirty pages, and pages being written", "MiB", 1 / _MIB,
        ("dirty_pages", "writeback_pages"), "Write-back", pages=True,
    ),
    _Topic("Dirty page cache of cgroups", "MiB", 1 / _MIB, ("cgroup_dirty", "cgroup_writeback"),
           "Write-back"),
    _Topic("CPU use (100 % is one CPU)", "%", 1, ("cpu_use", "cgroup_cpu_use", "iowait", "steal")),
    _Topic(
        "Memory", "MiB", 1 / _MIB,
        ("rss", "memory_used", "page_cache", "buffers", "cgroup_memory", "cgroup_anon",
         "cgroup_page_cache"),
    ),
    _Topic("Throttled by a CPU quota (100 % is one CPU)", "%", 1, ("cgroup_throttled",)),
    _Topic(
        "Reclaim in cgroups", "pages/s", 1,
        ("cgroup_pgsteal_direct_rate", "cgroup_pgsteal_rate", "cgroup_refault_file_rate",
         "cgroup_refault_anon_rate"),
    ),
    _Topic("Swap space in use", "MiB", 1 / _MIB, ("swap_used", "cgroup_swap")),
    _Topic("Swapping", "pages/s", 1, ("swap_in", "swap_out")),
    _Topic(
        "Page faults, sampled", "faults/s", 1,
        ("minor_fault_rate", "major_fault_rate", "pgfault_rate", "pgmajfault_rate",
         "cgroup_pgfault_rate", "cgroup_pgmajfault_rate"),
    ),
    _Topic(
        "Pressure: share of the time in which tasks wait", "%", 1,
        tuple(name for name in COUNTERS if name.startswith("pressure_")),
    ),
    _Topic("Use of GPUs", "%", 1, ("gpu_use", "gpu_memory_use", "jetson_gpu_use")),
    _Topic("Memory of GPUs", "MiB", 1 / _MIB, ("gpu_memory",)),
    _Topic("Power", "W", 1, ("gpu_power", "gpu_mean_power", "rail_power", "rapl_power")),
    _Topic(
        "Frequency", "MHz", 1e-6,
        ("cpu_frequency", "gpu_frequency", "gpu_memory_frequency", "jetson_gpu_frequency"),
    ),
    _Topic("Disks: time in use", "%", 1, ("disk_use",)),
    _Topic("Disks: throughput", "MiB/s", 1 / _MIB, ("read_throughput", "write_throughput")),
    _Topic("Disks: requests", "requests/s", 1, ("read_iops", "write_iops")),
    _Topic("Processes of the targets", "processes", 1, ("processes",)),
    _Topic("Residency of folders in the page cache", "%", 1, ("residency",)),
)  # fmt: skip


def sample_lanes(trace: Trace, axis: Axis) -> list[Lane]:
    """Returns one lane per topic, with at most six lines each. All-zero series are left out.

    Columns: series (its target, disk, GPU, ...), at_s (mean time of the bin's samples), value (mean
    of the samples that are finite numbers). The targets' lines come before the machine's, each in
    the order of the topic's series. Needs the table samples.
    """
    trace.require("samples")
    trace.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE timeline_samples AS
        SELECT target, name, instance, {axis.bin("ts")} AS bin, avg(ts - {axis.start_ns}) / 1e9
            AS at_s, avg(value) AS value
        FROM samples WHERE {axis.within("ts")} AND value IS NOT NULL
            AND abs(value) < 1e100 GROUP BY ALL
        """
    )
    lanes = [lane for topic in _TOPICS if (lane := _lane(trace, topic)) is not None]
    trace.drop("timeline_samples")
    return lanes


def _lane(trace: Trace, topic: _Topic) -> Lane | None:
    names = ", ".join(f"'{name}'" for name in topic.series)
    ranked = trace.sql(
        f"""
        SELECT target, name, instance, most > 0 AS used
        FROM (SELECT target, name, instance, max(abs(value)) AS most
              FROM timeline_samples WHERE name IN ({names}) GROUP BY target, name, instance)
        ORDER BY target IS NULL, list_position([{names}], name), most DESC, target, instance
        """
    )
    if not len(ranked):
        return None
    used = ranked[ranked["used"]]
    shown = used[:MOST_LINES]
    several = len(topic.series) > 1
    parts = []
    for key in shown[["target", "name", "instance"]].to_numpy(object):
        target, name, instance = (
            None if value is None or value != value else value for value in key
        )
        own = trace.sql(
            "SELECT at_s, value FROM timeline_samples WHERE target IS NOT DISTINCT FROM ?"
            " AND name = ? AND instance IS NOT DISTINCT FROM ? ORDER BY bin",
            target,
            name,
            instance,
        )
        words = [str(name).replace("_", " ")] if several or instance is not None else []
        words += [instance] if instance is not None else []
        if instance is None or target is not None:
            words.append("machine" if target is None else target)
        own["value"] *= topic.scale * (page_bytes(trace.manifest) if topic.pages else 1)
        parts.append(own.assign(series=", ".join(words)))
    if not parts:
        return None
    said = []
    if more := len(used) - len(shown):
        said.append(f"The table of samples has {more} more series.")
    if idle := len(ranked) - len(used):
        said.append(f"{idle} series that were always 0 are not drawn.")
    query = (
        f"SELECT target, name, instance, ts, value, unit FROM samples WHERE name IN ({names})"
        " ORDER BY ts"
    )
    frame = pd.concat(parts, ignore_index=True)[["series", "at_s", "value"]]
    return Lane(topic.group, topic.title, topic.unit, Kind.LINES, frame, " ".join(said), query)
