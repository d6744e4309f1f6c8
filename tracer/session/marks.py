"""The marks that targets leave: handed to a command, found in the environment of a process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from tracer.phases import MARKS_ENV
from tracer.phases.automatic import STARTUP, SYNCHRONIZE_ENV
from tracer.phases.format import NOTE_SUFFIX, RECORD_BYTES, SUFFIX
from tracer.session.watch import Watch
from tracer.store.files import create, write_whole
from tracer.store.marks import NAMES, UNKNOWN_PID
from tracer.targets import Target, threads

_NAME = re.compile(
    rf"^(?P<process>(?P<pid>\d{{1,10}})-(?P<ns>\d{{1,20}}))"
    rf"(-\d+{re.escape(SUFFIX)}|{re.escape(NOTE_SUFFIX)})$"
)
_OWN_PIDS = re.compile(r"^NSpid:(.*)$", re.MULTILINE)
_MAX_BYTES = 1 << 30
"""Of one marks file: 16 million marks."""
_MAX_FILES = 10_000


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
    pids: set[int] = field(default_factory=set)
    """Of those at the start, by their own count."""
    named: set[str] = field(default_factory=set)
    """Processes, as their files are called, whose pids on this machine have been found."""


class Marks:
    """Folders that hold marks of targets, beside the one that a command was handed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begun = time.monotonic_ns()
        self._theirs: dict[tuple[int, int], _Folder] = {}
        self.marking: set[int] = set()
        """Processes that mark by themselves, and need not be looked into from outside."""
        self._names: int | None = None
        self._watch: Watch | None = None

    def find(self, targets: list[Target]) -> None:
        """Open the marks folders that processes of the targets have in their environment."""
        for target in targets:
            if target.kind in ("command", "machine"):
                continue
            for pid in target.members():
                with contextlib.suppress(OSError):
                    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    prefix = f"{MARKS_ENV}=".encode()
                    for entry in environment:
                        if entry.startswith(prefix) and entry != prefix:
                            self._open(target, pid, os.fsdecode(entry[len(prefix) :]))
        foreign = [folder for folder in self._theirs.values() if folder.foreign]
        if foreign:
            with create(self.folder / NAMES) as file:
                self._names = os.dup(file.fileno())
            self._watch = Watch()
            for folder in foreign:
                self._watch.add(folder.fd)

    @property
    def readable(self) -> list[int]:
        """What can be read when it is time to look."""
        return [self._watch.fd] if self._watch is not None and self._watch.fd is not None else []

    def _open(self, target: Target, pid: int, inside: str) -> None:
        """A folder as the process sees it, which may live in a container."""
        base = f"/proc/{pid}/root" if inside.startswith("/") else f"/proc/{pid}/cwd"
        path = os.path.join(base, inside.lstrip("/"))  # noqa: PTH118
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        status = os.fstat(fd)
        known = self._theirs.get((status.st_dev, status.st_ino))
        if known is not None:
            os.close(fd)
        else:
            spaces = (f"/proc/{pid}/ns/pid", "/proc/self/ns/pid")
            foreign = len({Path(space).readlink() for space in spaces}) > 1
            known = self._theirs[status.st_dev, status.st_ino] = _Folder(fd, [], foreign)
        if target not in known.targets:
            known.targets.append(target)
        known.pids.add(own_pid(pid))
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
        os.write(self._names, json.dumps([process, own, pid, named]).encode() + b"\n")

    def collect(self) -> None:
        """Copy what was found into the trace, without the space kept for marks to come."""
        for folder in self._theirs.values():
            with contextlib.suppress(OSError):
                if folder.foreign:  # with the threads that have come since
                    self._name(folder)
                for name in sorted(os.listdir(folder.fd))[:_MAX_FILES]:
                    match = _NAME.match(name)
                    # The folder may hold files of earlier runs, of others with the same pids.
                    if match and (
                        int(match["pid"]) in folder.pids or int(match["ns"]) >= self._begun
                    ):
                        self._copy(folder.fd, name)
                        if folder.foreign and match["process"] not in folder.named:
                            self._write_name(match["process"], int(match["pid"]), UNKNOWN_PID, [])
            os.close(folder.fd)
        self._theirs = {}
        if self._names is not None:
            os.close(self._names)
            self._names = None
        if self._watch is not None:
            self._watch.close()
        for path in list(self.folder.glob(f"*{SUFFIX}")):
            with contextlib.suppress(OSError):
                _trim(path)

    def _of_now(self, match: re.Match[str], folder: _Folder) -> bool:
        """Whether a marks file is of a process that lived at the start or has begun since."""
        known = int(match["pid"]) in folder.pids or match["process"] in folder.named
        return known or int(match["ns"]) >= self._begun

    def _copy(self, folder: int, name: str) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            fd = os.open(name, flags, dir_fd=folder)
            with os.fdopen(fd, "rb") as source:
                stat = os.fstat(fd)
                of_this_boot = stat.st_ctime >= time.time() - time.monotonic() - 1
                if of_this_boot and stat.st_size <= _MAX_BYTES:
                    with create(self.folder / name) as target:
                        shutil.copyfileobj(source, target)


def own_pid(pid: int, process: int | None = None) -> int:
    """What a process, or a thread of `process`, is called in its innermost pid namespace.

    The pid itself where it is gone.
    """
    folder = f"/proc/{pid}" if process is None else f"/proc/{process}/task/{pid}"
    with contextlib.suppress(OSError, ValueError):
        line = _OWN_PIDS.search(Path(folder, "status").read_text(errors="replace"))
        return int(line[1].split()[-1]) if line else pid
    return pid


def _maps(pid: int, process: str) -> bool:
    """Whether a process has the marks file mapped of what its files call `process`."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        return any(f"/{process}-" in line and line.endswith(SUFFIX) for line in lines)
    return False


def _trim(path: Path) -> None:
    """Put a copy without the zeros after the last record in the file's place.

    The file itself is left as it is: a process that still maps it would die of its truncation.
    """
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    write_whole(path, data[: -(-used // RECORD_BYTES) * RECORD_BYTES])
