"""Checks of the places that outputs go to: nothing is replaced that is no output of ours."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from tracer.probes.errors import BadTrace, UsageError
from tracer.probes.text import shell_word
from tracer.store import manifest as manifests
from tracer.store.files import unwritable
from tracer.store.finalize import EVENTS, LOSS, RAW
from tracer.store.makers import refuse_live

_LAYOUT = {manifests.FILE, RAW, EVENTS, LOSS}
_DEPTH = 3
"""Depth of the files of a trace below the folder that holds it: trace, raw, marks."""


def check_file(output: Path, force: bool) -> None:
    """Raises UsageError unless `output` is free, or a regular file of no trace and `force` is set.

    A device, a pipe or a link is never replaced. A file of a trace may belong to the very trace
    that is read. Raises PermissionMissing if this user may not look there.
    """
    try:
        mode = output.lstat().st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        if isinstance(error, PermissionError):
            raise unwritable(output, error, "name another file") from None
        raise UsageError(f"cannot write {output}: {error.strerror}", "name another file") from None
    if mode is not None:
        if stat.S_ISDIR(mode):
            raise UsageError(f"{output} is a folder", "give another name")
        if not stat.S_ISREG(mode):
            raise UsageError(f"{output} exists and is no regular file", "name another file")
        if not force:
            raise UsageError(f"{output} exists", "name another file, or give --force to replace it")
        if _is_in_trace(output):
            raise UsageError(f"{output} is a file of a trace", "name another file")
    _require_parent(output)


def check_folder(output: Path, force: bool) -> None:
    """Raises UsageError unless `output` is free, or a folder of no trace and `force` is set."""
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise UsageError(f"{output} exists and is no folder", "give another name")
    if output.exists():
        if not force:
            raise UsageError(f"{output} exists", "give another name with -o, or --force")
        if _is_in_trace(output / "any"):
            raise UsageError(f"{output} is a trace, or lies in one", "give another name")
    _require_parent(output)


def check_trace(folder: Path, force: bool) -> None:
    """Raises UsageError unless `folder` is free, or an ended trace and `force` is set."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} exists and is not a trace", "give another name with -o")
    if folder.exists():
        if not _is_trace_or_empty(folder):
            raise UsageError(f"{folder} exists and is not a trace", "give another name with -o")
        if not force:
            raise UsageError(f"{folder} exists", "give another name with -o, or --force")
        with contextlib.suppress(BadTrace):
            refuse_live(folder, manifests.read(folder))
    _require_parent(folder)


def _require_parent(output: Path) -> None:
    if not (parent := output.absolute().parent).is_dir():
        raise UsageError(
            f"there is no folder {parent}", f"make it first: mkdir -p {shell_word(parent)}"
        )


def _is_in_trace(path: Path) -> bool:
    above = Path(os.path.realpath(path)).parents[:_DEPTH]
    return any(map(_is_trace, above))


def _is_trace(folder: Path) -> bool:
    if not any((folder / name).is_dir() for name in (RAW, EVENTS)):
        return False
    try:
        manifests.read(folder)
    except BadTrace:
        return False
    return True


def _is_trace_or_empty(path: Path) -> bool:
    """Returns whether --force may remove the folder: it contains only the files of a trace."""
    entries = {entry.name for entry in path.iterdir() if not entry.name.startswith(f".{EVENTS}.")}
    # A recorder that was killed at once leaves only the raw folder.
    return entries <= {RAW} or (manifests.FILE in entries and entries <= _LAYOUT)
