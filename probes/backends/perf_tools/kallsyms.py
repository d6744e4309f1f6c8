"""The kernel's functions by address, as they were at the recording.

A trace may be read on another machine or after a reboot, where every address means something
else, so the list is kept with it.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

PATH = Path("/proc/kallsyms")
MAX_BYTES = 256 << 20
_FUNCTION_BYTES = 256 << 10
"""No function is longer: what lies further on came later, with a module or a BPF program."""


def functions() -> bytes:
    """The lines of /proc/kallsyms that name code; empty where this user may not see addresses."""
    lines = [
        line
        for line in PATH.read_bytes().splitlines(keepends=True)
        if line[16:17] == b" " and line[17:18] in b"tTwW" and line[:16].strip(b"0")
    ]
    return b"".join(lines)


class KernelSymbols:
    """Looks up kernel functions."""

    def __init__(self, listed: bytes) -> None:
        """`listed` as `functions` gives it; lines that are none are skipped."""
        best: dict[int, tuple[tuple[bool, int, int], str]] = {}
        for line in listed.splitlines():
            parts = line.split(None, 3)
            if len(parts) < 3 or len(parts[1]) != 1:
                continue
            try:
                address = int(parts[0], 16)
            except ValueError:
                continue
            name = parts[2].decode("utf-8", "backslashreplace")
            rank = _rank(parts[1], name)
            if address and (address not in best or rank < best[address][0]):
                best[address] = rank, name
        self._starts = sorted(best)
        self._names = [best[start][1] for start in self._starts]

    def __len__(self) -> int:
        return len(self._starts)

    def at(self, address: int) -> str | None:
        """The function that an address lies in, or None."""
        number = bisect_right(self._starts, address) - 1
        if number < 0 or address - self._starts[number] > _FUNCTION_BYTES:
            return None
        return self._names[number]


def _rank(kind: bytes, name: str) -> tuple[bool, int, int]:
    """Of several names of one address the least is taken: not weak, few underscores, long."""
    underscores = len(name) - len(name.lstrip("_"))
    return kind in b"wW", underscores, -len(name)
