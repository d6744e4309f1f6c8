"""HTTP over a Unix socket for urllib3, to reach a server without a network."""

from __future__ import annotations

import socket
import struct
from typing import Any

from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import NewConnectionError

from tracer.workloads.serving.bounded import Connection

SCHEME = "unix:"
"""Prefix of an address; the path of the socket follows."""

_CREDENTIALS = struct.Struct("3i")


class Pool(HTTPConnectionPool):
    """The connections to the server that listens on the socket `path`."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__("localhost", **options)
        self._path = path

    def _new_conn(self) -> Connection:
        self.num_connections += 1
        return _Connection(self._path)


class _Connection(Connection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def _new_conn(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(self.timeout)
        try:
            connection.connect(self._path)
        except OSError as error:
            connection.close()
            raise NewConnectionError(self, f"cannot connect to {self._path}: {error}") from error
        return connection


def listener(path: str) -> int:
    """Returns the id of the process that listens on the socket. Raises OSError if none does."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(path)
        told = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(told)[0]
    return pid
