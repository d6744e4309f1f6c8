"""Notes of the sessions that a runner has begun, for whoever comes after a kill.

Another user may write into the folder that a note lies in. A note counts only where this user
alone can have written it: no link, no second name, its own file.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from probes.kernel import boot_id, process_start_time
from tracer.store.files import open_regular, write_whole
from workloads.errors import JobError

_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Noted:
    """A session, and the runner that began it. Times are clock ticks since the boot named."""

    session: int
    start: int | None
    runner: int
    runner_start: int | None
    boot: str
    token: str
    """In the environment of all its processes."""


_NOTES = TypeAdapter(list[Noted])


def of(session: int, token: str) -> Noted:
    """The note of a session of this process, whose first process has not been waited for."""
    own = os.getpid()
    return Noted(
        session, process_start_time(session), own, process_start_time(own), boot_id(), token
    )


def read(note: Path) -> list[Noted]:
    """The sessions that a note tells of; none where there is no note.

    Raises JobError for a note that somebody else may have written.
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
            f"{note} does not tell what a killed study left: {why}", "see it, and remove it"
        ) from None


def add(note: Path, noted: Noted) -> None:
    """Note a session. Raises as `read` does; OSError where it cannot be written."""
    _write(note, [*read(note), noted])


def remove(note: Path, noted: Noted) -> None:
    """Strike out a session that has ended; an empty note is removed."""
    left = [other for other in read(note) if other != noted]
    if left:
        _write(note, left)
    else:
        note.unlink(missing_ok=True)


def _write(note: Path, sessions: list[Noted]) -> None:
    write_whole(note, json.dumps([asdict(noted) for noted in sessions]).encode())
