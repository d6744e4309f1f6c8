"""Connections of urllib3 whose answers have to be read until a time.

A time limit of urllib3 is one of each read(2), so an answer of a byte a second never ends.
"""

from __future__ import annotations

import io
import socket
import time
from functools import partial
from http import client
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection


class _Reads(io.RawIOBase):
    """The reads of a socket until `until`. Later ones raise TimeoutError."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, until: float) -> None:
        self._raw = raw
        self._sock = sock
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(client.HTTPResponse):
    def __init__(self, sock: socket.socket, *told: Any, until: float, **more: Any) -> None:
        super().__init__(sock, *told, **more)
        self.fp = io.BufferedReader(_Reads(self.fp.detach(), sock, until))


class Connection(HTTPConnection):
    """A connection whose timeout bounds the whole answer: its status, headers and body."""

    response_class: Any

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3's own
        """Returns the answer, of which the body is not read yet."""
        if isinstance(self.timeout, int | float):
            self.response_class = partial(_Answer, until=time.monotonic() + self.timeout)
        return super().getresponse()


class SecureConnection(Connection, HTTPSConnection):
    """The same over HTTPS."""
