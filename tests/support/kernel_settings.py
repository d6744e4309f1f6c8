"""Settings of the machine's kernel that tests change for as long as any of them runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.turns import folder_of_runs

_EXPEDITED = Path("/sys/kernel/rcu_expedited")
_AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")
_RESTORE = 'read -r _; flock --nonblock "$1" && cat "/proc/self/fd/$1" > "$2"'
"""Waits for the end of the tests, however they end. The last process that runs tests puts the
setting back."""


@contextlib.contextmanager
def _held(setting: Path, value: str) -> Iterator[None]:
    """Gives a setting this value, where it can, until all processes end that hold it so.

    They share a lock. Its file has the setting of before the first one.
    """
    if not setting.exists():
        yield
        return
    runs = folder_of_runs()
    runs.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(runs / f"{setting.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(lock, 0)
        os.pwrite(lock, setting.read_bytes(), 0)
    fcntl.flock(lock, fcntl.LOCK_SH)
    with subprocess.Popen(
        ["sh", "-c", _RESTORE, "sh", str(lock), setting],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(lock,),
    ):
        os.close(lock)
        with contextlib.suppress(OSError):
            setting.write_text(value)
        yield


@pytest.fixture(scope="session", autouse=True)
def short_grace_periods():
    """Sets the kernel to expedited grace periods of RCU until the tests end.

    The kernel waits for a grace period when an event is switched off. A recording by eBPF or perf
    switches off dozens of events, one after the other, and takes seconds to end.
    """
    with _held(_EXPEDITED, "1"):
        yield


def priorities_across_sessions() -> contextlib.AbstractContextManager[None]:
    """Makes nice values count among all processes that are started from now on.

    The scheduler gives each session (setsid) an equal share of the CPUs, and nice values count
    within a session alone. So a job in a session of its own took half the time of all tests of the
    live machine together, whatever its nice value was.
    """
    return _held(_AUTOGROUPS, "0")
