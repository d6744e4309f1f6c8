"""Open files: which descriptor stands for which one, and at which position, call by call.

A descriptor is a number of a process, an open file description is what the kernel keeps for each
open(): dup and fork share it, with its position (man 2 open, "Open file descriptions").

- open, openat and creat make a description at position 0. Files that a process has open when it
  begins to be recorded are listed then. All other descriptors (pipes, sockets) get one of unknown
  origin and position.
- read, write, sendfile and splice move the position by the bytes that they return. pread64 and
  pwrite64 do not. lseek returns the new position. A write with O_APPEND leaves it unknown.
- fork copies the descriptors. exec closes those with O_CLOEXEC.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TO_ANOTHER = ("sendfile", "splice", "copy_file_range")
"""Calls that move bytes from one descriptor to another."""
READING = ("read", "readv", "pread64", "preadv", "preadv2", *TO_ANOTHER)
WRITING = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
OPENING = ("open", "openat", "openat2", "creat")
MOVED = ("chdir", "fchdir", "chroot", "pivot_root", "unshare", "setns")
"""Calls after which a name may stand for another file."""
_FOLDERS = ("chdir", "fchdir")
FORK, THERE = "forked", "there"
"""Names of rows that are no calls: a process is made by another one; a descriptor is open when its
process begins to be recorded."""
CALLS = (
    *(*READING, *WRITING, *OPENING, *MOVED, "lseek", "close", "close_range"),
    *("dup", "dup2", "dup3", "fcntl", "mmap", "execve", "execveat"),
)
"""Calls that matter here, by name."""

_AT_GIVEN = ("pread64", "pwrite64", "preadv", "pwritev")
_AT_GIVEN_OR_POSITION = ("preadv2", "pwritev2")
CURRENT_FOLDER = -100
"""AT_FDCWD."""
_APPEND, _CLOEXEC = 0o2000, 0o2000000
_DIRECT = {"aarch64": 0o200000}
_DIRECT_ELSEWHERE = 0o40000
"""O_DIRECT differs by architecture. Kernel: arch/arm64/include/uapi/asm/fcntl.h."""
_DUPFD, _SETFD, _SETFL, _DUPFD_CLOEXEC = 0, 2, 4, 1030
_CLOSE_RANGE_CLOEXEC = 4
_REMOVED = " (deleted)"
"""End of the name of a removed file in /proc/PID/fd."""
_MOST_DESCRIPTORS = 1 << 20
"""Descriptors of one process that are followed; fs.nr_open is as large by default."""
NOT_KNOWN = -1
_MOST_BYTES = 1 << 31
"""More than a call moves. Kernel: MAX_RW_COUNT in include/linux/fs.h."""
_FARTHEST = 1 << 60
"""Positions beyond are not followed; no file system has such long files."""


@dataclass
class Opened:
    """An open file description."""

    number: int
    position: int = NOT_KNOWN
    flags: int = 0
    opened: bool = False
    """An open call of the recording made it."""
    seeks: bool = False
    """A call that fails on pipes and sockets succeeded."""
    name: tuple[int, str] | None = None
    """The name by which it was opened, and where that holds."""
    pid: int = 0
    """The process that opened it."""
    moved: bool = False
    """True if that process may have another root than at first."""


@dataclass
class _Process:
    files: dict[int, tuple[Opened, bool]] = field(default_factory=dict)
    """The description of each descriptor, and true if exec closes it."""
    place: int = 0
    """Processes with the same number have the same root and current folder."""
    moved: bool = False
    """True if it may have another root than at first."""


@dataclass(frozen=True)
class Transfer:
    """A call that read or wrote bytes through a description."""

    opened: int
    offset: int
    """Place of the first byte, or NOT_KNOWN."""
    writes: bool


class OpenFiles:
    """The descriptors of all processes, to which calls are applied in order of time."""

    def __init__(self, machine: str = "") -> None:
        """Takes the recorded machine's architecture, for the value of O_DIRECT."""
        self._direct = _DIRECT.get(machine, _DIRECT_ELSEWHERE)
        self._processes: dict[int, _Process] = {}
        self._there: dict[int, Opened] = {}
        self._places = 0
        self.opened: list[Opened] = []

    def fork(self, pid: int, parent: int) -> None:
        """Gives a new process copies of the descriptors of another one."""
        made = self._of(parent)
        self._processes[pid] = _Process(dict(made.files), made.place, made.moved)

    def there(self, pid: int, fd: int, position: int, flags: int, path: str, number: int) -> None:
        """Tells of a descriptor that is open when its process begins to be recorded.

        `position` may be NOT_KNOWN. Descriptors with the same `number` share one description; those
        whose description is followed already come first.
        """
        process = self._of(pid)
        shared = self._there.get(number) if number != NOT_KNOWN else None
        if shared is None:
            found = process.files.get(fd, (None, False))[0]
            shared = found if found is not None and _agrees(found, position, path) else self._new()
            if not shared.opened:
                shared.opened, shared.pid, shared.name = True, pid, (process.place, path)
                shared.flags = flags
            if position != NOT_KNOWN:
                shared.position = position
            if number != NOT_KNOWN:
                self._there[number] = shared
        self._put(process, fd, shared, flags & _CLOEXEC)

    def call(
        self, pid: int, name: str, fd: int, offset: int, length: int, flags: int, ret: int,
        path: str | None = None,
    ) -> Transfer | None:  # fmt: skip
        """Applies a call that did not fail; returns what it transferred, if it did.

        Arguments that are not known are NOT_KNOWN. Returns None for a read or write past the page
        cache (O_DIRECT), too.
        """
        process = self._of(pid)
        if name in READING or name in WRITING:
            return self._transfer(process, name, fd, offset, flags, ret)
        if name in OPENING:
            self._open(pid, name, flags, ret, path)
        elif name == "close":
            process.files.pop(fd, None)
        elif name == "close_range":
            self._close_range(process, fd, length, flags)
        elif name in ("dup", "dup2", "dup3"):
            self._put(process, ret, self._at(process, fd), name == "dup3" and flags & _CLOEXEC)
        elif name == "fcntl":
            self._control(process, fd, flags, length, ret)
        elif name == "lseek":
            found = self._at(process, fd)
            found.position, found.seeks = ret, True
        elif name == "mmap" and fd >= 0:
            self._at(process, fd).seeks = True
        elif name in ("execve", "execveat"):
            process.files = {n: kept for n, kept in process.files.items() if not kept[1]}
        elif name in MOVED:
            process.place = self._new_place()
            process.moved = process.moved or name not in _FOLDERS
        return None

    def _of(self, pid: int) -> _Process:
        if pid not in self._processes:
            self._processes[pid] = _Process(place=self._new_place())
        return self._processes[pid]

    def _new_place(self) -> int:
        self._places += 1
        return self._places

    def _new(self) -> Opened:
        self.opened.append(Opened(len(self.opened)))
        return self.opened[-1]

    def _at(self, process: _Process, fd: int) -> Opened:
        if fd not in process.files:
            self._put(process, fd, self._new(), False)
            return self.opened[-1]
        return process.files[fd][0]

    def _put(self, process: _Process, fd: int, opened: Opened, closes: object) -> None:
        if 0 <= fd < _MOST_DESCRIPTORS:
            process.files[fd] = opened, bool(closes)

    def _open(self, pid: int, name: str, flags: int, fd: int, path: str | None) -> None:
        process, made = self._of(pid), self._new()
        made.opened, made.position, made.pid, made.moved = True, 0, pid, process.moved
        # openat2 has its flags in memory.
        made.flags = max(flags, 0) if name != "openat2" else 0
        if path is not None:
            made.name = process.place, path
        self._put(process, fd, made, made.flags & _CLOEXEC)

    def _close_range(self, process: _Process, first: int, last: int, flags: int) -> None:
        for fd in [n for n in process.files if first <= n <= last]:
            if flags & _CLOSE_RANGE_CLOEXEC:
                process.files[fd] = process.files[fd][0], True
            else:
                del process.files[fd]

    def _control(self, process: _Process, fd: int, command: int, value: int, ret: int) -> None:
        if command in (_DUPFD, _DUPFD_CLOEXEC):
            self._put(process, ret, self._at(process, fd), command == _DUPFD_CLOEXEC)
        elif command == _SETFD:
            self._put(process, fd, self._at(process, fd), value & 1)
        elif command == _SETFL:
            self._at(process, fd).flags = max(value, 0)

    def _transfer(
        self, process: _Process, name: str, fd: int, offset: int, flags: int, ret: int
    ) -> Transfer | None:
        found, writes = self._at(process, fd), name in WRITING
        given = name in _AT_GIVEN or (name in _AT_GIVEN_OR_POSITION and offset != NOT_KNOWN)
        if given:
            found.seeks = True
            at = offset
        elif name in TO_ANOTHER and flags != 0:
            found.seeks = True
            at = NOT_KNOWN
        else:
            at = found.position
            if writes and found.flags & _APPEND:
                at = found.position = NOT_KNOWN
            elif at != NOT_KNOWN:
                found.position = min(at + ret, _FARTHEST + 1)
        if found.flags & self._direct or not 0 < ret < _MOST_BYTES:
            return None
        return Transfer(found.number, at if 0 <= at <= _FARTHEST else NOT_KNOWN, writes)


def _agrees(found: Opened, position: int, path: str) -> bool:
    """Returns whether a look may be at a followed description.

    A process that was no target for a while may have opened or read files meanwhile.
    """
    if NOT_KNOWN not in (found.position, position) and found.position != position:
        return False
    if found.name is None:
        return True
    names = found.name[1], path.removesuffix(_REMOVED)
    return names[0].rsplit("/", 1)[-1] == names[1].rsplit("/", 1)[-1]
