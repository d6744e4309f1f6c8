"""Opens a library that each target has mapped: that very file, even if its path has changed."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from functools import partial

from tracer.probes.openat import known, open_in_root
from tracer.probes.proc import Mapped, each_mapping, in_user_space
from tracer.probes.workers.opening import open_aside

_MOST = 16
"""Most builds of a library, e.g. in containers."""
_SECONDS = 2.0
"""Timeout in s for opening a path."""


def open_libraries(pids: Iterable[int], name: bytes) -> list[int]:
    """Returns descriptors of the library's files that these processes run, each file once.

    `name` is a regular expression for its path.

    The descriptors are O_PATH, so no file system is asked. Files on user-space file systems are
    left out: a uprobe in such a file makes the kernel wait for that file system, and every process
    that forks waits for the kernel.
    """
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            mapped = _library(pid, name)
            if mapped is None or len(found) == _MOST:
                continue
            fd = _opened(pid, mapped)
            file = known(fd)
            key = file.device, file.inode
            same = stat.S_ISREG(file.mode) and file.inode == mapped.inode
            if same and key not in found and not in_user_space(fd, pid):
                found[key] = fd
            else:
                os.close(fd)
    return list(found.values())


def _library(pid: int, name: bytes) -> Mapped | None:
    code = (mapped for mapped in each_mapping(pid) if mapped.executable)
    return next((mapped for mapped in code if re.search(name, mapped.path)), None)


def _opened(pid: int, mapped: Mapped) -> int:
    """Returns an O_PATH descriptor of the mapped file."""
    try:
        # A link to the file itself, not through a path. It needs CAP_CHECKPOINT_RESTORE.
        place = f"/proc/{pid}/map_files/{mapped.start:x}-{mapped.end:x}"
        return os.open(place, os.O_PATH | os.O_CLOEXEC)
    except PermissionError:
        path = os.fsdecode(mapped.path)
        return open_aside(partial(open_in_root, pid, path, os.O_PATH), _SECONDS)
