"""Errors in writing or reading a recording's files: a full disk, and all others."""

from __future__ import annotations

import errno
from pathlib import Path

from tracer.probes.errors import TracerError
from tracer.probes.text import shell_word

DISK, ERROR, SPACE = "disk", "error", "space"
"""Values of `ended_by` in the manifest: a full disk, another error of a file, little space left."""

_FULL = {
    errno.ENOSPC: ("the disk of {} is full", "free space"),
    errno.EDQUOT: ("the quota of the disk of {} is used up", "free space or raise the quota"),
}
_MENDS = {
    errno.EFBIG: "allow longer files (ulimit -f unlimited) or limit the trace (--max-size)",
    errno.EIO: "read the kernel's messages about the device (dmesg)",
    errno.EROFS: "find out why it became read-only (dmesg), and remount it",
    errno.ESTALE: "check that the file server still exports it",
    errno.ENODEV: "check that the device is still attached",
}


def ended_by_error(error: OSError) -> str:
    """Returns DISK if there was no space for a file, else ERROR."""
    return DISK if error.errno in _FULL else ERROR


def _is_gone(folder: Path) -> bool:
    try:
        return folder.stat().st_nlink == 0
    except OSError:
        return True


def unwritten(folder: Path, error: OSError) -> TracerError:
    """Returns the error for the user: the state of the recording in `folder`, and the mend."""
    if error.errno == errno.ENOENT and _is_gone(folder):
        return TracerError(
            f"{folder} was removed or replaced while it was recorded", "record again, elsewhere"
        )
    kept = f"see it with: tracer info {shell_word(folder)}"
    if error.errno in _FULL:
        what, mend = _FULL[error.errno]
        what = f"{what.format(folder)}: the recording ended there"
    else:
        what = f"the recording in {folder} ended early: {error.strerror or error}"
        mend = _MENDS.get(error.errno or 0, "")
    return TracerError(what, f"the captured data is kept; {mend + ', then ' if mend else ''}{kept}")
