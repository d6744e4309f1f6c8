"""The timers of the kernel's flusher, as sysctls of vm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracer.workloads.modes.mechanism import ROOT, Before, Lacking, Mechanism, read, write

EXPIRE, WRITEBACK = "dirty_expire_centisecs", "dirty_writeback_centisecs"
"""The age at which a dirty page is written; the time between two looks for such pages."""


class WritebackTimers(Mechanism):
    """Multiplies both timers by a factor, in whole hundredths of a second, at least one."""

    name = "vm.dirty_*_centisecs"
    sets = "time_scale"

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        self._folder = root / "proc/sys/vm"
        if not all((self._folder / name).exists() for name in (EXPIRE, WRITEBACK)):
            raise Lacking(f"there is no {self._folder / EXPIRE}")

    def now(self) -> float | None:
        """Returns None: there are two values."""
        return None

    def choices(self) -> list[Any]:
        """Returns no values."""
        return []

    def remember(self) -> Before:
        """Returns both timers in hundredths of a second."""
        return {name: int(read(self._folder / name)) for name in (EXPIRE, WRITEBACK)}

    def set(self, value: Any) -> None:
        """Multiplies the timers by `value`. A timer that is off (0) stays off."""
        for name, before in self.remember().items():
            if before:
                write(self._folder / name, str(max(1, round(before * value))))

    def restore(self, before: Before) -> None:
        """Sets both timers to their earlier values."""
        for name in (EXPIRE, WRITEBACK):
            write(self._folder / name, str(int(before[name])))
