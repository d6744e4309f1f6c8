"""Files of /proc, read as hostile input, because anyone can choose the names in them.

Kernel: Documentation/filesystems/proc.rst. A line ends only at a line feed, a field only at a
blank. Other characters that Python takes for line ends (a vertical tab, U+2028) or blanks (U+00A0)
may be part of a name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")

_MAPPING = re.compile(
    rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-][w-][x-][ps]) ([0-9a-f]{1,16}) "
    rb"([0-9a-f]{1,8}):([0-9a-f]{1,8}) ([0-9]{1,20}) *(.*)",
    re.DOTALL,
)
_MAX_INODE = 1 << 64
_TGID = re.compile(r"^Tgid:\s*(\d+)$", re.MULTILINE)
MOST_COMMAND = 64 << 10
"""Most bytes of a command line that are read."""
_MOST_NAME = 64
"""Bytes of a name that are read; kernel threads have names longer than 15 bytes."""
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def lines(path: Path | str) -> list[str]:
    """Returns the lines of a file; bytes that are not UTF-8 become surrogates. Raises OSError."""
    return os.fsdecode(Path(path).read_bytes()).removesuffix("\n").split("\n")


_NS_GET_USERNS = 0xB701
"""_IO(0xb7, 0x1): include/uapi/linux/nsfs.h"""
KTHREADD = 2
"""Process that is the parent of the kernel's threads, and of programs that the kernel starts."""
_PF_EXITING, _PF_KTHREAD = 0x4, 0x00200000
"""include/linux/sched.h"""
_PROGRAM_HEADER_32 = (4, 32)
"""AT_PHENT, and the size of a 32-bit program header (include/uapi/linux/auxvec.h, elf.h)."""
_ANSWERED_BY_OTHERS = (b"fuse", b"nfs", b"cifs", b"smb", b"autofs", b"9p", b"ceph", b"afs")
"""Beginnings of file system types whose server is another host or a process."""


@dataclass(frozen=True)
class MountPoint:
    """One line of mountinfo. Names are bytes, like names of files."""

    number: int
    parent: int
    dev: str
    root: bytes
    """Folder of the file system that is mounted here."""
    path: bytes
    kind: bytes
    source: bytes
    options: bytes
    """Options of the file system itself (its super block)."""

    @property
    def answered_by_others(self) -> bool:
        """True if it depends on another host or process, and so may never answer."""
        return self.kind.startswith(_ANSWERED_BY_OTHERS)

    def holds(self, path: bytes) -> bool:
        """Returns whether a path lies at or below the mount point."""
        return path == self.path or path.startswith(self.path.rstrip(b"/") + b"/")


def read_mounts(path: Path = MOUNTINFO) -> list[MountPoint]:
    """Returns the mounts of this process's namespace, or those listed in another mountinfo.

    Returns an empty list if the file cannot be read. Malformed lines are skipped.
    """
    try:
        text = path.read_bytes()
    except OSError:
        return []
    return [found for line in text.split(b"\n") if (found := _mount_point(line)) is not None]


def mount_behind(fd: int, pid: int) -> MountPoint | None:
    """Returns the mount of an open file, as process `pid` or else this process sees it.

    Returns None if neither sees it: after chroot, the kernel lists only mounts below the new root.
    No file system is asked. Raises OSError if `fd` is not open.
    """
    told = next(line for line in lines(f"/proc/self/fdinfo/{fd}") if line.startswith("mnt_id:"))
    number = told.partition(":")[2].strip()
    for path in (Path(f"/proc/{pid}/mountinfo"), MOUNTINFO):
        found = None
        # Line by line: a process may have 100,000 mounts.
        with contextlib.suppress(OSError), path.open("rb") as file:
            found = next((line for line in file if line.startswith(f"{number} ".encode())), None)
        if found is not None and (mount := _mount_point(found.removesuffix(b"\n"))) is not None:
            return mount
    return None


def in_user_space(fd: int, pid: int) -> bool:
    """Returns whether a user-space file system (FUSE) may serve an open file of process `pid`.

    It may serve the layers of an overlay, too. The overlay asks it with the rights of the user who
    mounted both, so it then answers root, or keeps root waiting. Overlays of those who may mount
    in our own mount namespace are trusted. Also returns True if the mount is not visible.
    """
    mount = mount_behind(fd, pid)
    if mount is None or mount.kind.startswith(b"fuse"):
        return True
    return mount.kind == b"overlay" and not _is_trusted(mount, pid)


def may_never_answer(fd: int, pid: int) -> bool:
    """Returns whether an open file of process `pid` may depend on another host or process."""
    mount = mount_behind(fd, pid)
    return mount is None or mount.answered_by_others or in_user_space(fd, pid)


def _is_trusted(mount: MountPoint, pid: int) -> bool:
    """Returns whether a mount that process `pid` sees was made with our rights, not with less."""
    if any(ours.dev == mount.dev for ours in read_mounts()):
        return True
    try:
        mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            owner = fcntl.ioctl(mounts, _NS_GET_USERNS)
        finally:
            os.close(mounts)
        try:
            return os.path.samestat(os.fstat(owner), Path("/proc/self/ns/user").stat())
        finally:
            os.close(owner)
    except OSError:  # it belongs to a user namespace outside of ours
        return False


