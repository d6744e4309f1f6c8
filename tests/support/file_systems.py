"""File systems of a test's own, on loop devices."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import do_without

MAKE = {
    # The journal is not of the fast-commit kind and inode tables are written beforehand, so that
    # nobody else writes to the device.
    "ext4": ("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}
"""How the file systems are made, of blocks of 4 KiB."""
_QUIET = {"ext4": "no_prefetch_block_bitmaps"}
"""Mount options: nothing is read or written later on but what the test does. A kernel thread of
ext4 reads bitmaps some seconds after a mount, at random."""
_LEAST_MIB = {"ext4": 1, "xfs": 300, "btrfs": 256}


@pytest.fixture
def file_system(tmp_path):
    """A file system on a loop device of its own; returns (mount point, MAJOR:MINOR)."""
    mounted = []

    def make(
        size_mib: int = 256, name: str = "disk", kind: str = "ext4", mkfs=(), options: str = ""
    ) -> tuple[Path, str]:
        maker = MAKE[kind][0]
        if not shutil.which(maker):
            do_without(maker, "TRACER_REQUIRE_KERNEL", "it is not installed (make setup)")
        if f"\t{kind}\n" not in Path("/proc/filesystems").read_text():
            do_without(kind, "TRACER_REQUIRE_KERNEL", "the kernel has none")
        image, mount = tmp_path / f"{name}.img", tmp_path / name
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(max(size_mib, _LEAST_MIB[kind]) << 20)
        subprocess.run([*MAKE[kind], *mkfs, str(image)], check=True, capture_output=True)
        found = subprocess.run(
            ["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True
        )
        device = found.stdout.strip()
        mounted.append((mount, device))
        wanted = ",".join(filter(None, (_QUIET.get(kind), options)))
        chosen = ["-o", wanted] if wanted else []
        subprocess.run(["mount", *chosen, device, str(mount)], check=True)
        numbers = subprocess.run(
            ["lsblk", "-dno", "MAJ:MIN", device], check=True, capture_output=True, text=True
        )
        return mount, numbers.stdout.strip()

    yield make
    for mount, device in reversed(mounted):
        subprocess.run(["umount", str(mount)], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", device], check=False)
