"""A socket in front of a Docker daemon's, which hears of each request before the daemon does."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def in_front_of(host: str, path: Path, told: Callable[[str], None]) -> Iterator[str]:
    """Listens at `path` for the daemon at `host`; calls `told(HEAD)` before it hands a request on.

    Yields the value for DOCKER_HOST. If `told` raises OSError, the request and its connection are
    lost.
    """

    class Client(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as daemon:
                daemon.connect(host.removeprefix("unix://"))
                answers = threading.Thread(target=_hand_on, args=(daemon, self.request))
                answers.start()
                _hand_on(self.request, daemon, told)
                answers.join()

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True  # the end of the block does not wait for the clients

    with Server(str(path), Client) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown()


def _hand_on(
    here: socket.socket, there: socket.socket, told: Callable[[str], None] = lambda head: None
) -> None:
    """Hands all bytes of a connection on, then its end."""
    with contextlib.suppress(OSError):
        while data := here.recv(1 << 16):
            told(data.split(b"\r\n", 1)[0].decode("utf-8", "replace"))
            there.sendall(data)
    with contextlib.suppress(OSError):
        there.shutdown(socket.SHUT_WR)
