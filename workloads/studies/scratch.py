"""A file system of a study's own, on a loop device: its write-backs are nobody else's."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from workloads.errors import BrokenJobError, JobError

IMAGE = "scratch.img"
MOUNT = "scratch"


class Scratch:
    """Made at the first start of a study, mounted while one runs; a context."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.image = folder / IMAGE
        self.mount = folder / MOUNT
        self._size = size_bytes

    def __enter__(self) -> Scratch:
        """Mount it; what a killed run left mounted is taken down before. Raises JobError."""
        if os.geteuid() != 0:
            raise JobError("a study mounts a file system of its own", "run it as root (sudo)")
        self.close()
        fresh = not self.image.exists()
        if fresh:
            with self.image.open("wb") as file:
                os.truncate(file.fileno(), self._size)
            _run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(self.image)])
        self.mount.mkdir(exist_ok=True)
        _run(["mount", "-o", "loop", str(self.image), str(self.mount)])
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmount it, as often as it is mounted, and free its loop devices."""
        while os.path.ismount(self.mount):
            if _quietly(["umount", str(self.mount)]):
                _run(["umount", "--lazy", str(self.mount)])
        if self.image.exists():
            said = subprocess.run(
                ["losetup", "-j", str(self.image)], capture_output=True, text=True, check=False
            )
            for line in said.stdout.splitlines():
                _quietly(["losetup", "-d", line.partition(":")[0]])


def drop_caches() -> None:
    """Write back what is dirty and drop the page cache, dentries and inodes."""
    os.sync()
    with contextlib.suppress(PermissionError):
        Path("/proc/sys/vm/drop_caches").write_text("3\n")


def _quietly(command: list[str]) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise JobError(f"{command[0]} is not there", "install e2fsprogs and mount") from None
    except subprocess.CalledProcessError as error:
        words = " ".join(error.stderr.split())[:300]
        raise BrokenJobError(f"{command[0]} failed: {words}", "see the scratch image") from None
