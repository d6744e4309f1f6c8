"""A command with all that it starts: ended together, also by whoever comes after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

_PATIENCE_S = 15


def run(
    command: list[str], note: Path | None = None, longest_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a session of its own to its end, with what it printed.

    Raises subprocess.TimeoutExpired where that takes longer. An exception here, such as Ctrl-C,
    ends the whole session: it gets SIGINT, and SIGKILL if that
    does not help. While it runs, `note` says which session it is, for `end_left`.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            say(note, process.pid)
            out, err = process.communicate(timeout=longest_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_PATIENCE_S)
            for member in _members(process.pid):
                _kill(member)
            raise
    if note is not None:
        note.unlink(missing_ok=True)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def say(note: Path | None, session: int) -> None:
    """Write down which session runs, for `end_left`."""
    if note is not None:
        started = psutil.Process(session).create_time()
        note.write_text(json.dumps({"session": session, "started": started}))


def end_left(note: Path) -> None:
    """Kill what is left of the session of a runner that was killed."""
    try:
        told = json.loads(note.read_text())
        session, started = int(told["session"]), float(told["started"])
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        note.unlink(missing_ok=True)
        return
    members = list(_members(session))
    # A number is not given away while a session has it; one that began later has taken it over.
    leader = next((member for member in members if member.pid == session), None)
    if leader is None or leader.create_time() == started:
        for member in members:
            _kill(member)
        psutil.wait_procs(members, timeout=_PATIENCE_S)
    note.unlink(missing_ok=True)


def _members(session: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == session:
                yield process


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """While the block runs, SIGTERM is as Ctrl-C: what has begun is taken down again."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
