"""Signals to a recorder: the first asks it to end, a second Ctrl-C aborts it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType
from typing import Any


class Signals:
    """Turns the first SIGINT or SIGTERM into a request, and a second SIGINT into an abort."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.received = number
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"s")

    def wait(self, fds: list[int], seconds: float) -> None:
        """Sleep until a signal, until one of `fds` can be read, or for so long."""
        select.select([self._read, *fds], [], [], max(0.0, seconds))
