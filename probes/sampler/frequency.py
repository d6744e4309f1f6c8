"""Frequency of the CPUs and what governs it, from cpufreq."""

from __future__ import annotations

from pathlib import Path

from probes.sampler.reading import ROOT, NotAvailable, Reader, Reading, Series, contents, number

FREQUENCY = Series(
    "cpu_frequency", "Hz", "current frequency, the mean of the CPUs (of their cpufreq policies)"
)
_MOST_POLICIES = 64


class Frequency(Reader):
    """/sys/devices/system/cpu/cpufreq (kernel: Documentation/admin-guide/pm/cpufreq.rst)."""

    name = "frequency"
    series = (FREQUENCY,)

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        policies = sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*"))
        if not policies:
            raise NotAvailable("there is no cpufreq (a virtual machine, or firmware governs)")
        # So many tell the mean; each costs a read, and some processors an interrupt.
        step = -(-len(policies) // _MOST_POLICIES)
        self._policies = policies[::step]
        governors = {contents(p / "scaling_governor", 64).strip() for p in self._policies}
        self.facts["cpu_governor"] = ", ".join(sorted(governors))
        self.read()

    def read(self) -> list[Reading]:
        """The mean, now."""
        kilohertz = [number(policy / "scaling_cur_freq") for policy in self._policies]
        return [(FREQUENCY.name, None, 1000 * sum(kilohertz) / len(kilohertz))]
