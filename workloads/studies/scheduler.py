"""The I/O scheduler of a study's own disk: one that requests are inserted into.

A loop device has no scheduler by default. Most of its requests are then issued without an insertion
(block/blk-mq.c blk_mq_submit_bio()), and the event block_rq_insert says nothing about them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from tracer.store.files import as_invoking_user, read_bounded, write_whole

INSERTING = ("mq-deadline", "bfq", "kyber")
"""Schedulers, by preference: a disk gets the first one that the kernel has."""
NOTE = "scheduler.txt"
"""The file in the study's folder that holds the earlier scheduler."""

_MOST_BYTES = 64
_DEVICES = Path("/sys/dev/block")


def current(device: str) -> str | None:
    """Returns the scheduler of a disk, named MAJOR:MINOR; None if the kernel does not tell."""
    names = _names(device)
    active = [name for name in names if name.startswith("[")]
    return (active or names)[0].strip("[]") if names else None


def set_inserting(device: str, folder: Path) -> str | None:
    """Gives a disk the first scheduler of `INSERTING` that the kernel has. Returns its scheduler.

    If the kernel has none of them, the disk keeps its scheduler. The earlier scheduler is kept in
    `folder` for `put_back`. Returns None if the kernel does not tell the scheduler.
    """
    before = current(device)
    if before is None or before in INSERTING:
        return before
    with as_invoking_user():
        write_whole(folder / NOTE, before.encode())
    for name in INSERTING:
        with contextlib.suppress(OSError):
            # If the scheduler is a module, the kernel loads it.
            _write(device, name)
            break
    return current(device)


def put_back(numbers: Iterable[str], folder: Path) -> None:
    """Gives disks the scheduler back that `set_inserting` kept in `folder`; without it, nothing.

    A loop device keeps its scheduler when it loses its file, and the next file gets it.
    """
    note = folder / NOTE
    try:
        before = read_bounded(note, _MOST_BYTES).decode("ascii")
    except (OSError, ValueError):
        return
    for number in numbers:
        # The folder may be another user's: a name that the kernel does not list loads no module.
        if before in [name.strip("[]") for name in _names(number)]:
            with contextlib.suppress(OSError):
                _write(number, before)
    with contextlib.suppress(OSError), as_invoking_user():
        note.unlink()


def _names(device: str) -> list[str]:
    """Returns the schedulers that the kernel lists for a disk, the active one in brackets."""
    try:
        return (_DEVICES / device / "queue/scheduler").read_text().split()
    except OSError:
        return []


def _write(device: str, name: str) -> None:
    (_DEVICES / device / "queue/scheduler").write_text(name)
