"""The marks that targets leave: handed to a command, found in the environment of a process."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from tracer.phases import MARKS_ENV
from tracer.phases.format import RECORD_BYTES, SUFFIX
from tracer.store.files import create, write_whole
from tracer.targets import Target

_MAX_BYTES = 1 << 30
"""Of one marks file: 16 million marks."""
_MAX_FILES = 10_000


class Marks:
    """Folders that hold marks of targets, kept open so that they outlive their processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._theirs: list[int] = []

    def find(self, targets: list[Target]) -> None:
        """Open the marks folder that each target has in its environment, if any."""
        for target in targets:
            if target.kind != "pid":
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
                        self._theirs.append(os.open(path, flags))

    def collect(self) -> None:
        """Copy what was found into the trace, without the space kept for marks to come."""
        for fd in self._theirs:
            with contextlib.suppress(OSError):
                for name in sorted(os.listdir(fd))[:_MAX_FILES]:
                    if name.endswith(SUFFIX):
                        self._copy(fd, name)
            os.close(fd)
        self._theirs = []
        for path in list(self.folder.glob(f"*{SUFFIX}")):
            with contextlib.suppress(OSError):
                _trim(path)

    def _copy(self, folder: int, name: str) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            fd = os.open(name, flags, dir_fd=folder)
            with os.fdopen(fd, "rb") as source:
                if os.fstat(fd).st_size <= _MAX_BYTES:
                    with create(self.folder / name) as target:
                        shutil.copyfileobj(source, target)


def _trim(path: Path) -> None:
    """Put a copy without the zeros after the last record in the file's place.

    The file itself is left as it is: a process that still maps it would die of its truncation.
    """
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    write_whole(path, data[: -(-used // RECORD_BYTES) * RECORD_BYTES])
