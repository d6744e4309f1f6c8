"""The speed of cold reads from a file system, to check a medium against its declaration."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from tracer.store.files import create
from tracer.workloads.containers.limits import Speed
from tracer.workloads.errors import BrokenJobError

_NAME = "speed-test"
_BLOCK = 1 << 20
_PAGE = 4096
_SECONDS = 0.5
"""Time that reading takes at the medium's speed; the bounds on the file's size may change it."""
_LEAST_BYTES, _MOST_BYTES = 4 << 20, 256 << 20
_LEAST_READS, _MOST_READS = 16, 2000
_SLACK = 1.5
"""Tolerance: the kernel keeps a limit on average, and lets a tenth of a second's worth through at
once at first."""


@dataclass(frozen=True)
class Measured:
    """The speed of one reader through the page cache.

    Bytes per second of sequential reads, and pages per second of random reads.
    """

    read_bytes_per_s: float
    read_iops: float


class SpeedTest:
    """A file for repeated reads. A context manager: its exit removes the file."""

    def __init__(self, folder: Path, speed: Speed) -> None:
        self._path = folder / _NAME
        free = os.statvfs(folder)
        most = min(_MOST_BYTES, free.f_bavail * free.f_frsize // 4)
        wanted = min(most, max(_LEAST_BYTES, int(speed.read_bytes_per_s * _SECONDS)))
        self._blocks = max(1, wanted // _BLOCK)
        self._reads = min(_MOST_READS, max(_LEAST_READS, int(speed.read_iops * _SECONDS)))

    def __enter__(self) -> SpeedTest:
        self._path.unlink(missing_ok=True)
        with create(self._path) as file:
            for _ in range(self._blocks):
                file.write(os.urandom(_BLOCK))
            file.flush()
            os.fsync(file.fileno())
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)

    def measure(self) -> Measured:
        """Reads the file sequentially, then pages of it at random, without the page cache."""
        size = self._blocks * _BLOCK
        fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.monotonic()
            while os.read(fd, _BLOCK):
                pass
            in_order = time.monotonic() - began
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            pages = random.Random(0).sample(range(size // _PAGE), min(self._reads, size // _PAGE))
            began = time.monotonic()
            for page in pages:
                os.pread(fd, _PAGE, page * _PAGE)
            at_random = time.monotonic() - began
        finally:
            os.close(fd)
        return Measured(size / in_order, len(pages) / at_random)


def require_as_fast(found: Measured, speed: Speed, where: str) -> None:
    """Raises BrokenJobError if the disk under the medium is slower than the medium."""
    if found.read_bytes_per_s < speed.read_bytes_per_s:
        raise BrokenJobError(
            f"{where} reads {_mb(found.read_bytes_per_s)}, slower than the medium's "
            f"{_mb(speed.read_bytes_per_s)}",
            "use a machine with a faster disk, or leave out this medium",
        )


def require_limited(found: Measured, speed: Speed) -> None:
    """Raises BrokenJobError if a limit is not in force."""
    if (
        found.read_bytes_per_s > _SLACK * speed.read_bytes_per_s
        or found.read_iops > _SLACK * speed.read_iops
    ):
        raise BrokenJobError(
            f"the limit is not in force: {_mb(found.read_bytes_per_s)} and "
            f"{found.read_iops:.0f} requests/s were read, {_mb(speed.read_bytes_per_s)} and "
            f"{speed.read_iops} allowed",
            "leave out this medium",
        )


def _mb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.0f} MB/s"
