"""Files of /proc, read as hostile input, because anyone can choose the names in them.

Kernel: Documentation/filesystems/proc.rst. A line ends only at a line feed, a field only at a
blank. Other characters that Python takes for line ends (a vertical tab, U+2028) or blanks (U+00A0)
may be part of a name.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")

_MAPPING = re.compile(
    rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-][w-][x-][ps]) ([0-9a-f]{1,16}) "
    rb"([0-9a-f]{1,8}):([0-9a-f]{1,8}) ([0-9]{1,20}) *(.*)",
    re.DOTALL,
)
_MAX_INODE = 1 << 64
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def lines(path: Path | str) -> list[str]:
    """Returns the lines of a file; bytes that are not UTF-8 become surrogates. Raises OSError."""
    return os.fsdecode(Path(path).read_bytes()).removesuffix("\n").split("\n")


_PF_EXITING = 0x4
"""include/linux/sched.h"""
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
    found = []
    for line in text.split(b"\n"):
        before, _, after = line.partition(b" - ")
        left, right = before.split(b" "), after.split(b" ")
        if len(left) < 6 or len(right) < 3 or not (left[0].isdigit() and left[1].isdigit()):
            continue
        names = [_plain(name) for name in (*left[3:5], *right[:3])]
        dev = left[2].decode("ascii", "replace")
        found.append(MountPoint(int(left[0]), int(left[1]), dev, *names))
    return found


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
    start_time: int
    """Start time in clock ticks since boot."""

    @property
    def exiting(self) -> bool:
        """True once the process has begun to exit."""
        return bool(self.flags & _PF_EXITING)


def read_stat(pid: int) -> ProcessStat | None:
    """Returns the facts in /proc/PID/stat; None if the process is gone. Raises OSError."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may contain any character.
    fields = text.rpartition(")")[2].split()
    return ProcessStat(fields[0], int(fields[1]), int(fields[6]), int(fields[19]))


def runs_32_bits(pid: int) -> bool:
    """Returns whether a process runs a 32-bit program; False if its program cannot be read."""
    try:
        with Path(f"/proc/{pid}/exe").open("rb") as program:
            return program.read(5) == b"\x7fELF\x01"
    except OSError:
        return False


def read_maps(pid: int | str = "self") -> list[Mapped]:
    """Returns the mappings of a process, ordered by address. Raises OSError."""
    return parse_maps(Path(f"/proc/{pid}/maps").read_bytes())


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
