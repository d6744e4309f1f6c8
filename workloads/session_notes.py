"""Notes of the sessions that a runner has begun, for the runner that follows a killed one.

Another user may be able to write into the folder of a note. A note is accepted only if no other
user can have written it: a file of this user, no symbolic link, no second hard link.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from tracer.probes.kernel import boot_id, process_start_time
from tracer.store.files import open_regular, write_whole
from tracer.workloads.errors import JobError

_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Noted:
    """A session, and the runner that began it. Times are clock ticks since the boot `boot`."""

    session: int
    start: int | None
    runner: int
    runner_start: int | None
    boot: str
    token: str
    """Value of SESSION_ENV in the environment of all its processes."""


_NOTES = TypeAdapter(list[Noted])


def of(session: int, token: str) -> Noted:
    """Returns the note of a session that this process began and has not yet waited for."""
    own = os.getpid()
    return Noted(
        session, process_start_time(session), own, process_start_time(own), boot_id(), token
    )


def read(note: Path) -> list[Noted]:
    """Returns the sessions in a note; none if there is no note.

    Raises JobError for a note that another user may have written.
    """
    try:
        with open_regular(note) as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_nlink > 1 or status.st_mode & 0o022:
                raise ValueError(f"user {status.st_uid} has written it, or another user may")
            return _NOTES.validate_json(file.read(_MOST_BYTES), strict=True)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise JobError(
            f"cannot use {note}, the note of a killed study's processes: {why}",
            "check it, and remove it",
        ) from None


def add(note: Path, noted: Noted) -> None:
    """Adds a session to a note. Raises JobError as `read` does, and OSError if a write fails."""
    _write(note, [*read(note), noted])


def remove(note: Path, noted: Noted) -> None:
    """Removes a session that has ended from a note, and the note once it is empty."""
    left = [other for other in read(note) if other != noted]
    if left:
        _write(note, left)
    else:
        note.unlink(missing_ok=True)


def _write(note: Path, sessions: list[Noted]) -> None:
    write_whole(note, json.dumps([asdict(noted) for noted in sessions]).encode())
