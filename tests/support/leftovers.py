"""Takes down the file systems that a killed run of the tests left mounted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil

from tests.support.turns import folder_of_runs


def take_down() -> None:
    """Unmount what lies in the folders of test runs whose process is gone.

    pytest removes the folders of earlier runs, and fails on a file system that is still mounted
    in one of them.
    """
    runs = folder_of_runs()
    mounted = [Path(one.mountpoint) for one in psutil.disk_partitions(all=True)]
    for point in sorted(mounted, reverse=True):
        if point.is_relative_to(runs) and not _is_running(runs / point.relative_to(runs).parts[0]):
            subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def _is_running(run: Path) -> bool:
    """True while the process that holds pytest's lock of this folder lives."""
    try:
        return psutil.pid_exists(int((run / ".lock").read_text()))
    except (OSError, ValueError):
        return False
