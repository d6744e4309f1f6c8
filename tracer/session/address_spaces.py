"""What lay where in each target's address space when its recording began."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

from tracer.store.lists import MapFacts

_MOST_MAPPINGS = 1 << 20
_ESCAPE = re.compile(r"\\([0-7]{3})")


def mappings(pids: Iterable[int]) -> list[MapFacts]:
    """(pid, ns of the monotonic clock, mappings) of each process that may be looked at."""
    found: list[MapFacts] = []
    left = _MOST_MAPPINGS
    for pid in pids:
        now = time.monotonic_ns()
        try:
            text = Path(f"/proc/{pid}/maps").read_text(errors="backslashreplace")
        except OSError:
            continue  # gone, or a kernel thread
        maps = [_mapping(line) for line in text.splitlines()]
        left -= len(maps)
        if left < 0:
            break
        if maps:
            found.append((pid, now, maps))
    return found


def _mapping(line: str) -> tuple[int, int, int, tuple[int, int], int, str]:
    """(start, end, offset, device, inode, path) of one line of /proc/PID/maps."""
    parts = line.split(None, 5)
    start, _, end = parts[0].partition("-")
    major, _, minor = parts[3].partition(":")
    path = _ESCAPE.sub(lambda m: chr(int(m[1], 8)), parts[5]) if len(parts) > 5 else ""
    return (
        # The kernel's own pages at the top of the address space are of no process.
        min(int(start, 16), (1 << 63) - 1),
        min(int(end, 16), (1 << 63) - 1),
        int(parts[2], 16),
        (int(major, 16), int(minor, 16)),
        int(parts[4]),
        path,
    )
