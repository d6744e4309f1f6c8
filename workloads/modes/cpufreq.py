"""CPU frequency, set by cpufreq (kernel: Documentation/admin-guide/pm/cpufreq.rst)."""

from __future__ import annotations

from pathlib import Path

from tracer.workloads.errors import JobError
from tracer.workloads.modes.frequency import Limits, put_back
from tracer.workloads.modes.mechanism import ROOT, Before, Lacking, Mechanism

_KHZ = 1e3


class Cpufreq(Mechanism):
    """The mechanism that holds all CPUs at one frequency."""

    name = "cpufreq"
    sets = "cpu_mhz"

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        if not self._policies():
            raise Lacking(
                "there is no cpufreq (in a virtual machine, or if the firmware sets frequencies)"
            )

    def now(self) -> float:
        """Returns the highest frequency allowed for any CPU, in MHz."""
        return max(policy.now() for policy in self._policies())

    def choices(self) -> list[float]:
        """Returns some frequencies in MHz, the lowest first."""
        return self._policies()[0].some()

    def remember(self) -> Before:
        """Returns the limits of every policy."""
        return {path: text for p in self._policies() for path, text in p.remember().items()}

    def set(self, value: float) -> None:
        """Holds every CPU at `value` MHz. Raises JobError if a policy lacks that frequency."""
        for policy in self._policies():
            policy.hold(value)
            if abs(policy.now() - value) > 0.05 * value:
                raise JobError(f"{policy.high} has {policy.now():g} MHz after {value:g} was set")

    def restore(self, before: Before) -> None:
        """Restores the limits of every policy."""
        put_back(before)

    def _policies(self) -> list[Limits]:
        """Returns the limits of the policies of all CPUs that are online now."""
        return [
            Limits(
                folder / "scaling_min_freq",
                folder / "scaling_max_freq",
                folder / "scaling_available_frequencies",
                _KHZ,
                (folder / "cpuinfo_min_freq", folder / "cpuinfo_max_freq"),
            )
            for folder in sorted((self.root / "sys/devices/system/cpu/cpufreq").glob("policy*"))
            if (folder / "scaling_max_freq").exists()
        ]
