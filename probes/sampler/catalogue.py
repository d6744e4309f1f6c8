"""All readers and their series, by name."""

from __future__ import annotations

from pathlib import Path

from probes.sampler.cgroup import CgroupReader
from probes.sampler.cpu import Cpu
from probes.sampler.disks import Disks
from probes.sampler.frequency import Frequency
from probes.sampler.gpu import Gpu
from probes.sampler.jetson import Jetson
from probes.sampler.memory import Memory
from probes.sampler.pressure import Pressure
from probes.sampler.processes import Processes
from probes.sampler.rapl import Rapl
from probes.sampler.reading import ROOT, NotAvailable, Reader, Series
from probes.sampler.residency import Residency

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

READERS: tuple[type[Processes | CgroupReader | Reader], ...] = (
    Processes,
    CgroupReader,
    *MACHINE,
    Residency,
)

SERIES: dict[str, Series] = {series.name: series for reader in READERS for series in reader.series}
"""All series, those of targets first."""

COUNTERS: dict[str, Series] = {
    series.rate.name: series for series in SERIES.values() if series.rate is not None
}
"""The counter behind each rate, by the rate's name."""


def find(root: Path = ROOT) -> tuple[list[Reader], dict[str, str]]:
    """Returns the readers that work on this machine, and for each other one the reason."""
    readers: list[Reader] = []
    missing: dict[str, str] = {}
    for kind in MACHINE:
        try:
            readers.append(kind(root))
        except NotAvailable as error:
            missing[kind.name] = error.why
    return readers, missing
