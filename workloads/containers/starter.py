"""Runs an engine's own command, such as `docker`, in a process that a recording can follow.

Users start containers with `docker run`, and its processes take part in the cost of a container
(Park & Bahn 2023, Table 8). A process that starts them all exists before the recording begins.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tracer.workloads import sessions
from tracer.workloads.containers.engines import Engine
from tracer.workloads.errors import BrokenJobError
from tracer.workloads.interrupt import held

_PROGRAM = """
import ctypes, json, subprocess, sys
ctypes.CDLL(None).prctl(15, sys.argv[1].encode())  # PR_SET_NAME
print("[]", flush=True)
for line in sys.stdin:
    ran = subprocess.run(json.loads(line), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    print(json.dumps([ran.returncode, ran.stderr[-9999:]]), flush=True)
"""
_ANSWER_S = 120


@dataclass(frozen=True)
class Starter:
    """A process that runs an engine's command for this one."""

    pid: int
    _engine: Engine
    _command: list[str]
    _asks: IO[bytes]
    _answers: IO[bytes]

    def run(self, *arguments: str) -> None:
        """Runs the command. Raises BrokenJobError with the last line that it printed."""
        command = [*self._command, *arguments]
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
                f"`{self._engine.name} {arguments[0]}` failed: "
                f"{lines[-1][:300] if lines else status}",
                self._engine.mend,
            )


@contextlib.contextmanager
def starter(engine: Engine, note: Path | None) -> Iterator[Starter | None]:
    """Starts the process; it ends with the block. Gives None if the command is not installed.

    `note` is that of `sessions.begun`.
    """
    program = engine.program()
    if program is None:
        yield None
        return
    command = [sys.executable, "-S", "-E", "-c", _PROGRAM, f"{engine.name}-cli"]
    pipe = subprocess.PIPE
    with sessions.begun(command, note, pipe, subprocess.DEVNULL, take=pipe) as process:
        assert process.stdin is not None and process.stdout is not None
        with process.stdout as answers, process.stdin as asks:
            answers.readline()
            yield Starter(process.pid, engine, engine.command(program), asks, answers)
