"""Commands that run in a session of their own.

A session is the command with all processes that it starts. They end together. If the runner was
killed, the next runner ends the sessions that it left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tracer.probes.kernel import boot_id, process_alive, process_start_time
from tracer.workloads import session_notes
from tracer.workloads.interrupt import held
from tracer.workloads.session_notes import Noted

SESSION_ENV = "TRACER_SESSION"
"""Environment variable that marks the processes of a session; they inherit it."""
_PATIENCE_S = 15
_MOST_ROUNDS = 100
_MOST_LOOKS = 20
_BETWEEN_LOOKS_S = 0.01


@dataclass(frozen=True)
class Started:
    """A command that runs in a session of its own, with its stdout and stderr."""

    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]

    def wait(self, longest_s: float | None = None) -> subprocess.CompletedProcess[bytes]:
        """Waits until it ends. Raises subprocess.TimeoutExpired after `longest_s` seconds."""
        status = self.process.wait(longest_s)
        self.out.seek(0)
        self.err.seek(0)
        return subprocess.CompletedProcess(
            self.process.args, status, self.out.read(), self.err.read()
        )


@contextlib.contextmanager
def started(command: list[str], note: Path | None = None) -> Iterator[Started]:
    """Runs a command in a session of its own. The session ends no later than the block.

    A command that still runs then, or when the block raises (Ctrl-C, for example), gets SIGTERM.
    If that does not help, it and all processes that it started get SIGKILL. While it runs, the
    file `note` names its session, so that `end_left` finds it.
    """
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        begun(command, note, out, err) as process,
    ):
        yield Started(process, out, err)


@contextlib.contextmanager
def begun(
    command: list[str],
    note: Path | None,
    out: IO[bytes] | int,
    err: IO[bytes] | int,
    take: IO[bytes] | int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[bytes]]:
    """Does the same as `started`; `take`, `out` and `err` are the streams of subprocess.Popen."""
    process, noted = None, None
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    try:
        # A Ctrl-C inside Popen would leave a process that no note names.
        with held():
            token = secrets.token_hex(16)
            process = subprocess.Popen(
                command,
                stdin=take,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={**environment, SESSION_ENV: token},
            )
            noted = session_notes.of(process.pid, token)
        if note is not None:
            session_notes.add(note, noted)
        yield process
    except BaseException:
        if process is not None and noted is not None:
            _end(process, noted, note, whole=True)
        raise
    _end(process, noted, note)


def run(
    command: list[str], note: Path | None = None, longest_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command in a session of its own to its end. Returns its status and output.

    Raises subprocess.TimeoutExpired after `longest_s` seconds.
    """
    with started(command, note) as running:
        return running.wait(longest_s)


def end_left(note: Path) -> None:
    """Kills the processes that are left of the sessions of a killed runner.

    Raises JobError for a note that another user may have written, since no other user may choose
    the processes that are killed.
    """
    for noted in session_notes.read(note):
        # The kernel reuses process numbers, and starts again after a boot.
        if noted.boot == boot_id() and not process_alive(noted.runner, noted.runner_start):
            _kill(noted)
    note.unlink(missing_ok=True)


def _end(
    process: subprocess.Popen[bytes], noted: Noted, note: Path | None, whole: bool = False
) -> None:
    """Ends a session, if its command still runs or it is to end as a `whole`, and forgets its note.

    A Ctrl-C meanwhile does not leave the session: it gets SIGKILL at once.
    """
    runs = process.poll() is None
    try:
        if runs:  # later another group may have its number
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # a background job may ignore SIGINT
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_PATIENCE_S)
    finally:
        with held():
            if runs or whole:
                _kill(noted)
                process.wait()
            if note is not None:
                session_notes.remove(note, noted)


def _kill(noted: Noted) -> None:
    """Kills the processes of a session and those that they fork, and waits until they end."""
    for _ in range(_MOST_ROUNDS):
        found = list(_members(noted))
        for fd in found:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        for fd in found:
            ended = select.poll()
            ended.register(fd, select.POLLIN)
            ended.poll(1000 * _PATIENCE_S)
            os.close(fd)
        if not found:
            return


def _members(noted: Noted) -> Iterator[int]:
    """Yields pidfds of the processes of a session, without processes that reuse its numbers."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if os.getsid(int(name)) != noted.session:
                continue
            fd = os.pidfd_open(int(name))
            try:
                ours = _is_member(int(name), noted)
                signal.pidfd_send_signal(fd, 0)  # proves that the process has lived since the open
            except OSError:
                ours = False
            if ours:
                yield fd
            else:
                os.close(fd)


def _is_member(pid: int, noted: Noted) -> bool:
    """Returns whether a process belongs to this session, not to one that reuses its number.

    It does if the session's first process is still there, or if the process has the token.
    """
    if os.getsid(pid) != noted.session or not _runs(pid):
        return False
    if process_start_time(noted.session) == noted.start:
        return True  # the number of a session is not reused while its first process exists
    token = f"{SESSION_ENV}={noted.token}".encode()
    return token in _environment(pid).split(b"\0")


def _environment(pid: int) -> bytes:
    """Returns the environment of a process, which is empty for a moment in each execve(2)."""
    for _ in range(_MOST_LOOKS):
        if found := Path(f"/proc/{pid}/environ").read_bytes():
            return found
        time.sleep(_BETWEEN_LOOKS_S)
    return b""


def _runs(pid: int) -> bool:
    return process_alive(pid, process_start_time(pid))
