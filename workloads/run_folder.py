"""Temporary folders of runs. The next run removes those of killed runs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tracer.workloads.owner import has_ended, myself

_PREFIX = "traintrace-run-"
_NAME = re.compile(rf"{_PREFIX}(?P<owner>\d+-\d+-[0-9a-f]*-\d+-\d+)-\w+")


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Makes a folder that is removed with all its files at the end of the block.

    First removes the folders of runs of the same user whose own process was killed.
    """
    _remove_leftovers()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{myself()}-") as folder:
        yield Path(folder)


def _remove_leftovers() -> None:
    with os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            name = _NAME.fullmatch(entry.name)
            if name and has_ended(name["owner"], here=True) and _is_ours(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Returns whether an entry is a folder of this user: others may write beside it."""
    try:
        owner = entry.stat(follow_symlinks=False).st_uid
        return entry.is_dir(follow_symlinks=False) and owner == os.geteuid()
    except FileNotFoundError:  # another run has removed it
        return False
