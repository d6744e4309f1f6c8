"""All readers and their series, by name."""

from __future__ import annotations

from pathlib import Path

from tracer.probes.sampler.cgroup import CgroupReader
from tracer.probes.sampler.cpu import Cpu
from tracer.probes.sampler.disks import Disks
from tracer.probes.sampler.frequency import Frequency
from tracer.probes.sampler.gpu import Gpu
from tracer.probes.sampler.jetson import Jetson
from tracer.probes.sampler.limits import Limits
from tracer.probes.sampler.memory import Memory
from tracer.probes.sampler.pressure import Pressure
from tracer.probes.sampler.processes import Processes
from tracer.probes.sampler.rapl import Rapl
from tracer.probes.sampler.reading import ROOT, NotAvailable, Reader, Series
from tracer.probes.sampler.residency import Residency

MACHINE: tuple[type[Reader], ...] = (
    Cpu,
    Memory,
    Pressure,
    Disks,
    Frequency,
    Gpu,
    Jetson,
    Rapl,
)
"""Readers of the machine, in the order in which they read."""

READERS: tuple[type[Processes | CgroupReader | Limits | Reader], ...] = (
    Processes,
    CgroupReader,
    Limits,
    *MACHINE,
    Residency,
)

SERIES: dict[str, Series] = {series.name: series for reader in READERS for series in reader.series}
"""All series, those of targets first."""

COUNTERS: dict[str, Series] = {
    series.rate.name: series for series in SERIES.values() if series.rate is not None
}
"""The counter behind each rate, by the rate's name."""


def find_readers(root: Path = ROOT) -> tuple[list[Reader], dict[str, str]]:
    """Returns the readers that work on this machine, and for each other one the reason."""
    readers: list[Reader] = []
    missing: dict[str, str] = {}
    for kind in MACHINE:
        try:
            readers.append(kind(root))
        except NotAvailable as error:
            missing[kind.name] = error.why
    return readers, missing
