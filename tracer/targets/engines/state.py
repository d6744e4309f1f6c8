"""Files in which engines keep their state, read as hostile input.

Each user can run podman, and anyone can call a process conmon. No link is followed, sizes are
limited, a file must belong to the engine's own user, and JSON is checked key by key.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from tracer.probes.openat import open_folder
from tracer.probes.proc import read_mounts, read_stat
from tracer.store.checked import parsed
from tracer.store.files import open_regular

MOST_CONTAINERS = 10_000
"""Most containers of which one engine's folder is read."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,255}")
_COMMAND_LINE = 64 << 10
ENDED = ("Z", "X")
"""States of a process that has ended and is not reaped."""


class Refused(Exception):
    """A file or folder is absent, or cannot be trusted."""


@contextlib.contextmanager
def folder(path: str) -> Iterator[int]:
    """Opens a folder by its absolute path, without following a link. Raises Refused."""
    place = PurePosixPath(path)
    if not place.is_absolute() or ".." in place.parts:
        raise Refused(f"{path} is no absolute path")
    for mount in read_mounts():
        if mount.answered_by_others and mount.holds(os.fsencode(place)):
            raise Refused(f"{path} may never answer")
    try:
        opened = open_folder(str(place))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise Refused(str(error)) from None
    try:
        yield opened
    finally:
        os.close(opened)


def read(name: str, within: int, owner: int, limit: int) -> bytes:
    """Returns a regular file of an open folder. Raises Refused, also if its owner is another."""
    try:
        with open_regular(name, dir_fd=within) as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (0, owner) or status.st_size > limit:
                raise Refused(f"{name} has another owner, or more than {limit} bytes")
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise Refused(str(error)) from None
    if len(data) > limit:
        raise Refused(f"{name} has more than {limit} bytes")
    return data


def read_json(kind: Any, name: str, within: int, owner: int, limit: int) -> Any:
    """Returns a JSON file as a value of `kind`, see `read`. Raises Refused."""
    try:
        return parsed(kind, read(name, within, owner, limit))
    except ValueError:
        raise Refused(f"{name} is not as expected") from None


def plain(name: str) -> bool:
    """Returns whether a text is a name as engines allow it: letters, digits and _.- only."""
    return _NAME.fullmatch(name) is not None


def processes(name: str) -> Iterator[int]:
    """Yields the processes whose name (comm) begins so."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{entry}/comm").read_text(errors="replace").startswith(name):
                    yield int(entry)


def children() -> dict[int, list[int]]:
    """Returns the processes that live, by their parents; none that wait to be reaped."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = read_stat(int(entry))
            if stat is not None and stat.state not in ENDED:
                found.setdefault(stat.ppid, []).append(int(entry))
    return found


def command_line(pid: int) -> list[str]:
    """Returns the command line of a process; empty if it is gone."""
    try:
        with Path(f"/proc/{pid}/cmdline").open("rb") as file:
            data = file.read(_COMMAND_LINE)
    except OSError:
        return []
    return [os.fsdecode(word) for word in data.removesuffix(b"\0").split(b"\0")] if data else []


def user_of(pid: int) -> int | None:
    """Returns the real user of a process; None if it is gone.

    The owner of /proc/PID would be root for a process that has made itself undumpable.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"^Uid:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None
