"""ext4 on a slow disk: commands that make and mount it, and the blocks of its files."""

from __future__ import annotations

import subprocess

from tests.support.slow_disk import SlowDisk

REQUEST_MS = 20
"""The time that the disk takes for a request."""
BLOCK = 4096
"""Bytes of a block."""


def run(*command: object) -> str:
    """Runs a command, which must succeed; returns what it wrote to its standard output."""
    words = list(map(str, command))
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def blocks_of(disk: SlowDisk, inode: str) -> set[int]:
    """Returns the numbers of a file's blocks on the disk; `inode`: as debugfs takes it."""
    found = set(map(int, run("debugfs", "-R", f"blocks {inode}", disk.device).split()))
    assert found
    return found
