"""`tracer` in processes of its own that are forked from one which has imported everything.

A forked `tracer` is a real process, with its own pid, signals, environment and capabilities; it
only does not spend two seconds on imports. Tests of the start itself (closed streams, mounts,
another user, a shell's `trap`) run `tests.conftest.tracer_command` instead.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import TimeoutExpired

# Arrow's own allocator takes a gibibyte at once: what input costs could not be told from it.
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.support.imported"])


class Tracer:
    """A running `tracer`; used as `subprocess.Popen` is, with text pipes."""

    def __init__(
        self,
        *arguments: object,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
        new_session: bool = False,
    ) -> None:
        """Start it; `before` is called in the new process, and must be a module's function."""
        self.args = list(map(str, arguments))
        stdin, self._stdin = context.Pipe(duplex=False)
        self._stdout, stdout = context.Pipe(duplex=False)
        self._stderr, stderr = context.Pipe(duplex=False)
        place = os.fspath(cwd or Path.cwd())
        environment = dict(os.environ if env is None else env)
        self._process = context.Process(
            target=_run,
            args=(self.args, place, environment, before, new_session, (stdin, stdout, stderr)),
        )
        self._process.start()
        for end in (stdin, stdout, stderr):
            end.close()
        self.stdin = _text(self._stdin, "w")
        self.stdout = _text(self._stdout, "r")
        self.stderr = _text(self._stderr, "r")

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status; minus the signal's number if one ended it, None while it runs."""
        return self._process.exitcode

    poll = returncode.fget

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit status. TimeoutExpired after so many seconds."""
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def communicate(
        self, input: str | None = None, timeout: float | None = None
    ) -> tuple[str, str]:
        """Send the input, close stdin, and read both outputs to their ends."""
        said: dict[str, str] = {"stdout": "", "stderr": ""}

        def read(name: str) -> None:
            stream = getattr(self, name)
            if not stream.closed:
                said[name] = stream.read()
                stream.close()

        readers = [threading.Thread(target=read, args=(name,), daemon=True) for name in said]
        for reader in readers:
            reader.start()
        if not self.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.write(input or "")
                self.stdin.close()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise TimeoutExpired(self.args, timeout or 0)
        return said["stdout"], said["stderr"]

    def close(self) -> None:
        """Close the pipes and wait for its end; a child of it may still hold the other ends."""
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._process.join()

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(end: Connection, mode: str) -> io.TextIOBase:
    """A text stream over a pipe, which it owns from now on."""
    fd = os.dup(end.fileno())
    end.close()
    return os.fdopen(fd, mode)


def _run(
    arguments: list[str],
    place: str,
    environment: dict[str, str],
    before: Callable[[], None] | None,
    new_session: bool,
    ends: tuple[Connection, Connection, Connection],
) -> None:
    """Be `tracer` with these arguments, in the forked process."""
    if new_session:
        os.setsid()
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    for fd, (end, name) in enumerate(zip(ends, ("stdin", "stdout", "stderr"), strict=True)):
        os.dup2(end.fileno(), fd, inheritable=True)
        end.close()
        setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", closefd=False))
    sys.argv = ["tracer", *arguments]
    if before is not None:
        before()
    from tracer.cli.main import main

    main()
