"""Waitress's connections and refusals, made safe against clients that mean it no good."""

from __future__ import annotations

import time
from typing import Any

from waitress.channel import HTTPChannel
from waitress.task import ErrorTask

from tracer.workloads.serving.application import Application


def channel_class(application: Application) -> type[HTTPChannel]:
    """Returns the class of a server's connections, which counts refusals in the application."""

    class Refusal(ErrorTask):
        """Waitress's own answer to a request that is not HTTP, or too large."""

        def __init__(self, channel: HTTPChannel, request: Any) -> None:
            super().__init__(channel, request)
            # A request that is not HTTP lacks a path, but Waitress logs it if the client is gone.
            request.path = getattr(request, "path", "")

        def execute(self) -> None:
            application.count_refused()
            super().execute()

    class Channel(HTTPChannel):
        """A connection that is dropped if a request takes too long to arrive.

        Waitress itself drops only silent connections; an occasional byte would keep them open.
        """

        error_task_class = Refusal
        _begun = 0.0

        def received(self, data: bytes) -> bool:
            now = time.monotonic()
            if self.request is None:
                self._begun = now
            elif now - self._begun > self.adj.channel_timeout:
                self.will_close = True
                return False
            return super().received(data)

    return Channel
