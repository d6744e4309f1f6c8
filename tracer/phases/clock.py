"""The clock of marks: the machine's CLOCK_MONOTONIC, whichever time namespace a process is in."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_OFFSETS = "/proc/self/timens_offsets"
_NAMESPACES = ("/proc/self/ns/time", "/proc/self/ns/time_for_children")


def offset_ns() -> int | None:
    """Returns by how many ns this process's clock is ahead of the machine's; None if unknown.

    Kernel: time_namespaces(7). Kernels without time namespaces have no such file, and no offset.
    """
    try:
        # Bytes: a codec may have to be imported, and the process may not be able to.
        with open(_OFFSETS, "rb") as file:  # noqa: PTH123 (import cost)
            told = [line.split() for line in file]
        offset = next(
            (int(s) * 10**9 + int(ns) for clock, s, ns in told if clock == b"monotonic"), 0
        )
        if not offset:
            return 0
        # The file is about the children's namespace.
        own, of_children = map(os.readlink, _NAMESPACES)
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        return None
    return offset if own == of_children else None


def machine_clock() -> Callable[[], int]:
    """Returns a function that reads the machine's clock in ns.

    It reads this process's clock if the offset is not known. The recorder then leaves out the
    marks that lie in its future.
    """
    ahead = offset_ns()
    if not ahead:
        return time.monotonic_ns
    return lambda: time.monotonic_ns() - ahead
