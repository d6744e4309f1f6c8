"""The trace directory of a recording: made, checked, and taken back if nothing came of it."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from probes.errors import BadTrace, PermissionMissing, TracerError, UsageError
from tracer.store import manifest as manifests
from tracer.store.files import make_folder
from tracer.store.finalize import EVENTS, LOSS, MARKS, RAW
from tracer.store.trace import refuse_live

_LAYOUT = {manifests.FILE, RAW, EVENTS, LOSS}


def check(path: Path, force: bool) -> None:
    """Refuse a place that holds something else, or a trace that is not to be replaced."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise UsageError(f"{path} exists and is no trace", "give another name with -o")
    if path.exists():
        if not _is_trace_or_empty(path):
            raise UsageError(f"{path} exists and is no trace", "give another name with -o")
        if not force:
            raise UsageError(f"{path} exists", "give another name with -o, or --force")
        with contextlib.suppress(BadTrace):
            refuse_live(path, manifests.read(path))
    elif not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.absolute().parent}", "make it first: mkdir -p")


def _is_trace_or_empty(path: Path) -> bool:
    """Whether --force may remove it: it holds nothing but what a trace holds."""
    entries = {entry.name for entry in path.iterdir() if not entry.name.startswith(f".{EVENTS}.")}
    # A recorder that was killed at once has left the raw folder alone.
    return entries <= {RAW} or (manifests.FILE in entries and entries <= _LAYOUT)


def make(folder: Path) -> None:
    """Make the trace directory, in place of one that `check` let pass."""
    try:
        if folder.exists():
            shutil.rmtree(folder)
        make_folder(folder)
        make_folder(folder / RAW)
        make_folder(folder / RAW / MARKS)
    except PermissionError:
        raise PermissionMissing(
            f"{folder} cannot be written", "name a folder of yours with -o"
        ) from None
    except OSError as error:
        raise TracerError(
            f"{folder} cannot be written: {error.strerror}", "name another with -o"
        ) from None


def remove_if_empty(folder: Path) -> None:
    """Take back a trace directory that got no manifest: nothing was recorded."""
    if folder.is_dir() and not (folder / manifests.FILE).exists():
        shutil.rmtree(folder, ignore_errors=True)


def inodes(folder: Path) -> dict[str, list[int]]:
    """Inodes of what the recorder and the marks wrote, by device (MAJOR:MINOR)."""
    found: dict[str, list[int]] = {}
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(OSError):
            stat = path.lstat()
            dev = f"{os.major(stat.st_dev)}:{os.minor(stat.st_dev)}"
            found.setdefault(dev, []).append(stat.st_ino)
    return found
