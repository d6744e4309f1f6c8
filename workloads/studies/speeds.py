"""How fast a file system is read, cold: whether a medium is what it is said to be."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from tracer.store.files import create
from workloads.containers.limits import Speed
from workloads.errors import BrokenJobError

_NAME = "speed-test"
_BLOCK = 1 << 20
_PAGE = 4096
_SECONDS = 0.5
"""That reading lasts at a medium's speed; less where the file would be too large or too small."""
_LEAST_BYTES, _MOST_BYTES = 4 << 20, 256 << 20
_LEAST_READS, _MOST_READS = 16, 2000
_SLACK = 1.5
"""A limit is kept on average: what is let through at once at first is of a tenth of a second."""


@dataclass(frozen=True)
class Measured:
    """Of one reader, through the page cache: bytes a second in order, pages a second at random."""

    read_bytes_per_s: float
    read_iops: float


class SpeedTest:
    """A file that is read again and again; a context, after which it is gone."""

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
        """Read the file in order, then pages of it at random, none of it from the page cache."""
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
    """Raise BrokenJobError where what the medium lies on is slower than the medium."""
    if found.read_bytes_per_s < speed.read_bytes_per_s:
        raise BrokenJobError(
            f"{where} is read with {_mb(found.read_bytes_per_s)}, slower than the medium with "
            f"{_mb(speed.read_bytes_per_s)}",
            "run it on a machine with a faster disk, or leave out this medium",
        )


def require_limited(found: Measured, speed: Speed) -> None:
    """Raise BrokenJobError where a limit is not in force."""
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
