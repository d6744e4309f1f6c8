"""The number of online CPUs (kernel: Documentation/core-api/cpu_hotplug.rst)."""

from __future__ import annotations

import re
from pathlib import Path

from tracer.workloads.errors import JobError
from tracer.workloads.modes.cgroups import mounts
from tracer.workloads.modes.frequency import put_back
from tracer.workloads.modes.mechanism import ROOT, Before, Lacking, Mechanism, read, write

_CPU = re.compile(r"cpu(\d+)$")


class Online(Mechanism):
    """The mechanism that takes CPUs offline, the last ones first."""

    name = "CPU hotplug"
    sets = "cores"

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        if not any((cpu / "online").exists() for cpu in self._cpus()):
            raise Lacking("no CPU can be taken offline: sysfs has no cpuN/online")
        if any(mount.controllers & {"cpuset"} for mount in mounts(root) if not mount.unified):
            # A CPU that comes back online stays out of every cpuset (kernel:
            # kernel/cgroup/cpuset-v1.c).
            raise Lacking("with cgroup v1, a CPU that was offline does not return to the cpusets")

    def now(self) -> float:
        """Returns the number of online CPUs."""
        return sum(_is_on(cpu) for cpu in self._cpus())

    def choices(self) -> list[int]:
        """Returns 1, half of the CPUs, and all."""
        every = len(self._cpus())
        return sorted({1, max(1, every // 2), every})

    def remember(self) -> Before:
        """Returns the text of each `online` file."""
        files = [cpu / "online" for cpu in self._cpus()]
        return {str(path): read(path) for path in files if path.exists()}

    def set(self, value: int) -> None:
        """Sets `value` CPUs online: those that cannot be taken offline, then the first others.

        Raises JobError if that is impossible.
        """
        cpus = self._cpus()
        if value > len(cpus):
            raise JobError(f"the mode asks for {value} CPUs, but the machine has {len(cpus)}")
        fixed = [cpu for cpu in cpus if not (cpu / "online").exists()]
        free = [cpu for cpu in cpus if (cpu / "online").exists()]
        if value < len(fixed):
            raise JobError(
                f"the mode asks for {value} CPUs, but {len(fixed)} cannot be taken offline"
            )
        for number, cpu in enumerate(free):
            wanted = "1" if number < value - len(fixed) else "0"
            if read(cpu / "online") != wanted:
                write(cpu / "online", wanted)

    def restore(self, before: Before) -> None:
        """Restores the online CPUs, no more and no fewer."""
        put_back({path: text for path, text in before.items() if read(Path(path)) != text})

    def _cpus(self) -> list[Path]:
        folder = self.root / "sys/devices/system/cpu"
        found = [path for path in folder.glob("cpu*") if _CPU.match(path.name)]
        return sorted(found, key=lambda path: int(path.name[3:]))


def _is_on(cpu: Path) -> bool:
    file = cpu / "online"
    return not file.exists() or read(file) == "1"
