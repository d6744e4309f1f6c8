"""A folder with the targets' marks, and the choice of the files that belong to the recording."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tracer.phases.format import NOTE_SUFFIX, RECORD_BYTES, SUFFIX
from tracer.probes.kernel import process_start_ns
from tracer.targets import Target

MOST_FILES = 100_000
MOST_ENTRIES = 1_000_000
"""Names read in one folder, at most."""
MAX_BYTES = 16 << 20
"""Most bytes of one file: a writer begins another after 256 KiB."""
_PIECE = 1 << 18
_MOST_MAPPED = 1000
"""Files of marks mapped by one process, at most."""

_NAME = re.compile(
    rf"^(?P<process>(?P<pid>\d{{1,10}})-(?P<ns>\d{{1,20}}))"
    rf"(-\d+{re.escape(SUFFIX)}|{re.escape(NOTE_SUFFIX)})$"
)
_MAPPED = re.compile(rf"/(\d{{1,10}}-\d{{1,20}})-\d+{re.escape(SUFFIX)}\n$")
_UIDS = re.compile(r"^Uid:(.*)$", re.MULTILINE)
_OWN_PIDS = re.compile(r"^NSpid:(.*)$", re.MULTILINE)


@dataclass
class MarksFolder:
    """A folder with the targets' marks, kept open so that it outlives their processes.

    It may hold files of earlier runs and earlier boots with the same pids. The wall clock cannot
    distinguish them, because it may be set. A file belongs to the recording if a process of the
    targets had it mapped at the start, or when it joined, or if it did not exist at the start.
    """

    fd: int
    targets: list[Target]
    foreign: bool
    """True if some of the folder's processes are in another pid namespace."""
    users: set[int] = field(default_factory=set)
    """User ids of the processes; files of other users are not copied."""
    processes: dict[int, set[int]] = field(default_factory=dict)
    """The processes before `remember`: their own pids to the pids of this machine."""
    named: set[str] = field(default_factory=set)
    """Processes, as in file names, whose pids on this machine were found."""
    mapped: set[str] = field(default_factory=set)
    """Processes, as in file names, that had marks files mapped at the start or when they joined."""
    _before: set[str] = field(default_factory=set)
    """Other processes with files at the start that look like processes of the recording."""
    _full: bool = False
    remembered: bool = False
    """True once its files were noted."""
    watched: bool = False
    """True if new files in it are reported."""
    _path: Path | None = field(init=False)

    def __post_init__(self) -> None:
        """Notes where the folder lies."""
        self._path = _path_of(self.fd)

    @property
    def moved(self) -> bool:
        """True if the folder was renamed or removed since: there may be another one in its place.

        The kernel knows it without asking the file system.
        """
        return _path_of(self.fd) != self._path

    def add(self, target: Target, pid: int) -> None:
        """Adds a process of a target that names the folder."""
        if target not in self.targets:
            self.targets.append(target)
        self.users |= users_of(pid)
        if self.remembered:  # its own pid may be that of an earlier run's process
            self.mapped |= mapped_by(pid)
        else:
            self.processes.setdefault(own_pid(pid), set()).add(pid)

    def update(self, told: MarksFolder) -> None:
        """Adds the facts about this folder that another process knew."""
        if told is not self:
            os.close(told.fd)
            self.targets += [target for target in told.targets if target not in self.targets]
            self.users |= told.users
            self.mapped |= told.mapped
            self.foreign |= told.foreign

    def remember(self, begun_ns: int) -> bool:
        """Notes the files before the recording. Returns True if there are too many to note."""
        self.remembered = True
        for match in mark_files(self.fd, MOST_ENTRIES):
            if int(match["pid"]) in self.processes or int(match["ns"]) >= begun_ns:
                if len(self._before) >= MOST_FILES:
                    self._full = True
                    break
                self._before.add(match["process"])
        # Read the mappings after the listing: a file mapped by now may be newer than the listing.
        for pid in set().union(*self.processes.values()):
            self.mapped |= mapped_by(pid)
        return self._full

    def holds_now(self, match: re.Match[str], begun_ns: int) -> bool:
        """Returns whether a file's process lived at the start or has begun since."""
        process, own, ns = match["process"], int(match["pid"]), int(match["ns"])
        if process in self.mapped:
            return True
        if process in self._before or self._full:
            return match[0].endswith(NOTE_SUFFIX) and self._in_lifetime(own, ns, begun_ns)
        return own in self.processes or ns >= begun_ns

    def _in_lifetime(self, own: int, ns: int, begun_ns: int) -> bool:
        """Returns whether `ns` lies before the start, in the life of a process with that pid."""
        started = [process_start_ns(pid) for pid in self.processes.get(own, ())]
        return any(start is not None and start <= ns < begun_ns for start in started)


def _path_of(fd: int) -> Path | None:
    with contextlib.suppress(OSError):  # it lies too deep to have a path
        return Path(f"/proc/self/fd/{fd}").readlink()
    return None


def mark_files(fd: int, most: int) -> Iterator[re.Match[str]]:
    """Yields the matched names of marks and notes, among the first `most` names of a folder.

    Groups: process (pid and time, as in the name), pid, ns.
    """
    with os.scandir(fd) as entries:
        for entry in itertools.islice(entries, most):
            match = _NAME.match(entry.name)
            if match:
                yield match


def mapped_by(pid: int) -> set[str]:
    """Returns the writers, as in file names, of the marks files that a process has mapped."""
    found: set[str] = set()
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/maps").open(errors="replace") as lines:
        for line in lines:
            match = _MAPPED.search(line)
            if match and len(found) < _MOST_MAPPED:
                found.add(match[1])
    return found


def users_of(pid: int) -> set[int]:
    """Returns a process's user ids, real and effective."""
    with contextlib.suppress(OSError):
        found = _UIDS.search(Path(f"/proc/{pid}/status").read_text(errors="replace"))
        return set(map(int, found[1].split())) if found else set()
    return set()


def own_pid(pid: int, process: int | None = None) -> int:
    """Returns the pid of a process, or of a thread of `process`, in its innermost pid namespace.

    Returns `pid` itself if the process is gone.
    """
    folder = f"/proc/{pid}" if process is None else f"/proc/{process}/task/{pid}"
    with contextlib.suppress(OSError, ValueError):
        line = _OWN_PIDS.search(Path(folder, "status").read_text(errors="replace"))
        return int(line[1].split()[-1]) if line else pid
    return pid


def until_zeros(file: BinaryIO) -> bytes:
    """Returns a file's whole records before the zeros at its end; at most `MAX_BYTES`."""
    pieces = []
    for _ in range(MAX_BYTES // _PIECE):
        piece = file.read(_PIECE)
        if not piece.strip(b"\0"):  # a writer allocates no more than one piece ahead
            break
        pieces.append(piece)
    data = b"".join(pieces)
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // RECORD_BYTES) * RECORD_BYTES]
