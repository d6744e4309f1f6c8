"""Opens libraries: the files that targets have mapped, and those that they are going to map."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from pathlib import Path

from tracer.probes.openat import known, open_in_root
from tracer.probes.proc import Mapped, each_mapping, in_user_space, read_stat
from tracer.probes.workers.opening import open_aside

_MOST = 16
"""Most builds of a library, e.g. in containers."""
_MOST_COPIES = 4
"""Most files of a library in one process."""
_SECONDS = 2.0
"""Timeout in s for opening a path."""
_SECONDS_IN_ALL = 10.0
"""Timeout in s for all paths of a library that do not open."""
_LDCONFIG = "/sbin/ldconfig"
_CACHED = re.compile(r"^\t(?P<name>\S+) \(libc6,(x86-64|AArch64)[^)]*\) => (?P<path>/.*)$", re.M)
"""A 64-bit library in what `ldconfig -p` prints."""


def open_libraries(
    pids: Iterable[int], name: bytes, installed: str = "", left_out: Counter[str] | None = None
) -> list[int]:
    """Returns descriptors of the library's files that these processes run, each file once.

    `name` is a regular expression for its path. The files called `installed` that the dynamic
    linker would find follow: a process may load the library later, and a container may have got
    the library of this machine. Their paths are our own user's. Files without a descriptor are
    counted in `left_out`, by a phrase that follows the number.

    The descriptors are O_PATH, so no file system is asked. Files on user-space file systems are
    left out: a uprobe in such a file makes the kernel wait for that file system, and every process
    that forks waits for the kernel.
    """
    search = _Search()
    for pid in pids:
        try:
            copies = _copies(pid, name)
        except (FileNotFoundError, ProcessLookupError):  # the process has ended
            continue
        except OSError:
            search.leave_out(UNREADABLE, pid)
            continue
        if len(copies) > _MOST_COPIES:
            search.leave_out(f"processes with more than {_MOST_COPIES} files of the library", pid)
        for mapped in copies[:_MOST_COPIES]:
            search.add(partial(_opened, pid, mapped), pid, mapped.path, mapped.inode)
    for path in _installed(installed) if installed else ():
        find = partial(os.open, path, os.O_PATH | os.O_CLOEXEC)
        search.add(partial(_opened_aside, find), os.getpid(), bytes(path), None)
    if left_out is not None:
        left_out.update({why: len(files) for why, files in search.left_out.items()})
    return list(search.found.values())


UNREADABLE = "processes left out: their mappings cannot be read"
_LEFT_OUT = "files of the library left out: "


class _Search:
    """The files of one library: the opened ones, and those that are left out."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int], int] = {}
        self.left_out: dict[str, set[Hashable]] = {}
        """Left-out files and processes, by reason: processes may share a file."""
        self._waited_s = 0.0

    def leave_out(self, why: str, key: Hashable) -> None:
        """Notes a file without a descriptor, or a process."""
        self.left_out.setdefault(why, set()).add(key)

    def add(self, find: Callable[[float], int], pid: int, path: bytes, inode: int | None) -> None:
        """Adds the regular file that `find` opens, as process `pid` sees it, if it may be probed.

        `find` takes a time limit in s.
        """
        begun = time.monotonic()
        named = hash((path, inode))
        try:
            fd = find(min(_SECONDS, _SECONDS_IN_ALL - self._waited_s))
        except TimeoutError:
            self._waited_s += time.monotonic() - begun
            self.leave_out(f"{_LEFT_OUT}not opened in time", named)
            return
        except OSError as error:
            nothing = isinstance(error, FileNotFoundError) if inode is None else _has_ended(pid)
            if not nothing:
                self.leave_out(f"{_LEFT_OUT}{error.strerror}", named)
            return
        file = known(fd)
        key = file.device, file.inode
        why = None
        if not stat.S_ISREG(file.mode) or inode not in (None, file.inode):
            why = f"{_LEFT_OUT}another file has their path"
        elif key not in self.found and in_user_space(fd, pid):
            why = f"{_LEFT_OUT}on a file system in user space"
        elif key not in self.found and len(self.found) == _MOST:
            why = f"{_LEFT_OUT}{_MOST} others are probed"
        if why is None and key not in self.found:
            self.found[key] = fd
            return
        os.close(fd)
        if why is not None:
            self.leave_out(why, key)


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


def _copies(pid: int, name: bytes) -> list[Mapped]:
    """Returns a mapping of each file of the library that a process runs. Raises OSError.

    Returns at most one more than `_MOST_COPIES`: a process may have a million mappings.
    """
    found: dict[tuple[bytes, int], Mapped] = {}
    for mapped in each_mapping(pid):
        if mapped.executable and re.search(name, mapped.path):
            found.setdefault((mapped.path, mapped.inode), mapped)
        if len(found) > _MOST_COPIES:
            break
    return list(found.values())


def _opened(pid: int, mapped: Mapped, seconds: float) -> int:
    """Returns an O_PATH descriptor of the mapped file."""
    try:
        # A link to the file itself, not through a path. It needs CAP_CHECKPOINT_RESTORE.
        place = f"/proc/{pid}/map_files/{mapped.start:x}-{mapped.end:x}"
        return os.open(place, os.O_PATH | os.O_CLOEXEC)
    except PermissionError:
        path = os.fsdecode(mapped.path)
        return _opened_aside(partial(open_in_root, pid, path, os.O_PATH), seconds)


def _opened_aside(find: Callable[[], int], seconds: float) -> int:
    if seconds <= 0:
        raise TimeoutError
    return open_aside(find, seconds)


def _has_ended(pid: int) -> bool:
    process = read_stat(pid)
    return process is None or process.ended
