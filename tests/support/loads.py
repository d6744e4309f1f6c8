"""Several loads in one recording: a recording costs seconds, most loads some milliseconds."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import Ran
from tests.support.losses import losses
from tests.support.warm import Tracer
from tracer.store.trace import Trace

_DRIVER = """
import json, subprocess, sys
ran = {}
for name, command in json.load(open(sys.argv[1])).items():
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        out = process.stdout.read()
    ran[name] = (process.pid, process.returncode, out)
json.dump(ran, open(sys.argv[2], "w"))
"""
PYTHON = (sys._base_executable, "-S", "-E")
"""The interpreter itself: as few calls of its own as can be."""


def program(folder: Path, name: str, source: str) -> list[str]:
    """Write a Python program to a file of its own; returns its command line."""
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(source))
    return [*PYTHON, str(path)]


class Load(NamedTuple):
    """A load that ran: its process, and its stdout."""

    pid: int
    out: str


class Recorded:
    """A recording of several loads."""

    def __init__(self, trace: Trace, loads: Mapping[str, Load]) -> None:
        """Take the opened trace, and what ran, by name."""
        self.trace = trace
        self.loads = loads

    def pid(self, name: str) -> int:
        """The process id of a load."""
        return self.loads[name].pid

    def pids(self, name: str) -> list[int]:
        """The process ids of a load, its children, and theirs."""
        return self.family(self.pid(name))

    def family(self, pid: int) -> list[int]:
        """The process ids of a process, its children, and theirs."""
        found = self.rows(
            """
            WITH RECURSIVE family(pid) AS (
                SELECT ?::INT
                UNION SELECT p.pid FROM processes p JOIN family ON p.ppid = family.pid
            ) SELECT pid FROM family ORDER BY pid
            """,
            pid,
        )
        return [pid for (pid,) in found]

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a query over the whole trace."""
        return self.trace.connection.execute(query, list(parameters)).fetchall()

    def one(self, query: str, *parameters: object) -> Any:
        """The first value of the only row of a query."""
        ((value, *_),) = self.rows(query, *parameters)
        return value


def record(
    folder: Path,
    loads: Mapping[str, str | Sequence[object]],
    *options: object,
    backend: str = "ftrace",
) -> Recorded:
    """Record loads that run one after the other; each succeeds, and no event is lost.

    A load is the source of a Python program, or a command line.
    """
    commands = {
        name: program(folder, name, load) if isinstance(load, str) else [*map(str, load)]
        for name, load in loads.items()
    }
    told, ran = folder / "loads.json", folder / "ran.json"
    told.write_text(json.dumps(commands))
    command = [*program(folder, "driver", _DRIVER), told, ran]
    arguments = ("record", "-o", folder / "x.trace", "--backend", backend, *options, "--", *command)
    ended = finished(arguments, folder)
    assert ended.status == 0, ended.err
    found = json.loads(ran.read_text())
    failed = {name: status for name, (_, status, _) in found.items() if status}
    assert not failed, ended.err
    trace = Trace(folder / "x.trace")
    assert losses(trace) == []
    return Recorded(trace, {name: Load(pid, out) for name, (pid, _, out) in found.items()})


def finished(arguments: Iterable[object], folder: Path) -> Ran:
    """Run `tracer` in a folder to its end."""
    with Tracer(*arguments, cwd=folder) as process:
        out, err = process.communicate(timeout=300)
    assert "Traceback" not in err, err
    return Ran(process.returncode, out, err)


OTHER_THREADS_EXECUTE = """
import os, threading
for _ in range(23):
    if os.fork() == 0:
        threading.Thread(target=os.execv, args=("/bin/true", ["true"])).start()
        threading.Event().wait()
    os.wait()
"""
"""A program with 23 children, in each of which another thread than the first executes a program."""
