"""The power modes of this machine: which of its settings can be set, by what, and some of them."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import Any

from workloads.errors import JobError
from workloads.modes.cgroups import find
from workloads.modes.cpufreq import Cpufreq
from workloads.modes.mechanism import ROOT, Lacking, Mechanism
from workloads.modes.mode import PowerMode
from workloads.modes.nvml import GpuClock, MemoryClock
from workloads.modes.nvpmodel import Nvpmodel
from workloads.modes.online import Online
from workloads.modes.tegra import TegraGpu, TegraMemory

MECHANISMS: tuple[type[Mechanism], ...] = (
    Nvpmodel, Online, Cpufreq, TegraGpu, TegraMemory, GpuClock, MemoryClock,
)  # fmt: skip
"""In the order in which they are set; of those that set the same, the first that is there."""

QUOTA = "quota of CPU time, not a frequency"
CPUSET = "cpuset"

_QUOTAS = (0.4, 0.6, 0.8, 1.0)


class Machine:
    """What this machine offers. `missing`: by setting, why it does not."""

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
        """What sets it. Raises JobError where nothing does."""
        if setting not in self.mechanisms:
            raise JobError(
                f"this machine cannot set `{setting}`: {self.missing[setting]}",
                "take `cpu_quota`" if setting == "cpu_mhz" else "leave it out",
            )
        return self.mechanisms[setting]

    def cpus(self) -> list[int]:
        """The CPUs that are online and ours to use."""
        return sorted(os.sched_getaffinity(0))

    def settings(self) -> dict[str, float]:
        """Each setting that can be read as a number, as it is."""
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
        """Whether the time of a job's CPUs can be limited."""
        try:
            find("cpu", self.root)
        except JobError:
            return False
        return True

    def modes(self) -> list[PowerMode | None]:
        """Some of its modes; first that in which nothing is set.

        All that nvpmodel has; else cores by CPU frequencies (by quotas, where it has none to set),
        and the clocks of GPU and memory one at a time, as seed 002 varies them (section 5.6).
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
