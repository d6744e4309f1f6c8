"""Files of /proc, read as if an enemy had a hand in them: names in them are anybody's.

Kernel: Documentation/filesystems/proc.rst. A line ends at a line feed and nowhere else, a field at
a blank: what Python takes for the end of a line (a vertical tab, U+2028) or for a blank (U+00A0)
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
    """The lines of a file, bytes that are no UTF-8 as surrogates. Raises OSError."""
    return os.fsdecode(Path(path).read_bytes()).removesuffix("\n").split("\n")


@dataclass(frozen=True)
class MountPoint:
    """One line of mountinfo; names are bytes, as files' names are."""

    number: int
    parent: int
    dev: str
    root: bytes
    """The folder of the file system that is mounted here."""
    path: bytes
    kind: bytes
    source: bytes
    options: bytes
    """The source of the file system itself."""


def read_mounts(path: Path = MOUNTINFO) -> list[MountPoint]:
    """The mounts of this process's namespace, or of that of another one's mountinfo.

    None where they cannot be read; what is no mount is left out.
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
    """A name of mountinfo, which writes blanks, line ends and backslashes as \\ooo."""
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
        """True where code in it can be run."""
        return self.permissions[2] == "x"


@dataclass(frozen=True)
class ProcessStat:
    """A process as /proc/PID/stat describes it (proc_pid_stat(5))."""

    state: str
    """A letter: R, S, D, Z, ..."""
    ppid: int
    flags: int
    """PF_* of the kernel."""
    start_time: int
    """Clock ticks since boot."""


def read_stat(pid: int) -> ProcessStat | None:
    """Returns what /proc/PID/stat says; None if the process is gone. Raises OSError."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold anything.
    fields = text.rpartition(")")[2].split()
    return ProcessStat(fields[0], int(fields[1]), int(fields[6]), int(fields[19]))


def runs_32_bits(pid: int) -> bool:
    """Returns whether a process runs a 32-bit program; False if it cannot be looked at."""
    try:
        with Path(f"/proc/{pid}/exe").open("rb") as program:
            return program.read(5) == b"\x7fELF\x01"
    except OSError:
        return False


def read_maps(pid: int | str = "self") -> list[Mapped]:
    """The mappings of a process, by address. Raises OSError."""
    return parse_maps(Path(f"/proc/{pid}/maps").read_bytes())


def parse_maps(text: bytes) -> list[Mapped]:
    """The mappings that a text lists; what is no such line is left out."""
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
