"""Power modes of NVIDIA Jetson modules, set with NVIDIA's nvpmodel."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tracer.workloads.errors import BrokenJobError, JobError
from tracer.workloads.modes.mechanism import ROOT, Before, Lacking, Mechanism, read

_MODE = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>")
_STATUS = re.compile(r"pmode:(\d+)")


class Nvpmodel(Mechanism):
    """The mechanism that sets cores and all frequencies at once, as one mode of nvpmodel.

    The other mechanisms report the resulting cores and frequencies.
    """

    name = "nvpmodel"
    sets = "nvpmodel"

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        self._status = root / "var/lib/nvpmodel/status"
        config = root / "etc/nvpmodel.conf"
        if shutil.which("nvpmodel") is None or not config.exists():
            raise Lacking("this is no Jetson: nvpmodel or /etc/nvpmodel.conf is missing")
        self._ids = {name: int(number) for number, name in _MODE.findall(read(config))}

    def now(self) -> None:
        """Returns None, since the number of a mode does not express a speed."""

    def choices(self) -> list[str]:
        """Returns the names of the modes in /etc/nvpmodel.conf."""
        return list(self._ids)

    def remember(self) -> Before:
        """Returns the number of the current mode."""
        return {"id": self._current()}

    def set(self, value: str) -> None:
        """Sets the mode of this name or number. Raises JobError if there is no such mode."""
        number = self._ids.get(value)
        if number is None and value.isdecimal() and int(value) in self._ids.values():
            number = int(value)
        if number is None:
            raise JobError(f"nvpmodel has no mode {value!r}", f"it has {', '.join(self._ids)}")
        self._set(number)

    def restore(self, before: Before) -> None:
        """Sets the earlier mode."""
        self._set(int(before["id"]))

    def _set(self, number: int) -> None:
        if self._current() == number:
            return
        ended = subprocess.run(
            ["nvpmodel", "-m", str(number)],
            stdin=subprocess.DEVNULL,  # it may ask whether to reboot
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode or self._current() != number:
            words = " ".join((ended.stdout + ended.stderr).split())[-300:]
            raise BrokenJobError(
                f"nvpmodel did not set mode {number}: {words or 'it printed nothing'}",
                "if the mode needs a reboot, set it by hand (nvpmodel -m) and leave it out here",
            )

    def _current(self) -> int:
        found = _STATUS.search(read(self._status))
        if found is None:
            raise JobError(f"{self._status} names no mode", "set one with nvpmodel -m")
        return int(found[1])
