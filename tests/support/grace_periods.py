"""RCU's grace periods, made shorter while tests of the kernel run.

The kernel waits for a grace period when an event is switched off. A recording by eBPF or perf
switches off dozens of events, one after the other, and takes seconds to end.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

_SETTING = Path("/sys/kernel/rcu_expedited")
_RESTORE = 'read -r _; echo "$1" > "$2"'
"""Waits for the end of the tests, however they end, and puts the setting back."""


@pytest.fixture(scope="session", autouse=True)
def short_grace_periods():
    """Sets the kernel to expedited grace periods, where it can, until the tests end."""
    try:
        before = _SETTING.read_text().strip()
    except OSError:  # the kernel has no such setting
        yield
        return
    with subprocess.Popen(
        ["sh", "-c", _RESTORE, "sh", before, _SETTING],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):
        with contextlib.suppress(OSError):
            _SETTING.write_text("1")
        yield
