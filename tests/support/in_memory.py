"""Temporary folders in memory: for tests that make many traces and do not ask for a disk.

A test that only makes and reads small files waits for the disk longer than it computes. A
folder's `conftest.py` imports both fixtures, which then take the place of pytest's in that folder.
pytest's own folders are used if little memory is free. What a session with failed tests left, to
be looked at, goes when the next one begins.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psutil
import pytest

PLACE = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
"""A folder for files in memory; None: there is none."""
_PREFIX = "tracer-tests-"
_LEAST_BYTES, _ROOMY_BYTES = 4 << 30, 12 << 30
"""The free memory that is asked for; the tests of a folder take less than a quarter of it, and the
engines of containers as well."""


class Folders:
    """Makes folders as pytest's TempPathFactory does."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._numbers = count()

    def mktemp(self, name: str) -> Path:
        """A new empty folder, with `name` and a number."""
        found = self._base / f"{name}{next(self._numbers)}"
        found.mkdir(0o700)
        return found


@pytest.fixture(scope="session")
def tmp_path_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Folders | pytest.TempPathFactory]:
    """Makes folders in memory; they go at the end, unless a test failed."""
    if PLACE is None or shutil.disk_usage(PLACE).free < _LEAST_BYTES:
        yield tmp_path_factory
        return
    for old in PLACE.glob(f"{_PREFIX}[0-9]*-*"):
        if not psutil.pid_exists(int(old.name.split("-")[2])):
            shutil.rmtree(old, ignore_errors=True)
    base = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=PLACE))
    yield Folders(base)
    if not request.session.testsfailed:
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: Folders) -> Path:
    """An empty folder of the test's own."""
    return tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:30])


def roomy_place() -> Path | None:
    """Returns a folder in memory for the data of engines of containers, if much memory is free.

    An image of PyTorch has more than a gibibyte, and engines wait for many small writes. Folders in
    it are called `tracer-tests-PID-...`.
    """
    return PLACE if psutil.virtual_memory().available >= _ROOMY_BYTES else None
