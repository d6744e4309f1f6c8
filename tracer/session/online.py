"""The online CPUs: those at the start, whose buffers are read, and those that come later."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tracer.store.listed import Lines
from tracer.store.loss import NEW_CPUS

_ONLINE = Path("/sys/devices/system/cpu/online")
_MOST_BYTES = 1 << 16


class OnlineCpus:
    """The CPUs whose events are recorded, and a list of those that come online later.

    No stream is opened for a later one. One that is gone again at the next look is missed.
    """

    def __init__(self) -> None:
        """Finds the CPUs that are online. Raises OSError."""
        self._looked_ns = time.monotonic_ns()
        self._fd: int | None = os.open(_ONLINE, os.O_RDONLY | os.O_CLOEXEC)
        self._text = b""
        self._lines: Lines | None = None
        self.recorded = self._news()
        """The CPUs at the start."""
        self._known = set(self.recorded)

    def look(self, raw: Path) -> None:
        """Lists the CPUs that have come online since the last look in `raw`. Raises OSError."""
        looked_ns = time.monotonic_ns()
        new = [cpu for cpu in self._news() if cpu not in self._known]
        if new:
            if self._lines is None:
                self._lines = Lines(raw, NEW_CPUS)
            # Written at once, so that the list outlives a killed recorder.
            self._lines.add([(cpu, self._looked_ns) for cpu in new])
            self._known.update(new)
        self._looked_ns = looked_ns

    def _news(self) -> list[int]:
        """Returns the online CPUs; none if they are the same as the last time."""
        text = b"" if self._fd is None else os.pread(self._fd, _MOST_BYTES, 0)
        if text == self._text:
            return []
        self._text = text
        return _numbers(text.decode())

    def close(self) -> None:
        """Closes the files. Repeated calls do no harm."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if self._lines is not None:
            self._lines.close()


def _numbers(text: str) -> list[int]:
    """Returns the numbers in a list such as "0-3,5"."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
