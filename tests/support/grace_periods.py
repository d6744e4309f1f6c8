"""RCU's grace periods, made shorter while tests of the kernel run.

The kernel waits for a grace period when an event is switched off. A recording by eBPF or perf
switches off dozens of events, one after the other, and takes seconds to end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from pathlib import Path

import pytest

_SETTING = Path("/sys/kernel/rcu_expedited")
_RESTORE = 'read -r _; flock --nonblock "$1" && cat "/proc/self/fd/$1" > "$2"'
"""Waits for the end of the tests, however they end. The last process that runs tests puts the
setting back."""


@pytest.fixture(scope="session", autouse=True)
def short_grace_periods(tmp_path_factory):
    """Sets the kernel to expedited grace periods, where it can, until the tests end.

    Processes that run tests share a lock. Its file has the setting of before the first one.
    """
    if not _SETTING.exists():
        yield
        return
    place = tmp_path_factory.getbasetemp().parent / "grace_periods.lock"
    lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(lock, 0)
        os.pwrite(lock, _SETTING.read_bytes(), 0)
    fcntl.flock(lock, fcntl.LOCK_SH)
    with subprocess.Popen(
        ["sh", "-c", _RESTORE, "sh", str(lock), _SETTING],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(lock,),
    ):
        os.close(lock)
        with contextlib.suppress(OSError):
            _SETTING.write_text("1")
        yield
