"""The maps that just-in-time compilers write of their code: `/tmp/perf-PID.map`.

Each line is `START SIZE NAME`, with both numbers in hex and the name up to the end of the line
(Linux: tools/perf/Documentation/jit-interface.txt).
"""

from __future__ import annotations

import stat

import numpy as np

from tracer.probes.symbols.budget import MAX_MAP_BYTES, MAX_MAP_LINES, Reason
from tracer.probes.symbols.reading import UnreadableSymbols, read_whole
from tracer.probes.symbols.table import SymbolColumns, SymbolTable, build_table


def refusal(owner: int, mode: int, uid: int) -> str | None:
    """Returns why a file of this owner and mode cannot be the map of a process of user `uid`.

    Returns None if it can. Anyone may write to /tmp, so the file must belong to the process's user
    or to root, and must not be writable by everybody.
    """
    if owner not in (0, uid):
        return f"belongs to user {owner}, not to the process's user {uid}"
    if mode & stat.S_IWOTH:
        return "may be written by anyone"
    return None


def perf_map(fd: int, shown: str) -> SymbolTable:
    """Returns the functions of one process by absolute address, from the open map.

    If new code replaced older code, the later line counts. Malformed lines are skipped. Raises
    UnreadableSymbols if the map is too large.
    """
    data = read_whole(fd, MAX_MAP_BYTES)
    if data is None or data.count(b"\n") > MAX_MAP_LINES:
        raise UnreadableSymbols(
            f"{shown} has more than {MAX_MAP_BYTES} bytes or {MAX_MAP_LINES} lines",
            reason=Reason.TABLE,
        )
    return _table(data)


def _table(data: bytes) -> SymbolTable:
    starts, ends, names = [], [], []
    at = 0
    while at < len(data):
        stop = data.find(b"\n", at)
        stop = stop if stop >= 0 else len(data)
        fields = data[at:stop].split(b" ", 2)
        if len(fields) == 3 and fields[2].strip():
            start, size = _hex(fields[0]), _hex(fields[1])
            if start is not None and size and start + size < 1 << 64:
                starts.append(start)
                ends.append(start + size)
                names.append(stop - len(fields[2]))
        at = stop + 1
    return build_table(
        [
            SymbolColumns(
                np.array(starts, dtype=np.uint64),
                np.array(ends, dtype=np.uint64),
                np.ones(len(starts), dtype=np.bool_),
                np.arange(len(starts), dtype=np.int64),
                np.array(names, dtype=np.int64),
                data.replace(b"\n", b"\0"),
            )
        ],
        by_rank=True,
    )


def _hex(text: bytes) -> int | None:
    digits = text.removeprefix(b"0x")
    if not 0 < len(digits) <= 16 or digits.strip(b"0123456789abcdefABCDEF"):
        return None
    return int(digits, 16)
