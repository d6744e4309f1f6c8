"""Names of inodes, as the recorder finds them at the end of a recording."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from tests.support.traces import rows_of
from tracer.probes.clocks import ahead_of_monotonic_ns
from tracer.probes.events.dirty import TABLE as DIRTY
from tracer.probes.events.file_writes import TABLE as FILE_WRITES
from tracer.session import environment
from tracer.session.paths import find_files
from tracer.store.tables import write_table


@pytest.fixture
def names(tmp_path):
    """Returns the answers of `find_files` for inodes of a device: {ino: (path, how)}."""
    made = []

    def ask(
        dev: str,
        inodes: list[int],
        until: int | None = None,
        root: int = 5,
        others=None,
        command=(),
        folders=(),
    ):
        folder = tmp_path / f"tables{len(made)}"
        made.append(folder)
        folder.mkdir()
        btrfs = [fs for fs in environment.btrfs() if dev in fs["devices"]]
        whose = {"fsid": btrfs[0]["fsid"], "root": root} if btrfs else {"dev": dev}
        rows = [{"event": "fsync", "ino": ino, **whose} for ino in inodes]
        for other, more in (others or {}).items():
            rows += [{"event": "fsync", "ino": ino, "dev": other} for ino in more]
        write_table(FILE_WRITES, folder, rows_of(FILE_WRITES, rows))
        write_table(DIRTY, folder, rows_of(DIRTY, []))
        manifest = {
            "clock": {
                "start_ns": 0,
                "end_ns": until or time.monotonic_ns(),
                "realtime_offset_ns": ahead_of_monotonic_ns(time.CLOCK_REALTIME),
            },
            "disks": environment.disks(),
            "btrfs": btrfs,
            "command": list(command),
        }
        found, _, ask.late = find_files(folder, manifest, folders)
        assert {row[1] for row in found} <= {root if btrfs else None}
        assert len({row[0] for row in found}) <= 1
        return {ino: (path, how) for _, _, ino, path, _, _, how in found}

    return ask


def ino(path: Path) -> int:
    return path.lstat().st_ino


def refused(*_):
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
