"""Jobs that fork from a process which has imported PyTorch, and mark their phases.

An import takes seconds, as much as some jobs. A job waits until it is let go, so that a recorder
can attach to it before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tracer.session.marks import environment_for

_SERVE = """
import atexit, json, os, sys
while line := sys.stdin.readline():
    source, arguments = json.loads(line)
    ready, go = os.pipe()
    job = os.fork()
    if job == 0:
        os.close(go)
        status = 1
        if os.read(ready, 1):
            sys.argv[1:] = arguments
            try:
                exec(compile(source, "job", "exec"), globals())
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            atexit._run_exitfuncs()
            sys.stdout.flush()
        os._exit(status)
    os.close(ready)
    print(job, flush=True)
    if sys.stdin.readline(): os.write(go, b"x")
    os.close(go)
    print(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]), flush=True)
"""


class ForkedJobs:
    """The process that forks. It has executed `preamble`, whose names the jobs know."""

    def __init__(self, folder: Path, preamble: str) -> None:
        """Starts it; it writes to `folder`, which is empty."""
        program, marks = folder / "jobs.py", folder / "marks"
        program.write_text(preamble + _SERVE)
        marks.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment_for(marks, automatic=True),
        )

    def start(self, source: str, *arguments: object) -> int:
        """Forks a job that waits; returns its pid. `sys.argv` has its arguments."""
        self._tell(json.dumps([source, [*map(str, arguments)]]))
        return self._number()

    def go(self) -> None:
        """Lets the job go that was forked last."""
        self._tell("go")

    def status(self) -> int:
        """Waits for the end of the job; returns its exit status."""
        return self._number()

    def close(self) -> None:
        """Ends the process, and a job that still waits."""
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _number(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())
