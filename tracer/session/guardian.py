"""A process that waits beside the recorder and saves the undrained events if the recorder dies.

Descriptors and mappings keep the kernel's buffers alive. A process forked from the recorder holds
them as well, so the buffers outlive the recorder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from tracer.session.signals import HANDLED


class Guardian:
    """A forked process. `dismiss` ends it; the death of this process makes it save the data."""

    def __init__(self, hold: Callable[[], None], rescue: Callable[[], None]) -> None:
        """Forks, before there are threads. The child calls `hold` now and `rescue` if needed.

        Returns when the child is ready. `pid` is None if the child could not be started.
        """
        waits, self._ends = os.pipe2(os.O_CLOEXEC)
        holds, held = os.pipe2(os.O_CLOEXEC)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid: int | None = None
        try:
            self.pid = os.fork()
        except OSError:  # this user may start no more processes
            for fd in (waits, self._ends, holds, held):
                os.close(fd)
            return
        if self.pid == 0:
            os.close(self._ends)
            os.close(holds)
            self._guard(waits, held, hold, rescue)
        os.close(waits)
        os.close(held)
        ready = os.read(holds, 1)
        os.close(holds)
        if not ready:
            self.dismiss()

    def _guard(
        self, waits: int, held: int, hold: Callable[[], None], rescue: Callable[[], None]
    ) -> NoReturn:
        try:
            for number in (*HANDLED, signal.SIGQUIT):  # only the recorder answers them
                signal.signal(number, signal.SIG_IGN)
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(nothing, fd)
            hold()
            os.write(held, b"r")
            os.close(held)
            if os.read(waits, 1) == b"":
                rescue()
        finally:
            os._exit(0)

    def dismiss(self) -> None:
        """Ends the guardian. Repeated calls do no harm."""
        if self.pid is None:
            return
        with contextlib.suppress(BrokenPipeError):  # it was killed
            os.write(self._ends, b"d")
        os.close(self._ends)
        os.waitpid(self.pid, 0)
        self.pid = None
