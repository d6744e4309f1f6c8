"""Signals to a recorder: the first one ends the recording, a second Ctrl-C aborts it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Turns the first SIGINT, SIGTERM or SIGHUP into a request and a second SIGINT into an abort.

    An abort raises KeyboardInterrupt, once: a further SIGINT does not interrupt what cleans up.
    Signals that were ignored when the recorder started (nohup) stay ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        """The first signal."""
        self._pending: list[int] = []
        self._aborted = False
        self._holds = 0
        """Number of blocks of `held` around the code that runs."""
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in HANDLED:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            if self._aborted:
                return
            self._aborted = True
            if not self._holds:
                raise KeyboardInterrupt
        self.received = self.received or number
        self._pending.append(number)
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"s")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Delays an abort until the end of the block.

        The block makes or removes something that outlives this process, such as a tracefs instance.
        """
        self._holds += 1
        before = self._aborted
        try:
            yield
        finally:
            self._holds -= 1
            if self._aborted and not before and not self._holds:
                raise KeyboardInterrupt

    def take(self) -> list[int]:
        """Returns the signals received since the last call, in order."""
        taken, self._pending = self._pending, []
        return taken

    def wait(self, fds: list[int], seconds: float) -> None:
        """Sleeps until a signal arrives, one of `fds` is readable, or the time is over."""
        poll = select.poll()
        for fd in (self._read, *fds):
            poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)
