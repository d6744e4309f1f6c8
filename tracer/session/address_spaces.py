"""The memory mappings of each target when its recording begins."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from tracer.probes.proc import parse_maps
from tracer.store.checked import encoded
from tracer.store.files import create
from tracer.store.lists import MappedFacts
from tracer.store.maps import (
    MOST_BYTES,
    MOST_BYTES_OF_A_PROCESS,
    MOST_PARTS_OF_A_PROCESS,
    PARTS_OF_FILE,
    PARTS_OF_LINE,
    PARTS_OF_MAPPING,
)
from tracer.store.names import escaped

_MOST_LINE = 1 << 16
"""Most bytes of a line of /proc/PID/maps: a path has 4,096 bytes, each of which may be escaped."""
_LINE_BYTES = 128
"""Most bytes of an output line besides its files and mappings."""
_MOST_S = 5.0
"""Time in s after which no more processes are read: a very large one takes seconds."""
_LIMITS = (
    f"{MOST_BYTES_OF_A_PROCESS >> 20} MiB or {MOST_PARTS_OF_A_PROCESS} values of a process, "
    f"or {MOST_BYTES >> 20} MiB in all"
)

_Mapping = tuple[int, int, int, MappedFacts]
"""(start, end, offset, file)"""


def write_mappings(path: Path, pids: Iterable[int]) -> Counter[str]:
    """Writes the mappings of each readable process into a new file (`store.maps`).

    Returns counts of what was left out, for `store.left_out.note`. OSError if the file cannot be
    written.
    """
    numbers: dict[MappedFacts, int] = {}
    left_out: Counter[str] = Counter()
    left = MOST_BYTES
    deadline = time.monotonic() + _MOST_S
    with create(path) as out:
        for pid in pids:
            most = min(left, MOST_BYTES_OF_A_PROCESS) - _LINE_BYTES
            if most < _LINE_BYTES:
                left_out[f"processes' mappings left out: {_LIMITS} are full"] += 1
            elif time.monotonic() > deadline:
                left_out[f"processes' mappings left out: after {_MOST_S:.0f} s"] += 1
            else:
                now = time.monotonic_ns()
                try:
                    with Path(f"/proc/{pid}/maps").open("rb") as lines:
                        files, found, more = _within(most, _joined(lines), numbers)
                except OSError:
                    continue  # gone, or a kernel thread
                if more:
                    left_out[f"mappings left out: {_LIMITS} are full"] += more
                if found:
                    left -= out.write(encoded((pid, now, files, found)) + b"\n")
    return left_out


def _within(
    most_bytes: int, mappings: Iterable[_Mapping], numbers: dict[MappedFacts, int]
) -> tuple[list[MappedFacts], list[tuple[int, int, int, int]], int]:
    """Returns the new files and the mappings that fit into `most_bytes` of JSON; the rest's count.

    They have at most `MOST_PARTS_OF_A_PROCESS` parts. `numbers` are the numbers of files in earlier
    lines; new files are added to it.
    """
    files: list[MappedFacts] = []
    found: list[tuple[int, int, int, int]] = []
    left_out = 0
    most_parts = MOST_PARTS_OF_A_PROCESS - PARTS_OF_LINE
    for start, end, offset, file in mappings:
        number = numbers.get(file, len(numbers))
        entry = (start, end, offset, number)
        new = number == len(numbers)
        most_bytes -= len(f"{entry}, ") + (len(encoded(file)) + 2 if new else 0)
        most_parts -= PARTS_OF_MAPPING + (PARTS_OF_FILE if new else 0)
        if most_bytes < 0 or most_parts < 0:
            left_out += 1
            continue
        if new:
            numbers[file] = number
            files.append(file)
        found.append(entry)
    return files, found, left_out


def _joined(lines: BinaryIO) -> Iterator[_Mapping]:
    """Yields the mappings of a file like /proc/PID/maps, with adjacent mappings joined."""
    before: _Mapping | None = None
    for start, end, offset, file in _mappings(lines):
        if before is not None:
            first, until, at, same = before
            # A mapping without a file has no offsets.
            goes_on = offset == at + until - first or not file[0].startswith("/")
            if start == until and file == same and goes_on:
                start, offset = first, at
            else:
                yield before
        before = (start, end, offset, file)
    if before is not None:
        yield before


def _mappings(lines: BinaryIO) -> Iterator[_Mapping]:
    while line := lines.readline(_MOST_LINE):
        for found in parse_maps(line.removesuffix(b"\n")):
            # The kernel's own pages at the top of the address space exceed 63 bits.
            start, end = (min(address, (1 << 63) - 1) for address in (found.start, found.end))
            yield start, end, found.offset, (escaped(found.path), found.device, found.inode)