def _mount_point(line: bytes) -> MountPoint | None:
    """Parses a line of mountinfo; None if it is malformed."""
    before, _, after = line.partition(b" - ")
    left, right = before.split(b" "), after.split(b" ")
    if len(left) < 6 or len(right) < 3 or not (left[0].isdigit() and left[1].isdigit()):
        return None
    names = [_plain(name) for name in (*left[3:5], *right[:3])]
    return MountPoint(int(left[0]), int(left[1]), left[2].decode("ascii", "replace"), *names)


def _plain(name: bytes) -> bytes:
    """Returns a name of mountinfo unescaped: there \\ooo is a blank, line end or backslash."""
    return _ESCAPED.sub(lambda match: bytes([int(match[1], 8) & 255]), name)


@dataclass(frozen=True)
class Mapped:
    """One line of maps: addresses, `r-xp`, the offset in the file, its device and inode, a path."""

    start: int
    end: int
    permissions: str
    offset: int
    device: tuple[int, int]
    inode: int
    path: bytes

    @property
    def executable(self) -> bool:
        """True if its code can be executed."""
        return self.permissions[2] == "x"


@dataclass(frozen=True)
class ProcessStat:
    """A process as /proc/PID/stat describes it (proc_pid_stat(5))."""

    state: str
    """State letter: R, S, D, Z, ..."""
    ppid: int
    flags: int
    """Flags of the kernel, PF_*."""
    threads: int
    """Number of its threads. The first one counts until the process is waited for."""
    start_time: int
    """Start time in clock ticks since boot."""

    @property
    def exiting(self) -> bool:
        """True once its first thread has begun to exit."""
        return bool(self.flags & _PF_EXITING)

    @property
    def of_kernel(self) -> bool:
        """True for a thread of the kernel; a program that the kernel has started is none."""
        return bool(self.flags & _PF_KTHREAD)

    @property
    def ended(self) -> bool:
        """True if all its threads have ended: a zombie. A first thread may end before others."""
        return self.state in ("Z", "X") and self.threads <= 1


def read_stat(pid: int) -> ProcessStat | None:
    """Returns the facts in /proc/PID/stat; None if the process is gone. Raises OSError."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may contain any character.
    fields = text.rpartition(")")[2].split()
    state, ppid, flags, threads, start = (fields[n] for n in (0, 1, 6, 17, 19))
    return ProcessStat(state, int(ppid), int(flags), int(threads), int(start))


def process_of(tid: int) -> int | None:
    """Returns the process that a thread belongs to; None if the thread is gone."""
    try:
        status = Path(f"/proc/{tid}/status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = _TGID.search(status)
    return int(found[1]) if found else None


def command_line(pid: int, most: int = MOST_COMMAND) -> list[str]:
    """Returns the arguments of a process, as far as they lie in the first `most` bytes.

    A process may give its command line any length (PR_SET_MM_MAP in prctl(2)). Bytes that are not
    UTF-8 become surrogates. Empty for a thread of the kernel. Raises OSError.
    """
    with Path(f"/proc/{pid}/cmdline").open("rb", buffering=0) as file:
        data = b""
        while more := file.read(most - len(data)):
            data += more
    return _words(data)


def beginning(command: Iterable[str], most: int = MOST_COMMAND) -> list[str]:
    """Returns the arguments of a command as far as they lie in the first `most` bytes."""
    return _words(b"".join(os.fsencode(word) + b"\0" for word in command)[:most])


def _words(data: bytes) -> list[str]:
    return [os.fsdecode(word) for word in data.removesuffix(b"\0").split(b"\0")] if data else []


def name_of(pid: int) -> str:
    """Returns a process's name (comm): at most 15 bytes, 63 of a kernel thread. Raises OSError."""
    # Recordings look through all processes of the machine: this is three times as fast as Path.
    fd = os.open(f"/proc/{pid}/comm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(fd, _MOST_NAME).removesuffix(b"\n"))
    finally:
        os.close(fd)


def processes_called(name: str) -> Iterator[int]:
    """Yields the processes whose name (comm) begins so."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if name_of(int(entry)).startswith(name):
                    yield int(entry)


def runs_32_bits(pid: int) -> bool:
    """Returns whether a process runs a 32-bit program; False if that cannot be read.

    The kernel's auxiliary vector tells it (getauxval(3)). The program's file is not asked: it may
    lie on a file system that never answers.
    """
    try:
        vector = Path(f"/proc/{pid}/auxv").read_bytes()
    except OSError:
        return False
    return _PROGRAM_HEADER_32 in struct.iter_unpack("=II", vector[: len(vector) & ~7])


def each_mapping(pid: int | str) -> Iterator[Mapped]:
    """Yields the mappings of a process, ordered by address. Raises OSError.

    A process may have a million, each with a path of 4,096 bytes.
    """
    with Path(f"/proc/{pid}/maps").open("rb") as file:
        for line in file:
            yield from parse_maps(line.removesuffix(b"\n"))


def read_maps(pid: int | str = "self") -> list[Mapped]:
    """Returns the mappings of a process, ordered by address. Raises OSError."""
    return list(each_mapping(pid))


def parse_maps(text: bytes) -> list[Mapped]:
    """Returns the mappings that a text lists. Malformed lines are skipped."""
    return [
        Mapped(
            int(match[1], 16),
            int(match[2], 16),
            match[3].decode(),
            int(match[4], 16),
            (int(match[5], 16), int(match[6], 16)),
            int(match[7]),
            match[8].replace(rb"\012", b"\n"),  # nothing else is escaped
        )
        for line in text.split(b"\n")
        if (match := _MAPPING.fullmatch(line)) and int(match[7]) < _MAX_INODE
    ]
