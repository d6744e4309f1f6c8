"""Runs Docker's own command, `docker`, in a process of its own, which a recording can follow.

Users start containers with `docker run`, and its processes take part in the cost of a container
(Park & Bahn 2023, Table 8). A process that starts them all exists before the recording begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tracer.workloads import sessions
from tracer.workloads.errors import BrokenJobError
from tracer.workloads.interrupt import held

NAME = "docker-cli"
"""Name of the process, and so of its target in a recording."""
_PROGRAM = """
import ctypes, json, subprocess, sys
ctypes.CDLL(None).prctl(15, sys.argv[1].encode())  # PR_SET_NAME
print("[]", flush=True)
for line in sys.stdin:
    ran = subprocess.run(json.loads(line), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    print(json.dumps([ran.returncode, ran.stderr[-9999:]]), flush=True)
"""
_ANSWER_S = 120
_DEFAULT_HOST = "unix:///var/run/docker.sock"


@dataclass(frozen=True)
class Starter:
    """A process that runs `docker` for this one."""

    pid: int
    _program: str
    _asks: IO[bytes]
    _answers: IO[bytes]

    def run(self, *arguments: str) -> None:
        """Runs `docker ARGUMENTS`. Raises BrokenJobError with the last line that it printed."""
        host = os.environ.get("DOCKER_HOST") or _DEFAULT_HOST  # not that of Docker's context
        command = [self._program, "--host", host, *arguments]
        try:
            # Whoever is interrupted must know of the container that `docker run` makes.
            with held():
                self._asks.write(json.dumps(command).encode() + b"\n")
                self._asks.flush()
                ready = select.select([self._answers], [], [], _ANSWER_S)[0]
                answer = self._answers.readline() if ready else b""
            status, said = json.loads(answer)
        except (OSError, ValueError):
            status, said = 1, None
        if status:
            lines = (said or f"no answer within {_ANSWER_S} s").strip().splitlines()
            raise BrokenJobError(
                f"`docker {arguments[0]}` failed: {lines[-1][:300] if lines else status}",
                "look at the daemon's log, and at the space on its disk (docker system df)",
            )


@contextlib.contextmanager
def starter(note: Path | None) -> Iterator[Starter | None]:
    """Starts the process; it ends with the block. Gives None if `docker` is not installed.

    `note` is that of `sessions.begun`.
    """
    program = shutil.which("docker")
    if program is None:
        yield None
        return
    command = [sys.executable, "-S", "-E", "-c", _PROGRAM, NAME]
    pipe = subprocess.PIPE
    with sessions.begun(command, note, pipe, subprocess.DEVNULL, take=pipe) as process:
        assert process.stdin is not None and process.stdout is not None
        with process.stdout as answers, process.stdin as asks:
            answers.readline()
            yield Starter(process.pid, program, asks, answers)
