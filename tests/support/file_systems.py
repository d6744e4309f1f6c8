"""File systems of a test's own, on loop devices."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import do_without
from tests.support.waiting import wait_for

MAKE = {
    # The journal is not of the fast-commit kind and inode tables are written beforehand, so that
    # nobody else writes to the device.
    "ext4": ("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}
"""Commands that make the file systems, with blocks of 4 KiB."""
_QUIET = {"ext4": "no_prefetch_block_bitmaps"}
"""Mount options: nothing is read or written later on but what the test does. A kernel thread of
ext4 reads bitmaps some seconds after a mount, at random."""
PARTITION_START = 4096
"""The first sector of a partition."""
_LEAST_MIB = {"ext4": 1, "xfs": 300, "btrfs": 256}


def _ran(*command: object) -> str:
    return subprocess.run(
        list(map(str, command)), check=True, capture_output=True, text=True
    ).stdout.strip()


def _make(kind: str, path: Path | str, more: Sequence[str] = ()) -> None:
    """Makes a file system in a file or on a device."""
    maker = MAKE[kind][0]
    if not shutil.which(maker):
        do_without(maker, "TRACER_REQUIRE_KERNEL", "it is not installed (make setup)")
    if f"\t{kind}\n" not in Path("/proc/filesystems").read_text():
        do_without(kind, "TRACER_REQUIRE_KERNEL", "the kernel has none")
    _ran(*MAKE[kind], *more, path)


def numbers_of(device: str) -> str:
    """MAJOR:MINOR of a block device."""
    return Path("/sys/class/block", Path(device).name, "dev").read_text().strip()


class FileSystems:
    """Makes file systems on loop devices of their own, in a folder; its end unmounts them."""

    def __init__(self, folder: Path) -> None:
        """Sets the folder; makes nothing yet."""
        self._folder = folder
        self._made = contextlib.ExitStack()
        self._how: dict[Path, tuple[str, ...]] = {}
        """Options and device by mount point."""

    def __enter__(self) -> FileSystems:
        return self

    def __exit__(self, *_: object) -> None:
        self._made.close()

    def __call__(
        self,
        size_mib: int = 256,
        name: str = "disk",
        kind: str = "ext4",
        mkfs: Sequence[str] = (),
        options: str = "",
    ) -> tuple[Path, str]:
        """Makes a file system and mounts it; returns (mount point, MAJOR:MINOR)."""
        image = self._image(name, max(size_mib, _LEAST_MIB[kind]))
        # In the file: made on the device, it would have the device's flusher look for old pages.
        _make(kind, image, mkfs)
        device = self.loop(image)
        return self._mounted(device, name, kind, options), numbers_of(device)

    def on_a_partition(
        self, name: str = "disk", kind: str = "ext4", size_mib: int = 128
    ) -> tuple[Path, str, str]:
        """Makes a file system on a partition and mounts it; returns (mount point, the partition's
        MAJOR:MINOR, the disk's)."""
        partition, disk = self.partition(name, max(size_mib, _LEAST_MIB[kind]))
        _make(kind, partition)
        return self._mounted(partition, name, kind), numbers_of(partition), numbers_of(disk)

    def partition(self, name: str = "disk", size_mib: int = 128) -> tuple[str, str]:
        """Makes a disk with a partition; returns their paths.

        The kernel is told of the partition: it may know no kind of partition table.
        """
        disk = self.loop(self._image(name, size_mib + 4))
        if Path(f"{disk}p1").exists():  # A killed run's: a loop device keeps partitions.
            _ran("delpart", disk, 1)
        _ran("addpart", disk, 1, PARTITION_START, size_mib << 11)
        self._made.callback(_undo, "delpart", disk, "1")
        return f"{disk}p1", disk

    def on_a_file(self, file: Path, kind: str = "ext4", size_mib: int = 128) -> tuple[Path, str]:
        """Makes a file system in a file on another one and mounts it; returns what a call
        returns."""
        with file.open("wb") as image:
            image.truncate(max(size_mib, _LEAST_MIB[kind]) << 20)
        _make(kind, file)
        device = self.loop(file)
        return self._mounted(device, file.name, kind), numbers_of(device)

    def anew(self, mount: Path) -> None:
        """Mounts a file system once more: nothing of it is in memory then."""
        wait_for(lambda: not _undo("umount", mount), "umount")
        _ran("mount", *self._how[mount], mount)

    def overlay(self, layers: Path, name: str) -> Path:
        """Mount an overlay whose layers are in a folder; returns its mount point."""
        for layer in ("lower", "upper", "work"):
            (layers / layer).mkdir(exist_ok=True)
        options = ",".join(f"{layer}dir={layers / layer}" for layer in ("lower", "upper", "work"))
        return self._mount("overlay", name, ("-t", "overlay", "-o", options))

    def _mounted(self, device: str, name: str, kind: str, options: str = "") -> Path:
        wanted = ",".join(filter(None, (_QUIET.get(kind), options)))
        return self._mount(device, name, ("-o", wanted) if wanted else ())

    def _image(self, name: str, size_mib: int) -> Path:
        image = self._folder / f"{name}.img"
        with image.open("wb") as file:
            file.truncate(size_mib << 20)
        return image

    def loop(self, image: Path | str) -> str:
        """Makes a loop device on a file or block device; returns its path."""
        device = _ran("losetup", "--find", "--show", image)
        self._made.callback(_undo, "losetup", "-d", device)
        return device

    def _mount(self, device: str, name: str, options: Sequence[str]) -> Path:
        mount = self._folder / name
        mount.mkdir()
        self._how[mount] = (*options, device)
        _ran("mount", *self._how[mount], mount)
        self._made.callback(_unmount, mount)
        return mount


def _unmount(mount: Path) -> None:
    """Unmounts a file system; a thread that looked for names may have a file of it open still."""
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not os.path.ismount(mount) or not _undo("umount", mount), "umount", 10)
        return
    _undo("umount", "--lazy", mount)


def _undo(*command: object) -> int:
    """Runs what a test may have done by itself; returns the exit status."""
    return subprocess.run(list(map(str, command)), check=False, capture_output=True).returncode


@pytest.fixture
def file_system(tmp_path):
    """A file system on a loop device of its own; returns (mount point, MAJOR:MINOR)."""
    with FileSystems(tmp_path) as made:
        yield made
