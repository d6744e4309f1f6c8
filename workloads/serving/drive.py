"""Clients outside the job that send requests to its servers, one per server, over a Unix socket.

The clients are processes beside the job, so the job's process or container is only the server. The
clients share the machine's CPUs with the servers.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tracer.workloads import sessions
from tracer.workloads.errors import BrokenJobError, JobError
from tracer.workloads.serving import unix
from tracer.workloads.serving.endpoint import Endpoint

SOCKET = "server.sock"
_ANSWER_S = 300
"""Seconds after which a server without an answer has failed."""
_ROUND_S = 0.05

_Ended = subprocess.CompletedProcess[bytes]


@dataclass(frozen=True)
class Server:
    """A started server: its socket, and a function that returns whether it has ended."""

    socket: Path
    has_ended: Callable[[], bool]

    @property
    def url(self) -> str:
        return f"{unix.SCHEME}{self.socket}"


def drive(
    model: str,
    servers: list[Server],
    client: list[str],
    note: Path | None = None,
    until: float | None = None,
) -> list[_Ended]:
    """Waits until all servers answer, then runs `client --url URL` for all at once to their ends.

    Raises BrokenJobError if a server ends before it answers or never answers, and
    subprocess.TimeoutExpired if that lasts beyond `until`, a time of time.monotonic.
    """
    for server in servers:
        _wait_for(model, server, until)
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(sessions.started([*client, "--url", server.url], note))
            for server in servers
        ]
        return [one.wait(left(until)) for one in running]


def left(until: float | None) -> float | None:
    """Returns the seconds left until `until`; None: no limit."""
    return None if until is None else max(0.0, until - time.monotonic())


def _wait_for(model: str, server: Server, until: float | None) -> None:
    deadline = time.monotonic() + _ANSWER_S
    endpoint = Endpoint(server.url)
    try:
        while not _answers(endpoint, model, server):
            if server.has_ended():
                raise BrokenJobError("the server ended before it answered")
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(server.url, 0)
            if time.monotonic() > deadline:
                raise BrokenJobError(f"the server did not answer within {_ANSWER_S} s")
            time.sleep(_ROUND_S)
    finally:
        endpoint.close()


def _answers(endpoint: Endpoint, model: str, server: Server) -> bool:
    if not server.socket.exists():
        return False
    try:
        endpoint.check(model)
    except JobError:
        return False
    return True
