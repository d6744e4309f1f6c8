"""Frequency and governor of the CPUs, from cpufreq."""

from __future__ import annotations

from pathlib import Path

from tracer.probes.sampler.reading import (
    ROOT,
    NotAvailable,
    Reader,
    Reading,
    Series,
    contents,
    number,
)

FREQUENCY = Series("cpu_frequency", "Hz", "current frequency, mean over the CPUs' cpufreq policies")
_MOST_POLICIES = 64


class Frequency(Reader):
    """A reader of /sys/devices/system/cpu/cpufreq.

    Kernel: Documentation/admin-guide/pm/cpufreq.rst.
    """

    name = "frequency"
    series = (FREQUENCY,)

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        policies = sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*"))
        if not policies:
            raise NotAvailable(
                "this machine has no cpufreq (it is virtual, or its firmware sets the frequency)"
            )
        # A sample is enough for the mean: each policy costs a read, on some CPUs an interrupt.
        step = -(-len(policies) // _MOST_POLICIES)
        self._policies = policies[::step]
        governors = {contents(p / "scaling_governor", 64).strip() for p in self._policies}
        self.facts["cpu_governor"] = ", ".join(sorted(governors))
        self.read()

    def read(self) -> list[Reading]:
        """Returns the mean frequency now."""
        kilohertz = [number(policy / "scaling_cur_freq") for policy in self._policies]
        return [(FREQUENCY.name, None, 1000 * sum(kilohertz) / len(kilohertz))]
