"""Awaited containers: the Docker daemon's events tell when they are made, started and removed."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Mapping
from typing import Any

from tracer.probes.errors import TracerError
from tracer.targets import Target
from tracer.targets.containers import AwaitedContainer
from tracer.targets.docker_api import Engine

_EVENTS = ["create", "start", "destroy"]
_END_S = 1.0
_Event = tuple[str, str, str]
"""(event, container's id, container's name)"""


class Arrivals:
    """Passes the daemon's events to the containers among `targets` that are awaited.

    A thread reads the events. `fd` becomes readable when there is something to `look` at; without
    an awaited container it is None.
    """

    def __init__(self, targets: list[Target]) -> None:
        """Makes no connection yet."""
        self.awaited = [t for t in targets if isinstance(t, AwaitedContainer)]
        self.fd: int | None = None
        self._wake = -1
        self._heard: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._engine: Engine | None = None
        self._stream: Any = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to listen. Raises the errors of `Engine`."""
        if not self.awaited:
            return
        self.fd, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._engine = Engine()
        since_s = min(target.since_s for target in self.awaited)
        self._stream = self._engine.events(since_s, _EVENTS)
        self._thread = threading.Thread(target=self._listen, name="tracer-arrivals", daemon=True)
        self._thread.start()

    @property
    def tids(self) -> list[int]:
        """The thread's id, to exclude the thread from the recording."""
        tid = self._thread.native_id if self._thread is not None else None
        return [tid] if tid is not None else []

    def _listen(self) -> None:
        # A daemon that ends closes the stream; `close` does so from the other thread.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            for event in self._stream:
                actor = event.get("Actor") or {}
                name = (actor.get("Attributes") or {}).get("name", "")
                self._heard.put((str(event.get("Action")), str(actor.get("ID")), str(name)))
                with contextlib.suppress(BlockingIOError):  # a full pipe is readable already
                    os.write(self._wake, b"e")

    def look(self, paths: Mapping[str, Mapping[int, str]]) -> list[AwaitedContainer]:
        """Returns the containers of which something new is known.

        `paths` are the cgroups that processes have entered lately: by container's id, path by
        hierarchy.
        """
        if self.fd is None:
            return []
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)
        changed: dict[int, AwaitedContainer] = {}
        while not self._heard.empty():
            event, identity, name = self._heard.get()
            for target in self.awaited:
                if target.hear(event, identity, name):
                    changed[id(target)] = target
                    break
        for target in self.awaited:
            if target.unasked:
                with contextlib.suppress(TracerError):  # the kernel told of its cgroups
                    target.look()
                if target.known is not None:
                    changed[id(target)] = target
            found = paths.get(target.identity or "", {})
            if target.lies_in(found):
                changed[id(target)] = target
        return list(changed.values())

    @property
    def readable(self) -> list[int]:
        """The descriptor that becomes readable when there is something to `look` at."""
        return [self.fd] if self.fd is not None else []

    def close(self) -> None:
        """Ends the thread. Repeated calls do no harm."""
        if self._thread is not None:
            with contextlib.suppress(OSError, AttributeError):  # the daemon has closed it
                self._stream.close()
            self._thread.join(_END_S)
            if self._thread.is_alive():
                return  # it may still write into the pipe
            self._thread = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        for fd in (self.fd, self._wake):
            if fd is not None and fd >= 0:
                os.close(fd)
        self.fd, self._wake = None, -1
