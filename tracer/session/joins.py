"""Reports processes that are put into another cgroup, as soon as they are, through ftrace."""

from __future__ import annotations

import contextlib
import os
import re
from collections import OrderedDict

from tracer.probes.backends.ftrace.instance import Instance
from tracer.probes.cgroups import container_id

_EVENT = "cgroup:cgroup_attach_task"
_BUFFER_KIB = 64
_READ_BYTES = 64 << 10
_MOST_CONTAINERS = 1024
_MOVE = re.compile(
    rb": cgroup_attach_task: dst_root=(?P<root>\d{1,9}) dst_id=\d+ dst_level=\d+"
    rb" dst_path=(?P<path>/.*) pid=\d+ comm="
)
"""TP_printk of cgroup_migrate in include/trace/events/cgroup.h."""


class Joins:
    """A small tracefs instance of scope `joins`: its pipe becomes readable when a process moves.

    Of its events, only the cgroups of containers are kept (`paths`); for others, callers read the
    cgroups themselves.
    """

    def __init__(self) -> None:
        """Makes and starts the instance. `fd` is None if the kernel lacks the event."""
        self._instance = Instance("joins")
        self.fd: int | None = None
        self.paths: OrderedDict[str, dict[int, str]] = OrderedDict()
        """Cgroups of containers that processes entered last: by id, path by hierarchy."""
        self._rest = b""
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
            while self.fd is not None and (part := os.read(self.fd, _READ_BYTES)):
                *lines, self._rest = (self._rest + part).split(b"\n")
                for line in lines:
                    self._take(line)
                self._rest = self._rest[-_READ_BYTES:]

    def _take(self, line: bytes) -> None:
        found = _MOVE.search(line)
        path = os.fsdecode(found["path"]) if found is not None else ""
        container = container_id(path)
        if found is None or container is None:
            return
        parts = path.split("/")
        at = next(n for n, part in enumerate(parts) if container in part)
        whole = "/".join(parts[: at + 1])
        self.paths.setdefault(container, {})[int(found["root"])] = whole
        self.paths.move_to_end(container)
        if len(self.paths) > _MOST_CONTAINERS:
            self.paths.popitem(last=False)

    def close(self) -> None:
        """Closes the pipe and removes the instance."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        self._instance.close()
