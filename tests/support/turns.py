"""Turns that tests of the one live machine take, whichever process runs them.

Two marks keep apart kernel and Docker tests that cannot run beside each other:
`quiet` (it measures time, or disturbs all others: none of these runs meanwhile) and `settings` (it
changes settings of the whole machine, or counts on them: one after another).
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

OWN_PRIORITY = os.getpriority(os.PRIO_PROCESS, 0)
LOWER_PRIORITY = 10
"""A nice value: beside one process that is not nice, a process gets a tenth of a CPU."""


def take_priority(item: pytest.Item) -> None:
    """Gives tests of the live machine the CPUs before all others, if the user may raise priorities.

    The processes and threads that a test starts inherit its priority.
    """
    observes = any(item.get_closest_marker(name) for name in ("kernel", "docker"))
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, OWN_PRIORITY if observes else LOWER_PRIORITY)


def folder_of_runs() -> Path:
    """The folder in which pytest makes a folder for each run of this user."""
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir()
    return Path(root).resolve() / f"pytest-of-{getpass.getuser()}"


@contextlib.contextmanager
def turn_of(item: pytest.Item) -> Iterator[None]:
    """Holds what a test needs of the machine while it runs, with its fixtures."""
    if not any(item.get_closest_marker(name) for name in ("kernel", "docker")):
        yield
        return
    with contextlib.ExitStack() as held:
        with _held("queue"):  # In order: a test that waits to be alone comes before later ones.
            quiet = item.get_closest_marker("quiet") is not None
            held.enter_context(_held("machine", fcntl.LOCK_EX if quiet else fcntl.LOCK_SH))
        if item.get_closest_marker("settings") is not None:
            held.enter_context(_held("settings"))
        yield


@contextlib.contextmanager
def _held(name: str, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Holds a lock of the whole machine. The kernel takes it from a process that is killed."""
    runs = folder_of_runs()
    runs.mkdir(mode=0o700, exist_ok=True)
    with (runs / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, how)
        try:
            yield
        finally:
            # A process that the test forked may have the file open still.
            fcntl.flock(lock, fcntl.LOCK_UN)
