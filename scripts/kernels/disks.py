"""Disks of a guest: one for each kind of file system."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from scripts.kernels.errors import CannotTest

_SIZE = 512 << 20
_EXT4_FEATURES = (
    "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,"
    "large_file,huge_file,dir_nlink,extra_isize,metadata_csum"
)
"""Those that the oldest kernel here has: mkfs.ext4 would also choose later ones."""
# nrext64 is another such feature, which xfs got in 5.19.
_MAKE: dict[str, tuple[str, ...]] = {
    "ext4": (
        *("mkfs.ext4", "-q", "-F", "-b", "4096", "-O", _EXT4_FEATURES),
        *("-E", "lazy_itable_init=0,lazy_journal_init=0"),
    ),
    "xfs": ("mkfs.xfs", "-q", "-f", "-i", "nrext64=0"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
KINDS = tuple(_MAKE)
MOUNT_OPTIONS = {"ext4": "no_prefetch_block_bitmaps"}
"""Options of mount for a device to which nobody but the test writes."""


def make(folder: Path) -> dict[str, Path]:
    """Makes a disk image for each kind in `folder`; returns their files by kind."""
    made = {}
    for kind, command in _MAKE.items():
        if shutil.which(command[0]) is None:
            raise CannotTest(f"{command[0]} is not installed: make setup")
        image = folder / f"{kind}.img"
        image.unlink(missing_ok=True)
        with image.open("wb") as file:
            file.truncate(_SIZE)
        ran = subprocess.run([*command, image], capture_output=True, text=True, check=False)
        if ran.returncode:
            raise CannotTest(f"{command[0]} failed: {ran.stderr.strip()}")
        made[kind] = image
    return made
