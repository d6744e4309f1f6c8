"""The marks that targets leave: handed to a command, found in the environment of a process."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from probes.openat import known as known_of
from probes.openat import open_in_root
from probes.workers.opening import open_aside
from tracer.phases import MARKS_ENV
from tracer.phases.automatic import STARTUP, SYNCHRONIZE_ENV
from tracer.phases.format import NOTE_SUFFIX, RECORD_BYTES, SUFFIX
from tracer.session.mount_tree import in_user_space
from tracer.session.watch import Watch
from tracer.store import left_out
from tracer.store.files import create, open_regular
from tracer.store.listed import Lines
from tracer.store.marks import NAMES, UNKNOWN_PID
from tracer.store.names import escaped
from tracer.targets import Target, threads

_NAME = re.compile(
    rf"^(?P<process>(?P<pid>\d{{1,10}})-(?P<ns>\d{{1,20}}))"
    rf"(-\d+{re.escape(SUFFIX)}|{re.escape(NOTE_SUFFIX)})$"
)
_UIDS = re.compile(r"^Uid:(.*)$", re.MULTILINE)
_OWN_PIDS = re.compile(r"^NSpid:(.*)$", re.MULTILINE)
_MAX_BYTES = 16 << 20
"""Of one file: a writer begins another after 256 KiB."""
_MAX_FILES = 100_000
_MAX_TOTAL = 4 << 30
"""Of all files together: 64 million marks."""
_MAX_ENTRIES = 1_000_000
"""Names looked at in one folder."""
_MAX_ENVIRONMENT = 4 << 20
_PIECE = 1 << 18
_SECONDS = 2.0
"""Until a folder of theirs is open."""


def environment_for(folder: Path, automatic: bool, cuda_sync: bool = False) -> dict[str, str]:
    """The environment of a command whose marks go to `folder`.

    With `automatic`, PyTorch in it marks its phases by itself; with `cuda_sync`, it waits for the
    GPU where it marks a computation.
    """
    environment = {**os.environ, MARKS_ENV: str(folder)}
    if automatic:
        path = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(STARTUP), *([path] if path else [])])
        if cuda_sync:
            environment[SYNCHRONIZE_ENV] = "1"
    return environment


@dataclass
class _Folder:
    """A folder that targets mark into, kept open so that it outlives their processes."""

    fd: int
    targets: list[Target]
    foreign: bool
    """Whether its processes count pids in a namespace of their own."""
    users: set[int] = field(default_factory=set)
    """Whose files are theirs."""
    pids: set[int] = field(default_factory=set)
    """Of those at the start, by their own count."""
    named: set[str] = field(default_factory=set)
    """Processes, as their files are called, whose pids on this machine have been found."""


class Marks:
    """The marks of targets: of a command in `live`, of others in folders of their own.

    Whoever is recorded may write anything into those folders. What is found there is copied into
    `folder`, which is the recorder's, file by file and up to limits; each file that is left out is
    counted, by reason (`store.left_out`).
    """

    def __init__(self, folder: Path, live: Path) -> None:
        self.folder = folder
        self._live = live
        self._lost: Counter[str] = Counter()
        self._copied_bytes = 0
        self._begun = time.monotonic_ns()
        self._theirs: dict[tuple[int, int], _Folder] = {}
        self.marking: set[int] = set()
        """Processes that mark by themselves, and need not be looked into from outside."""
        self._names: Lines | None = None
        self._watch: Watch | None = None

    def find(self, targets: list[Target]) -> None:
        """Open the marks folders that processes of the targets have in their environment."""
        for target in targets:
            if target.kind in ("command", "machine"):
                continue
            for pid in target.members():
                with contextlib.suppress(OSError):
                    with Path(f"/proc/{pid}/environ").open("rb", buffering=0) as file:
                        environment = (file.read(_MAX_ENVIRONMENT) or b"").split(b"\0")
                    prefix = f"{MARKS_ENV}=".encode()
                    for entry in environment:
                        if entry.startswith(prefix) and entry != prefix:
                            self._open(target, pid, os.fsdecode(entry[len(prefix) :]))
        foreign = [folder for folder in self._theirs.values() if folder.foreign]
        if foreign:
            self._names = Lines(self.folder.parent, f"{self.folder.name}/{NAMES}")
            self._watch = Watch()
            for folder in foreign:
                self._watch.add(folder.fd)

    @property
    def readable(self) -> list[int]:
        """What can be read when it is time to look."""
        return [self._watch.fd] if self._watch is not None and self._watch.fd is not None else []

    def _open(self, target: Target, pid: int, inside: str) -> None:
        """A folder as the process sees it, which may live in a container."""
        find = partial(open_in_root, pid, inside, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fd = open_aside(find, _SECONDS)
            if in_user_space(fd, pid):
                os.close(fd)
                raise TimeoutError
        except TimeoutError:
            self._lost["their folder's file system may never answer"] += 1
            return
        status = known_of(fd)
        known = self._theirs.get((status.device, status.inode))
        if known is not None:
            os.close(fd)
        else:
            spaces = (f"/proc/{pid}/ns/pid", "/proc/self/ns/pid")
            foreign = len({Path(space).readlink() for space in spaces}) > 1
            known = self._theirs[status.device, status.inode] = _Folder(fd, [], foreign)
        if target not in known.targets:
            known.targets.append(target)
        known.pids.add(own_pid(pid))
        known.users |= _users(pid)
        self.marking.add(pid)

    def look(self) -> None:
        """Write down which of this machine's processes has begun to mark, where others count."""
        if self._watch is not None:
            self._watch.clear()
        for folder in self._theirs.values():
            if folder.foreign:
                self._name(folder, folder.named)

    def _name(self, folder: _Folder, but: Collection[str] = ()) -> None:
        """Look for the processes of a folder's files, `but` those that are known."""
        files = sorted(os.listdir(folder.fd))[:_MAX_FILES]
        matches = [match for file in files if (match := _NAME.match(file))]
        asked = {m["process"]: int(m["pid"]) for m in matches if m["process"] not in but}
        if not asked or self._names is None:
            return
        members: dict[int, set[int]] = {}
        for pid in {pid for target in folder.targets for pid in target.members()}:
            members.setdefault(own_pid(pid), set()).add(pid)
        for process, own in asked.items():
            alike = members.get(own, set())
            if len(alike) > 1:  # containers that count alike, and share a folder
                alike = {pid for pid in alike if _maps(pid, process)}
            for pid in alike:
                self._write_name(process, own, pid, [(own_pid(t, pid), t) for t in threads(pid)])
                folder.named.add(process)

    def _write_name(self, process: str, own: int, pid: int, named: list[tuple[int, int]]) -> None:
        assert self._names is not None
        self._names.add([(escaped(process), own, pid, named)])

    def collect(self) -> None:
        """Copy what was found into the trace."""
        for folder in self._theirs.values():
            with contextlib.suppress(OSError):
                if folder.foreign:  # with the threads that have come since
                    self._name(folder)
                self._copy_all(folder.fd, folder)
            os.close(folder.fd)
        self._theirs = {}
        with contextlib.suppress(OSError):
            fd = os.open(self._live, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                self._copy_all(fd)
            finally:
                os.close(fd)
        sentences = {f"files of marks left out: {why}": n for why, n in self._lost.items()}
        left_out.note(self.folder.parent, "marks", sentences)
        if self._names is not None:
            self._names.close()
            self._names = None
        if self._watch is not None:
            self._watch.close()

    def _copy_all(self, fd: int, folder: _Folder | None = None) -> None:
        """Copy the marks and notes in an open folder; of `folder`, those of its processes now."""
        found = []
        with os.scandir(fd) as entries:
            for entry in itertools.islice(entries, _MAX_ENTRIES):
                match = _NAME.match(entry.name)
                # The folder may hold files of earlier runs, of others with the same pids.
                if match and (folder is None or self._of_now(match, folder)):
                    found.append((int(match["ns"]), entry.name, match))
            if next(entries, None) is not None:
                self._lost["too many files"] += 1
        found.sort()
        for number, (_, name, match) in enumerate(found):
            if number >= _MAX_FILES:
                self._lost["too many files"] += len(found) - _MAX_FILES
                break
            self._copy(fd, name, folder)
            if folder is not None and folder.foreign and match["process"] not in folder.named:
                self._write_name(match["process"], int(match["pid"]), UNKNOWN_PID, [])

    def _of_now(self, match: re.Match[str], folder: _Folder) -> bool:
        """Whether a marks file is of a process that lived at the start or has begun since."""
        known = int(match["pid"]) in folder.pids or match["process"] in folder.named
        return known or int(match["ns"]) >= self._begun

    def _copy(self, fd: int, name: str, folder: _Folder | None) -> None:
        """Copy a file up to the space that is kept for marks to come."""
        try:
            with open_regular(name, fd) as source:
                status = os.fstat(source.fileno())
                if status.st_size > _MAX_BYTES:
                    raise ValueError("too long")
                if folder is not None and not _of_this_boot(status):
                    return
                if folder is not None and status.st_uid not in folder.users:
                    raise ValueError("another user's file")
                data = _until_zeros(source)
            if self._copied_bytes + len(data) > _MAX_TOTAL:
                raise ValueError("too much in all")
            self._copied_bytes += len(data)
            with create(self.folder / name) as target:
                target.write(data)
        except ValueError as error:
            self._lost[str(error)] += 1
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._lost["not readable"] += 1


def _of_this_boot(status: os.stat_result) -> bool:
    return status.st_ctime >= time.time() - time.monotonic() - 1


def _until_zeros(file: BinaryIO) -> bytes:
    """What is in a file before the zeros at its end, in whole records; bounded by `_MAX_BYTES`."""
    pieces = []
    for _ in range(_MAX_BYTES // _PIECE):
        piece = file.read(_PIECE)
        if not piece.strip(b"\0"):  # a writer allocates no more than this ahead
            break
        pieces.append(piece)
    data = b"".join(pieces)
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // RECORD_BYTES) * RECORD_BYTES]


def own_pid(pid: int, process: int | None = None) -> int:
    """What a process, or a thread of `process`, is called in its innermost pid namespace.

    The pid itself where it is gone.
    """
    folder = f"/proc/{pid}" if process is None else f"/proc/{process}/task/{pid}"
    with contextlib.suppress(OSError, ValueError):
        line = _OWN_PIDS.search(Path(folder, "status").read_text(errors="replace"))
        return int(line[1].split()[-1]) if line else pid
    return pid


def _users(pid: int) -> set[int]:
    """The user ids that a process has, real and effective."""
    with contextlib.suppress(OSError):
        found = _UIDS.search(Path(f"/proc/{pid}/status").read_text(errors="replace"))
        return set(map(int, found[1].split())) if found else set()
    return set()


def _maps(pid: int, process: str) -> bool:
    """Whether a process has the marks file mapped of what its files call `process`."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        return any(f"/{process}-" in line and line.endswith(SUFFIX) for line in lines)
    return False
