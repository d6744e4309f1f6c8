"""Power modes of NVIDIA Jetson modules, by their own nvpmodel."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from workloads.errors import BrokenJobError, JobError
from workloads.modes.mechanism import ROOT, Before, Lacking, Mechanism, read

_MODE = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>")
_STATUS = re.compile(r"pmode:(\d+)")


class Nvpmodel(Mechanism):
    """A mode sets cores and all frequencies at once; the others tell what it has made of them."""

    name = "nvpmodel"
    sets = "nvpmodel"

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        self._status = root / "var/lib/nvpmodel/status"
        config = root / "etc/nvpmodel.conf"
        if shutil.which("nvpmodel") is None or not config.exists():
            raise Lacking("this is no Jetson: there is no nvpmodel with its /etc/nvpmodel.conf")
        self._ids = {name: int(number) for number, name in _MODE.findall(read(config))}

    def now(self) -> None:
        """A mode's number says nothing of its speed."""

    def choices(self) -> list[str]:
        """Their names, as /etc/nvpmodel.conf has them."""
        return list(self._ids)

    def remember(self) -> Before:
        """The number of the mode that was set last."""
        return {"id": self._current()}

    def set(self, value: str) -> None:
        """Set the mode of this name or number. Raises JobError for one that is not there."""
        number = self._ids.get(value)
        if number is None and value.isdecimal() and int(value) in self._ids.values():
            number = int(value)
        if number is None:
            raise JobError(f"nvpmodel has no mode {value!r}", f"it has {', '.join(self._ids)}")
        self._set(number)

    def restore(self, before: Before) -> None:
        """Set the mode that was there."""
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
                f"nvpmodel did not set mode {number}: {words or 'it said nothing'}",
                "some modes want a reboot: set it by hand (nvpmodel -m), and leave it out here",
            )

    def _current(self) -> int:
        found = _STATUS.search(read(self._status))
        if found is None:
            raise JobError(f"{self._status} does not say which mode is set", "set one: nvpmodel -m")
        return int(found[1])
