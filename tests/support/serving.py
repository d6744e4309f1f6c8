"""Servers of trained models as processes, and what talks to them as any client would."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import urllib3

from tracer.workloads.data.sets import SampleSet


@dataclass(frozen=True)
class Trained:
    """A LeNet and its data: `predictions` are those that inference wrote, by index."""

    checkpoint: Path
    data: Path
    test: SampleSet
    labels: list[int]
    predictions: list[int]


@dataclass(frozen=True)
class Server:
    """A server as a process, and a client of it that knows nothing of ours."""

    process: subprocess.Popen[str]
    url: str

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, dict]:
        """The status and the JSON of an answer."""
        answer = urllib3.request(method, self.url + path, body=body, retries=False, timeout=60)
        return answer.status, answer.json()

    def say(self, *sent: bytes) -> bytes:
        """Sends these bytes over a connection; returns the reply until the server closes it."""
        with socket.create_connection(self.address, timeout=60) as connection:
            for part in sent:
                connection.sendall(part)
            return receive_all(connection)

    def end(self, number: int = signal.SIGINT) -> tuple[int, dict, str]:
        """Send a signal; gives the exit status, the summary, and what stderr said since."""
        self.process.send_signal(number)
        status = self.process.wait(timeout=60)
        return status, json.loads(self.process.stdout.read()), self.process.stderr.read()


def receive_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received
