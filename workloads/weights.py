"""Copies of checkpoint files: bounded, never through a link that the writer of the file made."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from tracer.workloads.errors import MEND_WRITE, JobError, explained
from tracer.workloads.files import open_anew

MOST_BYTES = 16 << 30
"""The most bytes of a checkpoint. The largest of the papers' models has less than one GiB."""
_CHUNK = 1 << 20


def copy_weights(source: Path, target: Path) -> dict[str, object]:
    """Copies a checkpoint file that the user names. Returns bytes and sha256. Raises JobError."""
    mend = "name a checkpoint.pt that `train` wrote for this model"
    with explained(f"cannot read the checkpoint {source}", mend):
        fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise JobError(f"{source} is not a file", mend)
        if target.exists() and target.samefile(source):
            raise JobError(f"{source} is in the job's own folder", "name another --output")
        with explained(f"cannot write {target}", MEND_WRITE), open_anew(target) as out:
            return copied(file, out)


def copied(source: BinaryIO, target: BinaryIO | None = None) -> dict[str, object]:
    """Copies an open file, or only reads it. Returns its bytes and sha256.

    Raises JobError for more than MOST_BYTES.
    """
    digest = hashlib.sha256()
    size = 0
    while chunk := source.read(_CHUNK):
        size += len(chunk)
        if size > MOST_BYTES:
            raise JobError(
                f"the checkpoint has more than {MOST_BYTES} bytes", "serve a smaller model"
            )
        digest.update(chunk)
        if target is not None:
            target.write(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}
