"""The amount of dirty memory above which the kernel writes in the background, as sysctls of vm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracer.workloads.modes.mechanism import ROOT, Before, Lacking, Mechanism, read, write

BYTES, RATIO = "dirty_background_bytes", "dirty_background_ratio"
"""The amount in bytes; the amount in per cent. One of them is in force, the other is 0."""


class DirtyBackground(Mechanism):
    """Sets the amount in bytes."""

    name = f"vm.{BYTES}"
    sets = BYTES

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        self._folder = root / "proc/sys/vm"
        for name in (BYTES, RATIO):
            if not (self._folder / name).exists():
                raise Lacking(f"there is no {self._folder / name}")

    def now(self) -> float | None:
        """Returns the amount in bytes; None if it is in per cent."""
        return int(read(self._folder / BYTES)) or None

    def choices(self) -> list[Any]:
        """Returns no values."""
        return []

    def remember(self) -> Before:
        """Returns both values."""
        return {name: int(read(self._folder / name)) for name in (BYTES, RATIO)}

    def set(self, value: Any) -> None:
        """Sets the amount to `value` bytes. The kernel then sets the ratio to 0."""
        write(self._folder / BYTES, str(int(value)))

    def restore(self, before: Before) -> None:
        """Sets the amount that was in force. The kernel sets the other to 0 and refuses 0 bytes."""
        name = BYTES if int(before[BYTES]) else RATIO
        write(self._folder / name, str(int(before[name])))
