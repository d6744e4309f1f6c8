"""Opens libraries: the files that targets have mapped, and those that they are going to map."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from tracer.probes.openat import known, open_in_root
from tracer.probes.proc import Mapped, each_mapping, in_user_space
from tracer.probes.workers.opening import open_aside

_MOST = 16
"""Most builds of a library, e.g. in containers."""
_SECONDS = 2.0
"""Timeout in s for opening a path."""
_LDCONFIG = "/sbin/ldconfig"
_CACHED = re.compile(r"^\t(?P<name>\S+) \(libc6,(x86-64|AArch64)[^)]*\) => (?P<path>/.*)$", re.M)
"""A 64-bit library in what `ldconfig -p` prints."""


def open_libraries(pids: Iterable[int], name: bytes, installed: str = "") -> list[int]:
    """Returns descriptors of the library's files that these processes run, each file once.

    `name` is a regular expression for its path. The files called `installed` that the dynamic
    linker would find follow: a process may load the library later, and a container may have got
    the library of this machine. Their paths are our own user's.

    The descriptors are O_PATH, so no file system is asked. Files on user-space file systems are
    left out: a uprobe in such a file makes the kernel wait for that file system, and every process
    that forks waits for the kernel.
    """
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            mapped = _library(pid, name)
            if mapped is not None:
                _add(found, partial(_opened, pid, mapped), pid, mapped.inode)
    for path in _installed(installed) if installed else ():
        with contextlib.suppress(OSError):
            find = partial(os.open, path, os.O_PATH | os.O_CLOEXEC)
            _add(found, partial(open_aside, find, _SECONDS), os.getpid(), None)
    return list(found.values())


def _add(
    found: dict[tuple[int, int], int], find: Callable[[], int], pid: int, inode: int | None
) -> None:
    """Adds the regular file that `find` opens, as process `pid` sees it, if it may be probed."""
    if len(found) == _MOST:
        return
    fd = find()
    file = known(fd)
    key = file.device, file.inode
    same = stat.S_ISREG(file.mode) and inode in (None, file.inode)
    if same and key not in found and not in_user_space(fd, pid):
        found[key] = fd
    else:
        os.close(fd)


def _installed(name: str) -> Iterator[Path]:
    """Yields the paths at which the dynamic linker looks for a library."""
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder.startswith("/"):
            yield Path(folder, name)
    try:
        listed = subprocess.run(
            [_LDCONFIG, "-p"],
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={"LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return  # a C library without such a list
    for line in _CACHED.finditer(listed.stdout.decode(errors="surrogateescape")):
        if line["name"] == name:
            yield Path(line["path"])


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
