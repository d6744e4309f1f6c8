"""The power modes of this machine: its settings, their mechanisms, and a selection of modes."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import Any

from tracer.workloads.errors import JobError
from tracer.workloads.modes.cgroups import find_mount
from tracer.workloads.modes.cpufreq import Cpufreq
from tracer.workloads.modes.mechanism import ROOT, Lacking, Mechanism
from tracer.workloads.modes.mode import PowerMode
from tracer.workloads.modes.nvml import GpuClock, MemoryClock
from tracer.workloads.modes.nvpmodel import Nvpmodel
from tracer.workloads.modes.online import Online
from tracer.workloads.modes.tegra import TegraGpu, TegraMemory

MECHANISMS: tuple[type[Mechanism], ...] = (
    Nvpmodel, Online, Cpufreq, TegraGpu, TegraMemory, GpuClock, MemoryClock,
)  # fmt: skip
"""Mechanisms in the order of use. If several set the same field, the first available is used."""

QUOTA = "quota of CPU time, not a frequency"
CPUSET = "cpuset"

_QUOTAS = (0.4, 0.6, 0.8, 1.0)


class Machine:
    """The mechanisms of this machine by setting. `missing`: by setting, why there is none."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.mechanisms: dict[str, Mechanism] = {}
        self.missing: dict[str, str] = {}
        for kind in MECHANISMS:
            if kind.sets in self.mechanisms:
                continue
            try:
                self.mechanisms[kind.sets] = kind(root)
            except (Lacking, JobError) as why:
                self.missing[kind.sets] = "; ".join(
                    filter(None, (self.missing.get(kind.sets), str(why)))
                )

    def find(self, setting: str) -> Mechanism:
        """Returns the mechanism of a setting. Raises JobError if there is none."""
        if setting not in self.mechanisms:
            raise JobError(
                f"this machine cannot set `{setting}`: {self.missing[setting]}",
                "use `cpu_quota`" if setting == "cpu_mhz" else "leave it out",
            )
        return self.mechanisms[setting]

    def cpus(self) -> list[int]:
        """Returns the online CPUs that this process may use."""
        return sorted(os.sched_getaffinity(0))

    def settings(self) -> dict[str, float]:
        """Returns the current value of each setting that can be read as a number."""
        found: dict[str, float] = {"cores": len(self.cpus())}
        if self.has_quota():
            found["cpu_quota"] = 1.0
        for setting, mechanism in self.mechanisms.items():
            if setting != "cores":
                with contextlib.suppress(JobError):
                    value = mechanism.now()
                    found |= {} if value is None else {setting: value}
        return found

    def has_quota(self) -> bool:
        """Returns whether a job's CPU time can be limited."""
        try:
            find_mount("cpu", self.root)
        except JobError:
            return False
        return True

    def modes(self) -> list[PowerMode | None]:
        """Returns a selection of modes. The first, None, sets nothing.

        On a machine with nvpmodel these are all its modes. Otherwise they are the combinations of
        cores and CPU frequencies (CPU quotas if frequencies cannot be set), and the clocks of GPU
        and memory, varied one at a time as in Prashanthi et al. 2022, section 5.6.
        """
        found: dict[PowerMode | None, None] = {None: None}
        if "nvpmodel" in self.mechanisms:
            names = self.mechanisms["nvpmodel"].choices()
            return [*found, *(PowerMode(nvpmodel=name) for name in names)]
        every = len(self.cpus())
        speed = "cpu_mhz" if "cpu_mhz" in self.mechanisms else "cpu_quota"
        speeds = self._choices(speed) or list(_QUOTAS)
        for cores, value in itertools.product(sorted({max(1, every // 2), every}), speeds):
            told: dict[str, Any] = {
                "cores": None if cores == every else cores,
                speed: None if value == max(speeds) else value,
            }
            mode = PowerMode(**told)
            found[None if mode == PowerMode() else mode] = None
        for setting in ("gpu_mhz", "memory_mhz"):
            for value in self._choices(setting)[:-1]:
                found[PowerMode(**{setting: value})] = None
        return list(found)

    def _choices(self, setting: str) -> list[Any]:
        mechanism = self.mechanisms.get(setting)
        return mechanism.choices() if mechanism else []
