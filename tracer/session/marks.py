"""The marks that targets leave: handed to a command, found in the environment of a process."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

from tracer.phases import MARKS_ENV
from tracer.phases.format import RECORD_BYTES, SUFFIX
from tracer.store.files import create, write_whole
from tracer.targets import Target

_NAME = re.compile(rf"^(?P<pid>\d{{1,10}})-(?P<ns>\d{{1,20}})-\d+{re.escape(SUFFIX)}$")
_MAX_BYTES = 1 << 30
"""Of one marks file: 16 million marks."""
_MAX_FILES = 10_000


class Marks:
    """Folders that hold marks of targets, kept open so that they outlive their processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begun = time.monotonic_ns()
        self._theirs: list[tuple[int, set[int]]] = []
        """Each folder, and the processes of its target, as they see themselves."""

    def find(self, targets: list[Target]) -> None:
        """Open the marks folder that each target has in its environment, if any."""
        for target in targets:
            if target.kind not in ("pid", "container"):
                continue
            with contextlib.suppress(OSError):
                environment = Path(f"/proc/{target.pid}/environ").read_bytes().split(b"\0")
                prefix = f"{MARKS_ENV}=".encode()
                for entry in environment:
                    if entry.startswith(prefix) and entry != prefix:
                        # As the process sees it, which may live in a container.
                        inside = os.fsdecode(entry[len(prefix) :])
                        base = (
                            f"/proc/{target.pid}/root"
                            if inside.startswith("/")
                            else (f"/proc/{target.pid}/cwd")
                        )
                        path = os.path.join(base, inside.lstrip("/"))  # noqa: PTH118
                        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                        self._theirs.append((os.open(path, flags), _own_pids(target)))

    def collect(self) -> None:
        """Copy what was found into the trace, without the space kept for marks to come."""
        for fd, pids in self._theirs:
            with contextlib.suppress(OSError):
                for name in sorted(os.listdir(fd))[:_MAX_FILES]:
                    if self._of_target(name, pids):
                        self._copy(fd, name)
            os.close(fd)
        self._theirs = []
        for path in list(self.folder.glob(f"*{SUFFIX}")):
            with contextlib.suppress(OSError):
                _trim(path)

    def _of_target(self, name: str, pids: set[int]) -> bool:
        """Whether a marks file is of a process that lived at the start or was made since.

        The folder may hold files of earlier runs, of other processes with the same pids.
        """
        match = _NAME.match(name)
        return match is not None and (int(match["pid"]) in pids or int(match["ns"]) >= self._begun)

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


def _own_pids(target: Target) -> set[int]:
    """The target's processes by their innermost pid namespace."""
    found = set()
    for pid in target.members():
        with contextlib.suppress(OSError, ValueError):
            status = Path(f"/proc/{pid}/status").read_text(errors="replace")
            line = re.search(r"^NSpid:(.*)$", status, re.MULTILINE)
            found.add(int(line[1].split()[-1]) if line else pid)
    return found


def _trim(path: Path) -> None:
    """Put a copy without the zeros after the last record in the file's place.

    The file itself is left as it is: a process that still maps it would die of its truncation.
    """
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    write_whole(path, data[: -(-used // RECORD_BYTES) * RECORD_BYTES])
