"""The kernel's functions by address, as they were at the recording.

A trace may be read on another machine or after a reboot, where every address means something
else, so the list is kept with it.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

PATH = Path("/proc/kallsyms")
MAX_BYTES = 256 << 20
_CODE = b"tTwW"
_LAST_BYTES = 4096
"""What the last symbol is taken to have, there being no next one to end it."""


def listed() -> bytes:
    """/proc/kallsyms; empty where this user may not see addresses."""
    text = PATH.read_bytes()
    return text if any(line[:16].strip(b"0") for line in text[:4096].splitlines()) else b""


class KernelSymbols:
    """Looks up kernel functions."""

    def __init__(self, text: bytes) -> None:
        """`text` as `listed` gives it; lines that are none are skipped."""
        best: dict[int, tuple[tuple[bool, bool, int, int], str | None]] = {}
        for line in text.splitlines():
            parts = line.split(None, 3)
            if len(parts) < 3 or len(parts[1]) != 1:
                continue
            try:
                address = int(parts[0], 16)
            except ValueError:
                continue
            code = parts[1] in _CODE
            name = parts[2].decode("utf-8", "backslashreplace") if code else None
            rank = _rank(parts[1], parts[2])
            if address and (address not in best or rank < best[address][0]):
                best[address] = rank, name
        self._starts = sorted(best)
        self._names = [best[start][1] for start in self._starts]

    def at(self, address: int) -> str | None:
        """The function that an address lies in, or None."""
        number = bisect_right(self._starts, address) - 1
        last = number == len(self._starts) - 1
        if number < 0 or (last and address - self._starts[number] >= _LAST_BYTES):
            return None
        return self._names[number]


def _rank(kind: bytes, name: bytes) -> tuple[bool, bool, int, int]:
    """Of several names of one address the least is taken: global, few underscores, long."""
    underscores = len(name) - len(name.lstrip(b"_"))
    return kind not in _CODE, kind != b"T", underscores, -len(name)
