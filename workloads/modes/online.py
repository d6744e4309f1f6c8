"""Number of CPUs that are online (kernel: Documentation/core-api/cpu_hotplug.rst)."""

from __future__ import annotations

import re
from pathlib import Path

from workloads.errors import JobError
from workloads.modes.cgroups import mounts
from workloads.modes.frequency import put_back
from workloads.modes.mechanism import ROOT, Before, Lacking, Mechanism, read, write

_CPU = re.compile(r"cpu(\d+)$")


class Online(Mechanism):
    """CPUs are taken off the machine, the last ones first."""

    name = "CPU hotplug"
    sets = "cores"

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        if not any((cpu / "online").exists() for cpu in self._cpus()):
            raise Lacking("no CPU can be taken offline: sysfs has no cpuN/online")
        if any(mount.controllers & {"cpuset"} for mount in mounts(root) if not mount.unified):
            # Back online, it stays out of every cgroup (kernel: kernel/cgroup/cpuset-v1.c).
            raise Lacking("a CPU that was offline is lost to the cpusets of cgroup v1")

    def now(self) -> float:
        """CPUs that are online."""
        return sum(_is_on(cpu) for cpu in self._cpus())

    def choices(self) -> list[int]:
        """1, half of them, all."""
        every = len(self._cpus())
        return sorted({1, max(1, every // 2), every})

    def remember(self) -> Before:
        """Which are online."""
        files = [cpu / "online" for cpu in self._cpus()]
        return {str(path): read(path) for path in files if path.exists()}

    def set(self, value: int) -> None:
        """Have the first `value` CPUs online, those that cannot be taken off among them."""
        cpus = self._cpus()
        if value > len(cpus):
            raise JobError(f"the machine has {len(cpus)} CPUs, and the mode asks for {value}")
        fixed = [cpu for cpu in cpus if not (cpu / "online").exists()]
        free = [cpu for cpu in cpus if (cpu / "online").exists()]
        if value < len(fixed):
            raise JobError(f"{len(fixed)} of the CPUs cannot be taken off, {value} are asked for")
        for number, cpu in enumerate(free):
            wanted = "1" if number < value - len(fixed) else "0"
            if read(cpu / "online") != wanted:
                write(cpu / "online", wanted)

    def restore(self, before: Before) -> None:
        """Those that were online are so again, and no others."""
        put_back({path: text for path, text in before.items() if read(Path(path)) != text})

    def _cpus(self) -> list[Path]:
        folder = self.root / "sys/devices/system/cpu"
        found = [path for path in folder.glob("cpu*") if _CPU.match(path.name)]
        return sorted(found, key=lambda path: int(path.name[3:]))


def _is_on(cpu: Path) -> bool:
    file = cpu / "online"
    return not file.exists() or read(file) == "1"
