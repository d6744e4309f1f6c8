"""CPU time of the machine, from /proc/stat."""

from __future__ import annotations

import os

from tracer.probes.sampler.reading import NotAvailable, Rate, Reader, Reading, Series, contents

BUSY = Series(
    "cpu_time",
    "s",
    "CPU time used. Machine: all but idle, iowait and steal. Target: its processes, including those"
    " that have ended",
    Rate("cpu_use", "%", "CPU use; 100 is one CPU", 100),
    in_ticks=True,
)
IOWAIT = Series(
    "iowait_time",
    "s",
    "time that CPUs were idle while a task of that CPU waited for a disk",
    Rate("iowait", "%", "CPUs idle while a task waited for a disk; 100 is one CPU", 100),
    in_ticks=True,
)
STEAL = Series(
    "steal_time",
    "s",
    "time that CPUs had work while the host of this virtual machine ran something else on them; 0"
    " if the host does not tell",
    Rate("steal", "%", "CPUs that had work while the host ran something else; 100 is one CPU", 100),
    in_ticks=True,
)
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
_NAMED = 8
"""Number of times that are read: user, nice, system, idle, iowait, irq, softirq, steal. Guest is
part of user."""


class Cpu(Reader):
    """The first line of /proc/stat (kernel: fs/proc/stat.c)."""

    name = "cpu"
    series = (BUSY, IOWAIT, STEAL)

    def read(self) -> list[Reading]:
        """Returns the CPU times since boot in s, exact to a clock tick."""
        path = self.root / "proc/stat"
        words = contents(path).partition("\n")[0].split()
        try:
            ticks = [int(word) for word in words[1 : 1 + _NAMED]]
        except ValueError:
            ticks = []
        if words[:1] != ["cpu"] or len(ticks) < _NAMED:
            raise NotAvailable(f"{path} does not begin with the times of all CPUs")
        hz = os.sysconf("SC_CLK_TCK")
        busy = sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT] - ticks[_STEAL]
        return [
            (BUSY.name, None, busy / hz),
            (IOWAIT.name, None, ticks[_IOWAIT] / hz),
            (STEAL.name, None, ticks[_STEAL] / hz),
        ]
