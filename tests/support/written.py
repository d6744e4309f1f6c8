"""Loads that write, each to a file system of its own, and what a recording shows of that."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.loads import Recorded
from tracer.analysis.views.writing.flushes import flushes

SETUP = """\
import ctypes, fcntl, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def put(path, pages, flags=0):
    fd = os.open(path, os.O_CREAT | os.O_RDWR | flags, 0o600)
    assert os.pwrite(fd, os.urandom(4096 * pages), 0) == 4096 * pages
    return fd
def in_child(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    os.waitpid(child, 0)
def aligned(pages):
    memory = mmap.mmap(-1, 4096 * pages)
    memory[:] = os.urandom(4096 * pages)
    return memory
def no_checksums(fd):  # FS_IOC_SETFLAGS: btrfs writes nothing directly that it has to sum
    fcntl.ioctl(fd, 0x40086602, (0x00800000).to_bytes(8, "little"))
"""
"""The beginning of a load."""


class Written(Recorded):
    """A recording of loads by name, whose last word is the kind of the load's file system."""

    def __init__(
        self,
        record: Callable[..., Recorded],
        sources: Mapping[str, str],
        disks: Mapping[str, tuple[Path, str]],
        *options: str,
        backend: str = "ftrace",
    ) -> None:
        """Record sources that know `mount` and `kind`; `disks`: mount points and MAJOR:MINORs."""
        loads = {
            name: f"mount, kind = {str(disks[name][0])!r}, {name.split()[-1]!r}\n{SETUP}{source}"
            for name, source in sources.items()
        }
        os.sync()
        recorded = record(loads, *options, backend=backend)
        super().__init__(recorded.trace, recorded.loads)
        self.target = self.trace.manifest["targets"][0]["name"]
        self._disks = disks
        flushes(self.trace)

    def mount(self, load: str) -> Path:
        """The mount point of a load's file system."""
        return self._disks[load][0]

    def dev(self, load: str) -> str:
        """MAJOR:MINOR of its device."""
        return self._disks[load][1]

    def flushed(self, load: str, columns: str, where: str = "true") -> list[tuple]:
        """Rows of the pages of files that were written to it."""
        return self.rows(
            f"SELECT {columns} FROM flushes WHERE dev = ? AND NOT contains(rwbs, 'M') "
            f"AND ({where}) GROUP BY ALL ORDER BY ALL",
            self.dev(load),
        )


def extents_of(path: Path) -> list[tuple[int, int]]:
    """The sectors of a file: on a new file system btrfs's own addresses are the device's, too."""
    listed = subprocess.run(
        ["filefrag", "-v", "-b512", str(path)], check=True, capture_output=True, text=True
    ).stdout
    found = []
    for line in listed.splitlines():
        parts = line.replace("..", " ").replace(":", " ").split()
        if len(parts) >= 6 and parts[0].isdigit():
            found.append((int(parts[3]), int(parts[4]) + 1))
    assert found, listed
    return found
