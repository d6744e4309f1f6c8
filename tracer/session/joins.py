"""Word from the kernel that a process was put into another cgroup, as soon as it is."""

from __future__ import annotations

import contextlib
import os

from probes.backends.ftrace.instance import Instance

_EVENT = "cgroup:cgroup_attach_task"
_BUFFER_KIB = 64
_READ_BYTES = 64 << 10


class Joins:
    """A small tracefs instance of scope `joins`: its pipe can be read when a process was moved.

    What it says is not looked at: the cgroups themselves are.
    """

    def __init__(self) -> None:
        """Make and start it. Where the kernel has no such event, `fd` is None."""
        self._instance = Instance("joins")
        self.fd: int | None = None
        try:
            if self._instance.has_event(_EVENT):
                self._instance.set_buffer(_BUFFER_KIB)
                with contextlib.suppress(FileNotFoundError):  # before buffer_percent: at once
                    self._instance.write("buffer_percent", "0")
                self._instance.enable_event(_EVENT)
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self.fd = os.open(self._instance.path / "trace_pipe", flags)
                self._instance.start()
        except BaseException:
            self.close()
            raise

    def clear(self) -> None:
        """Read what is there, so that the pipe is readable at the next move, not before."""
        with contextlib.suppress(BlockingIOError):
            while self.fd is not None and os.read(self.fd, _READ_BYTES):
                pass

    def close(self) -> None:
        """Close the pipe and remove the instance."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        self._instance.close()
