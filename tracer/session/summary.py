"""Writes the kernel's counts to a file every few seconds."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tracer.probes.backends.ebpf.programs import Programs
from tracer.probes.backends.ebpf.summary import Sum
from tracer.store.files import create
from tracer.store.lists import SummaryFacts

_INTERVAL_NS = 10_000_000_000
_MOST_AT_ONCE = 10_000
"""Most sums, and most slots of histograms, of a line. The kernel's maps have 65,536 each, and a
reader limits the parts of a line."""


class Summary:
    """Reads the BPF programs' maps and appends the new counts to a file of the trace."""

    def __init__(self, path: Path, programs: Programs) -> None:
        """Makes the file."""
        self._programs = programs
        self._path = path
        self._file = create(path)
        self._before: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self._start = time.monotonic_ns()
        self._uncounted = 0

    def look(self) -> None:
        """Writes the new counts, if an interval is over."""
        if time.monotonic_ns() - self._start >= _INTERVAL_NS:
            self._write()

    def _write(self, last: bool = False) -> None:
        sums, slots, uncounted = self._programs.counted()
        end = time.monotonic_ns()
        every = [more for found in sums if (more := self._since(found)) is not None]
        last_slots = slots if last else []
        for at in range(0, max(1, len(every), len(last_slots)), _MOST_AT_ONCE):
            entry: SummaryFacts = {
                "start": self._start,
                "end": end,
                "sums": every[at : at + _MOST_AT_ONCE],
                "slots": last_slots[at : at + _MOST_AT_ONCE],
                "uncounted": uncounted - self._uncounted,
            }
            self._file.write(json.dumps(entry).encode() + b"\n")
            self._uncounted = uncounted
        self._start = end
        self._file.flush()

    def _since(self, found: Sum) -> Sum | None:
        """Returns the increase of a sum since the last interval; None if there is none."""
        kind, what, pid, *values = found
        before = self._before.get((kind, what, pid), (0,) * len(values))
        self._before[kind, what, pid] = tuple(values)
        count, errors, total_ns, amount = (
            now - then for now, then in zip(values, before, strict=True)
        )
        return (kind, what, pid, count, errors, total_ns, amount) if count or amount else None

    def take_over(self) -> None:
        """Continues the file of a killed recorder, in a process forked from it."""
        lines = self._path.read_bytes().split(b"\n")[:-1]
        self._file.truncate(sum(len(line) + 1 for line in lines))
        self._file.seek(0, os.SEEK_END)
        for line in lines:
            entry: SummaryFacts = json.loads(line)
            self._start = entry["end"]
            self._uncounted += entry["uncounted"]
            for kind, what, pid, *values in entry["sums"]:
                before = self._before.get((kind, what, pid), (0,) * len(values))
                self._before[kind, what, pid] = tuple(map(sum, zip(before, values, strict=True)))

    def stop(self) -> None:
        """Writes the remaining counts. The programs must have stopped."""
        self._write(last=True)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
