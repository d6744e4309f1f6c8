"""A BPF ring buffer that is drained in bulk. Layout: kernel/bpf/ringbuf.c.

The map's memory consists of a page with the consumer's position, a page with the producer's
position, and the data. The data is mapped twice in a row, so every record is contiguous. A drain
takes the run of finished records and stops at the first one that is still being written.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tracer.probes.backends import chunks
from tracer.probes.backends.drain import new_file, write_all
from tracer.probes.backends.ebpf.records import whole_records

_LOOK_NS = 50_000_000
"""Interval in ns between reads of the counts of lost records: the time resolution of losses."""

EVERY_CPU = -1


class BpfRing:
    """One ring and the file that its records are copied to; a `Source` of the drain."""

    def __init__(
        self,
        fd: int,
        size: int,
        path: Path,
        lost: Callable[[], list[int]],
        missed: Callable[[], int],
    ) -> None:
        """Maps the ring and makes the file.

        `size` is in bytes. `lost` returns, by CPU, the records that found no room so far, `missed`
        the events so far that the kernel ran no program for.
        """
        self.cpu = EVERY_CPU
        self.path = path
        self.size = size
        self.written = 0
        self.sink = new_file(path)
        self._lost = lost
        self._missed = missed
        self._missed_at_first = missed()
        self._lost_at_first = lost()
        self._lost_before = [*self._lost_at_first]
        self._looked = self._start = time.monotonic_ns()
        page = mmap.PAGESIZE
        self._consumer = mmap.mmap(fd, page)
        self._produced = mmap.mmap(fd, page + 2 * size, prot=mmap.PROT_READ, offset=page)
        self._taken = np.frombuffer(self._consumer, np.uint64, 1)
        self._made = np.frombuffer(self._produced, np.uint64, 1)
        self._data = np.frombuffer(self._produced, np.uint8, 2 * size, page)
        self._whole(0, 0)  # compiles it before the recording

    @property
    def capacity(self) -> int:
        """Bytes that the ring holds."""
        return self.size

    @property
    def wakes(self) -> None:
        """None: the programs do not wake the drain, because that would make each event slower."""
        return None

    def move(self) -> int:
        """Moves all finished records before the first unfinished one; returns the bytes moved."""
        now = time.monotonic_ns()
        begin, made = int(self._taken[0]), int(self._made[0])
        end = self._whole(begin, made)[0] if made > begin else made
        size = end - begin
        if size:
            first = begin % self.size
            head = chunks.header(chunks.DATA, self.cpu, size, self._start, now, begin)
            write_all(self.sink, head)
            write_all(self.sink, self._data[first : first + size].data)
            self._taken[0] = end
            self.written += len(head) + size
        if end == made:
            # Later records are reserved after `now`, and no record is older than its reservation.
            self._start = now
        if now - self._looked > _LOOK_NS:
            self._note_losses(now)
        return size

    def _whole(self, begin: int, made: int) -> tuple[int, int]:
        """Returns (end, number) of the run of finished records that starts at `begin`."""
        end, number = whole_records(self._data.view("<u4"), begin, made, self.size)
        return end, number

    def _note_losses(self, now: int) -> None:
        counts = self._lost()
        for cpu, (count, before) in enumerate(zip(counts, self._lost_before, strict=True)):
            if count > before:
                head = chunks.header(chunks.LOST, cpu, 0, self._looked, now, count - before)
                write_all(self.sink, head)
                self.written += len(head)
        self._lost_before = counts
        self._looked = now

    def move_last(self) -> None:
        """Moves the remaining records, and writes the losses since the last read of the counts."""
        self.move()
        self._note_losses(time.monotonic_ns())

    def inherit(self) -> None:
        """Does nothing: the forked process inherits the ring's mappings."""

    def take_over(self) -> None:
        """Removes an incomplete last chunk, and skips ring records that the file already has."""
        headers = chunks.mend(self.sink, self.path)
        counted = headers[headers["kind"] == chunks.LOST]
        for cpu, before in enumerate(self._lost_at_first):
            mine = counted["at"][counted["cpu"] == cpu]
            self._lost_before[cpu] = before + int(mine.sum())
        if len(counted):
            self._looked = int(counted["end"].max())
        data = headers[headers["kind"] == chunks.DATA]
        if len(data):
            last = data[-1]
            self._start = int(last["start"])
            if int(last["at"]) == int(self._taken[0]):
                self._taken[0] += np.uint64(last["bytes"])

    def describe(self) -> dict[str, Any]:
        """Returns the manifest entries that a decoder needs."""
        return {"samples": "ebpf"}

    def stats(self) -> dict[str, int]:
        """Returns counters for the manifest. The file has the losses of the ring, with times.

        `entries` are records left in the ring. Those behind an unfinished one cannot be counted:
        they and it are one.
        """
        begin, made = int(self._taken[0]), int(self._made[0])
        end, whole = self._whole(begin, made)
        return {
            "read bytes": self.written,
            "missed": self._missed() - self._missed_at_first,
            "entries": whole + (end < made),
        }

    def close(self) -> None:
        """Closes the file and the ring's mappings. It may be called more than once."""
        if self.sink >= 0:
            os.close(self.sink)
            self.sink = -1
            del self._taken, self._made, self._data
            self._consumer.close()
            self._produced.close()
