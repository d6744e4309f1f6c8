"""Reports processes that are put into another cgroup, as soon as they are, through ftrace."""

from __future__ import annotations

import contextlib
import os

from tracer.probes.backends.ftrace.instance import Instance

_EVENT = "cgroup:cgroup_attach_task"
_BUFFER_KIB = 64
_READ_BYTES = 64 << 10


class Joins:
    """A small tracefs instance of scope `joins`: its pipe becomes readable when a process moves.

    Its events are not parsed; callers read the cgroups themselves.
    """

    def __init__(self) -> None:
        """Makes and starts the instance. `fd` is None if the kernel lacks the event."""
        self._instance = Instance("joins")
        self.fd: int | None = None
        try:
            if self._instance.has_event(_EVENT):
                self._instance.set_buffer(_BUFFER_KIB)
                with contextlib.suppress(FileNotFoundError):  # older kernels wake readers at once
                    self._instance.write("buffer_percent", "0")
                self._instance.enable_event(_EVENT)
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self.fd = os.open(self._instance.path / "trace_pipe", flags)
                self._instance.start()
        except BaseException:
            self.close()
            raise

    def clear(self) -> None:
        """Reads all events, so that the pipe becomes readable only at the next move."""
        with contextlib.suppress(BlockingIOError):
            while self.fd is not None and os.read(self.fd, _READ_BYTES):
                pass

    def close(self) -> None:
        """Closes the pipe and removes the instance."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        self._instance.close()
