"""Files in which engines keep their state, read as hostile input.

Each user can run podman, and anyone can call a process conmon. No link is followed, sizes are
limited, a file must belong to the engine's own user, and JSON is checked key by key.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tracer.probes import proc
from tracer.probes.cgroups import container_id
from tracer.probes.openat import known, open_folder
from tracer.probes.proc import read_mounts, read_stat
from tracer.store.checked import parsed
from tracer.store.files import open_regular

MOST_CONTAINERS = 10_000
"""Most containers of which one engine's folder is read."""
_MOST_OF_USER, _MOST_OF_USERS = (2000, 48 << 20), (20_000, 192 << 20)
"""Most containers, and bytes of files, of a user other than root, and of all such users."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,255}")
ENDED = ("Z", "X")
"""States of a process that has ended and is not reaped."""


class Refused(Exception):
    """A file or folder is absent, or cannot be trusted."""


@dataclass(frozen=True)
class Side:
    """The user, the root folder and the container of a monitor: what it is believed about.

    Anyone may start a process that is called like a monitor, also as root of a container.
    """

    owner: int
    root: tuple[int, int] | None
    """Device and inode; None: it cannot be read."""
    container: str | None
    """The id of the container in which it runs; None: in none, or in ours."""

    @property
    def here(self) -> bool:
        """True if its paths are ours, too."""
        return self.container is None and self.root == _root_of("self")

    @property
    def trusted(self) -> bool:
        """True for a monitor of root that is in no container."""
        roots = (None, _root_of("self"), _root_of(1))
        return self.owner == 0 and self.container is None and self.root in roots

    @property
    def payer(self) -> int:
        """The user whose share its files take: 0 if it is trusted, -1 for root in a container."""
        return self.owner or (0 if self.trusted else -1)


def side_of(pid: int) -> Side | None:
    """Returns a process's side; None if the process is gone."""
    owner = user_of(pid)
    if owner is None:
        return None
    others = containers_of(pid) - containers_of("self")
    return Side(owner, _root_of(pid), min(others, default=None))


def containers_of(pid: int | str) -> set[str]:
    """Returns the ids of the containers in which a process runs; empty if it is gone."""
    with contextlib.suppress(OSError):
        return set(filter(None, map(container_id, proc.lines(f"/proc/{pid}/cgroup"))))
    return set()


def _root_of(pid: int | str) -> tuple[int, int] | None:
    """Returns device and inode of a process's root folder. No file system is asked."""
    try:
        fd = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = known(fd)
    finally:
        os.close(fd)
    return found.device, found.inode


class Shares:
    """Bounds of what users' files may take in one look at an engine: it must not take hours."""

    def __init__(self) -> None:
        self.containers: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()

    def of(self, payer: int) -> Share:
        """Returns the share of a user (`Side.payer`)."""
        return Share(self, payer)


class Share:
    """The share of one user in a look. That of root has no limit."""

    def __init__(self, among: Shares, payer: int) -> None:
        self._among = among
        self._payer = payer

    def has_room(self) -> bool:
        """Returns whether another container of the user may be looked at, and counts it."""
        return self._takes(self._among.containers, 1, 0)

    def take(self, size: int) -> None:
        """Counts the bytes of a file. Raises Refused if they are too many."""
        if not self._takes(self._among.bytes, size, 1):
            raise Refused(f"the files of user {self._payer} are too large together")

    def _takes(self, counts: Counter[int], count: int, which: int) -> bool:
        if self._payer == 0:
            return True
        each, every = _MOST_OF_USER[which], _MOST_OF_USERS[which]
        if counts[self._payer] + count > each or counts.total() + count > every:
            return False
        counts[self._payer] += count
        return True


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


def names_in(folder: int, most: int) -> list[str]:
    """Returns the first `most` names in an open folder, sorted. Raises OSError."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in itertools.islice(entries, most))


def read(name: str, within: int, owner: int, limit: int, share: Share | None = None) -> bytes:
    """Returns a regular file of an open folder, which counts towards `share`.

    Raises Refused, also if the file's owner is another user.
    """
    try:
        with open_regular(name, dir_fd=within) as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (0, owner) or status.st_size > limit:
                raise Refused(f"{name} has another owner, or more than {limit} bytes")
            if share is not None:
                share.take(status.st_size)
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise Refused(str(error)) from None
    if len(data) > limit:
        raise Refused(f"{name} has more than {limit} bytes")
    return data


def read_json(
    kind: Any, name: str, within: int, owner: int, limit: int, share: Share | None = None
) -> Any:
    """Returns a JSON file as a value of `kind`, see `read`. Raises Refused."""
    try:
        return parsed(kind, read(name, within, owner, limit, share))
    except ValueError:
        raise Refused(f"{name} is not as expected") from None


def plain(name: str) -> bool:
    """Returns whether a text is a name as engines allow it: letters, digits and _.- only."""
    return _NAME.fullmatch(name) is not None


def processes(name: str) -> Iterator[int]:
    """Yields the processes whose name (comm) begins so."""
    return proc.processes_called(name)


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
    """Returns the beginning of a process's command line; empty if the process is gone."""
    try:
        return proc.command_line(pid)
    except OSError:
        return []


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
