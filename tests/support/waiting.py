"""Waits for another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, seconds: float = 60) -> T:
    """Wait until the condition holds, and return its value; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.01)
    return found


def wait_for_rounds(pid: int, count: int) -> None:
    """Wait until a process whose first thread sleeps in a loop has slept so many more times."""
    process = psutil.Process(pid)
    enough = process.num_ctx_switches().voluntary + count
    wait_for(lambda: process.num_ctx_switches().voluntary >= enough, f"process {pid}")
