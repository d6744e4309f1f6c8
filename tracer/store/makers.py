"""Makers of the tables of a trace that has none: nobody before its recorder and guardian end."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tracer.probes.errors import PermissionMissing, UsageError
from tracer.probes.kernel import boot_id, process_alive
from tracer.probes.text import shell_word
from tracer.store.files import is_held
from tracer.store.manifest import Manifest

_GUARDIAN_S = 60.0


def refuse_live(folder: Path, manifest: Manifest) -> None:
    """Raises UsageError if a recorder on this machine still records the trace, or makes its
    tables."""
    recorder = manifest["recorder"]
    pid, start = recorder.get("pid"), recorder.get("start_time")
    if (
        pid is not None
        and recorder.get("boot_id") == boot_id()
        and pid != os.getpid()
        and process_alive(pid, start)
        # A manifest may name any process, but only a recorder holds the folder.
        and is_held(folder) is not False
    ):
        if manifest["state"] == "recording":
            what, mend = "is still being recorded by process", f"stop that first: kill {pid}"
        else:
            what, mend = "gets its tables from its recorder, process", "wait until that has ended"
        raise UsageError(f"{folder} {what} {pid}", mend)


def await_guardian(folder: Path, manifest: Manifest) -> None:
    """Waits while a guardian saves a killed recorder's data."""
    recorder = manifest["recorder"]
    if "guardian" not in recorder or recorder.get("boot_id") != boot_id():
        return
    pid, start = recorder["guardian"]
    deadline = time.monotonic() + _GUARDIAN_S
    # A manifest may name any process, but only recorder and guardian hold the folder.
    while process_alive(pid, start) and is_held(folder):
        if time.monotonic() > deadline:
            raise UsageError(
                f"the guardian of the killed recorder of {folder} is still saving its data",
                f"wait for process {pid} to end, or find out what keeps the disk busy",
            )
        time.sleep(0.02)


def refuse_anothers(folder: Path) -> None:
    """Raises PermissionMissing if root would write into another user's folder.

    The owner can change the folder meanwhile and so choose the place that root writes to.
    """
    owner = folder.stat().st_uid
    if os.geteuid() == 0 and owner != 0:
        raise PermissionMissing(
            f"{folder} belongs to user {owner} and has no tables yet; root does not make them",
            f"make them as that user: sudo -u '#{owner}' tracer info {shell_word(folder)}",
        )
