"""A command with all that it starts: ended together, also by whoever comes after a kill."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from probes.kernel import boot_id, process_alive, process_start_time
from workloads import session_notes
from workloads.interrupt import held
from workloads.session_notes import Noted

SESSION_ENV = "TRACER_SESSION"
"""Tells the processes of a session from others; they inherit it."""
_PATIENCE_S = 15
_MOST_ROUNDS = 100


@dataclass(frozen=True)
class Started:
    """A command that runs in a session of its own, and what it prints."""

    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]

    def wait(self, longest_s: float | None = None) -> subprocess.CompletedProcess[bytes]:
        """Wait for its end. Raises subprocess.TimeoutExpired where that takes longer."""
        status = self.process.wait(longest_s)
        self.out.seek(0)
        self.err.seek(0)
        return subprocess.CompletedProcess(
            self.process.args, status, self.out.read(), self.err.read()
        )


@contextlib.contextmanager
def started(command: list[str], note: Path | None = None) -> Iterator[Started]:
    """A command in a session of its own, which ends with the block if it has not ended by itself.

    It gets SIGTERM, and SIGKILL with all that it started if that does not help; so it does where
    the block raises, such as for Ctrl-C. While it runs, `note` says which session it is, for
    `end_left`.
    """
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        begun(command, note, out, err) as process,
    ):
        yield Started(process, out, err)


@contextlib.contextmanager
def begun(
    command: list[str], note: Path | None, out: IO[bytes] | int, err: IO[bytes] | int
) -> Iterator[subprocess.Popen[bytes]]:
    """As `started`, with `out` and `err` as subprocess.Popen has them."""
    process, noted = None, None
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    try:
        # A Ctrl-C amid Popen would leave a process that nobody knows.
        with held():
            token = secrets.token_hex(16)
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
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
            _end(process, noted)
            _forget(note, noted)
        raise
    if process.poll() is None:
        _end(process, noted)
    _forget(note, noted)


def _forget(note: Path | None, noted: Noted) -> None:
    if note is not None:
        session_notes.remove(note, noted)


def run(
    command: list[str], note: Path | None = None, longest_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a session of its own to its end, with what it printed.

    Raises subprocess.TimeoutExpired where that takes longer.
    """
    with started(command, note) as running:
        return running.wait(longest_s)


def end_left(note: Path) -> None:
    """Kill what is left of the sessions of a runner that was killed.

    Raises JobError for a note that this user did not write: nobody else says what is killed.
    """
    for noted in session_notes.read(note):
        # A number is given to others in time, and to all anew at a boot.
        if noted.boot == boot_id() and not process_alive(noted.runner, noted.runner_start):
            _kill(noted)
    note.unlink(missing_ok=True)


def _end(process: subprocess.Popen[bytes], noted: Noted) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)  # a background job may ignore SIGINT
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_PATIENCE_S)
    _kill(noted)
    process.wait()


def _kill(noted: Noted) -> None:
    """Kill the processes of a session, and wait for their end; those that they fork, too."""
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
    """Pidfds of the processes of a session. What has taken over one of its numbers is none."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if os.getsid(int(name)) != noted.session:
                continue
            fd = os.pidfd_open(int(name))
            try:
                ours = _is_member(int(name), noted)
                signal.pidfd_send_signal(fd, 0)  # it was there all the while
            except OSError:
                ours = False
            if ours:
                yield fd
            else:
                os.close(fd)


def _is_member(pid: int, noted: Noted) -> bool:
    """Whether a process is of this very session: its first process is, or it has the token."""
    if os.getsid(pid) != noted.session or not _runs(pid):
        return False
    if process_start_time(noted.session) == noted.start:
        return True  # a session keeps its number from others as long as its first process is there
    token = f"{SESSION_ENV}={noted.token}".encode()
    return token in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def _runs(pid: int) -> bool:
    return process_alive(pid, process_start_time(pid))
