"""Errors of the files that a recording goes to: a full disk, and what is no full disk."""

from __future__ import annotations

import errno
from pathlib import Path

from probes.errors import TracerError

DISK, ERROR = "disk", "error"
"""What ended a recording, in its manifest: no space for it, or another error of a file."""

_FULL = {
    errno.ENOSPC: ("the disk of {} is full", "free space"),
    errno.EDQUOT: ("the quota of the disk of {} is used up", "free space or raise the quota"),
}
_MENDS = {
    errno.EFBIG: "allow longer files (ulimit -f unlimited) or limit the trace (--max-size)",
    errno.EIO: "see what the kernel says of the device (dmesg)",
    errno.EROFS: "see why it was made read-only (dmesg), and mount it again",
    errno.ESTALE: "see whether the file server still serves it",
    errno.ENODEV: "see whether the device is still there",
}


def ended_by_error(error: OSError) -> str:
    """DISK where there was no space for a file, else ERROR."""
    return DISK if error.errno in _FULL else ERROR


def unwritten(folder: Path, error: OSError) -> TracerError:
    """The error for the user: what became of the recording in `folder`, and the mend."""
    kept = f"see it with: tracer info {folder}"
    if error.errno in _FULL:
        what, mend = _FULL[error.errno]
        what = f"{what.format(folder)}: the recording ended there"
    else:
        what = f"the recording in {folder} ended early: {error.strerror or error}"
        mend = _MENDS.get(error.errno or 0, "")
    return TracerError(what, f"what was captured is kept; {mend + ', then ' if mend else ''}{kept}")
