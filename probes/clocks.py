"""Differences between the kernel's clocks."""

from __future__ import annotations

import time

_READINGS = 5


def ahead_of_monotonic_ns(clock: int) -> int:
    """Returns a clock's time minus CLOCK_MONOTONIC, from the fastest of five readings.

    `clock` is CLOCK_REALTIME or CLOCK_BOOTTIME of `time`. A process that has to wait for a CPU
    between two readings would take the wait for a difference.
    """

    def read() -> tuple[int, int]:
        before = time.monotonic_ns()
        other = time.clock_gettime_ns(clock)
        after = time.monotonic_ns()
        return after - before, other - (before + after) // 2

    return min(read() for _ in range(_READINGS))[1]
