"""ext4 on a slow disk: file systems that are made at once, and the blocks of their files."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.slow_disk import SlowDisk

REQUEST_MS = 20
"""The time that the disk takes for a request."""
BLOCK = 4096
"""Bytes of a block."""
QUIET = "no_prefetch_block_bitmaps"
"""A mount option: no kernel thread reads bitmaps some seconds after a mount."""


def run(*command: object) -> str:
    """Runs a command, which must succeed; returns what it wrote to its standard output."""
    words = list(map(str, command))
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def mounted(
    disk: SlowDisk, mount: Path, files: Mapping[str, bytes], options: str, *mkfs: object
) -> Iterator[None]:
    """Mounts a new file system with these files; the end unmounts it.

    The disk takes no time for that, only for the requests of the block. `options` are those of the
    mount, `mkfs` those of mkfs.ext4.
    """
    mount.mkdir()
    with disk.at_once():
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        run("mkfs.ext4", "-q", *mkfs, "-E", lazy, disk.device)
        run("mount", "-o", options, disk.device, mount)
    try:
        with disk.at_once():
            for name, content in files.items():
                (mount / name).parent.mkdir(exist_ok=True)
                (mount / name).write_bytes(content)
            run("sync", "-f", mount)
        yield
    finally:
        with disk.at_once():
            run("umount", mount)


def blocks_of(disk: SlowDisk, inode: str) -> set[int]:
    """Returns the numbers of a file's blocks on the disk; `inode`: as debugfs takes it."""
    with disk.at_once():
        found = set(map(int, run("debugfs", "-R", f"blocks {inode}", disk.device).split()))
    assert found
    return found
