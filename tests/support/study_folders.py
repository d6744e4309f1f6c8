"""The folder of a study that `tracer study run` makes, and what it must not leave behind."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.dockerd import Dockerd


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns the results of the runs that have ended, by their ids."""
    paths = folder.glob("runs/*/run.json")
    return {path.parent.name: json.loads(path.read_text()) for path in paths}


def times_of(folder: Path, name: str) -> dict[Path, int]:
    """Returns the modification time of the runs' files of this name."""
    return {path: path.stat().st_mtime_ns for path in folder.glob(f"runs/*/{name}")}


def loops(folder: Path) -> list[str]:
    """Returns the lines about loop devices on files in the folder or beside it."""
    said = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True)
    return [line for line in said.stdout.splitlines() if f"({folder.parent}/" in line]


def assert_nothing_is_left(folder: Path, dockerd: Dockerd) -> None:
    """Fails if a study that has ended left a mount, a loop device or a container."""
    for name in ("scratch", "memory"):
        assert not os.path.ismount(folder / name)
    assert loops(folder) == []
    assert dockerd.client.containers.list(all=True, ignore_removed=True) == []
