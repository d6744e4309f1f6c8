"""A command with all that it starts: ended together, also by whoever comes after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from workloads.interrupt import held

_PATIENCE_S = 15
_LONGEST_NOTE = 1 << 20


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
    process = None
    try:
        # A Ctrl-C amid Popen would leave a process that nobody knows.
        with held():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
            )
        say(note, process.pid)
        yield process
    except BaseException:
        if process is not None:
            _end(process)
            forget(note, process.pid)
        raise
    if process.poll() is None:
        _end(process)
    forget(note, process.pid)


def run(
    command: list[str], note: Path | None = None, longest_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a session of its own to its end, with what it printed.

    Raises subprocess.TimeoutExpired where that takes longer.
    """
    with started(command, note) as running:
        return running.wait(longest_s)


def say(note: Path | None, session: int) -> None:
    """Write down that a session runs, for `end_left`: a line each."""
    if note is not None:
        began = psutil.Process(session).create_time()
        with _opened(note, os.O_APPEND) as file:
            file.write(json.dumps({"session": session, "started": began}) + "\n")


def forget(note: Path | None, session: int) -> None:
    """Strike out a session that has ended; an empty note is removed."""
    if note is None or not os.path.lexists(note):
        return
    own = f'{{"session": {session},'
    left = [line for line in _lines(note) if not line.startswith(own)]
    if left:
        with _opened(note, os.O_TRUNC) as file:
            file.write("\n".join(left) + "\n")
    else:
        note.unlink()


def _opened(note: Path, how: int) -> IO[str]:
    """The note, open for writing, and never what a link in its place names."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how
    return os.fdopen(os.open(note, flags, 0o600), "w")


def _lines(note: Path) -> list[str]:
    """The lines of a note that this user has written; none of anybody else's.

    Whoever else wrote it could have any session killed.
    """
    try:
        fd = os.open(note, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        own = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        if not stat.S_ISREG(status.st_mode) or not own:
            return []
        return file.read(_LONGEST_NOTE).decode("utf-8", "replace").splitlines()


def end_left(note: Path) -> None:
    """Kill what is left of the sessions of a runner that was killed."""
    for line in _lines(note):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            told = json.loads(line)
            _end_left(int(told["session"]), float(told["started"]))
    note.unlink(missing_ok=True)


def _end_left(session: int, began: float) -> None:
    members = list(_members(session))
    # A number is not given away while a session has it; one that began later has taken it over.
    leader = next((member for member in members if member.pid == session), None)
    if leader is None or leader.create_time() == began:
        for member in members:
            _kill(member)
        psutil.wait_procs(members, timeout=_PATIENCE_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)  # a background job may ignore SIGINT
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_PATIENCE_S)
    for member in _members(process.pid):
        _kill(member)
    process.wait()


def _members(session: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == session:
                yield process


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
