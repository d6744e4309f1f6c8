"""A BPF ring buffer, drained in bulk. Layout: kernel/bpf/ringbuf.c.

The map's file holds a page with the consumer's position, one with the producer's, and the data,
twice one after the other so that no record is ever cut. A drain takes the run of records that
are finished and stops at the first that is still being written.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from probes.backends import chunks
from probes.backends.drain import new_file, write_all
from probes.backends.ebpf.records import whole_records

_LOOK_NS = 50_000_000
"""How often the counts of lost records are looked at: so well are losses placed in time."""

EVERY_CPU = -1


class BpfRing:
    """One ring and the file that its records go to; a `Source` of the drain."""

    def __init__(self, fd: int, size: int, path: Path, lost: Callable[[], list[int]]) -> None:
        """`size` in bytes; `lost` gives the records that found no room so far, by CPU."""
        self.cpu = EVERY_CPU
        self.path = path
        self.size = size
        self.written = 0
        self.sink = new_file(path)
        self._lost = lost
        self._lost_at_first = lost()
        self._lost_before = [*self._lost_at_first]
        self._looked = self._start = time.monotonic_ns()
        page = mmap.PAGESIZE
        self._consumer = mmap.mmap(fd, page)
        self._produced = mmap.mmap(fd, page + 2 * size, prot=mmap.PROT_READ, offset=page)
        self._taken = np.frombuffer(self._consumer, np.uint64, 1)
        self._made = np.frombuffer(self._produced, np.uint64, 1)
        self._data = np.frombuffer(self._produced, np.uint8, 2 * size, page)
        whole_records(self._data.view("<u4"), 0, 0, size)  # compiled before it is needed

    @property
    def capacity(self) -> int:
        """Bytes that the ring holds."""
        return self.size

    @property
    def wakes(self) -> None:
        """The programs wake nobody: that would cost each event."""
        return None

    def move(self) -> int:
        """Move every finished record; returns the bytes moved."""
        now = time.monotonic_ns()
        begin, made = int(self._taken[0]), int(self._made[0])
        end = (
            whole_records(self._data.view("<u4"), begin, made, self.size) if made > begin else made
        )
        size = end - begin
        if size:
            first = begin % self.size
            head = chunks.header(chunks.DATA, self.cpu, size, self._start, now, begin)
            write_all(self.sink, head)
            write_all(self.sink, self._data[first : first + size].data)
            self._taken[0] = end
            self.written += len(head) + size
        if end == made:
            # Whatever comes now is reserved later, and older than its reservation is no record.
            self._start = now
        if now - self._looked > _LOOK_NS:
            self._note_losses(now)
        return size

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
        """Move what is left, and note what was lost since the last look."""
        self.move()
        self._note_losses(time.monotonic_ns())

    def inherit(self) -> None:
        """The ring's mappings are the forked process's, too."""

    def take_over(self) -> None:
        """Cut off a chunk that was not written whole; do not take what was written twice."""
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
        """For the manifest."""
        return {"samples": "ebpf"}

    def stats(self) -> dict[str, int]:
        """Counters for the manifest: losses are in the file itself, located."""
        return {"read bytes": self.written}

    def close(self) -> None:
        """Close all; more than once does no harm."""
        if self.sink >= 0:
            os.close(self.sink)
            self.sink = -1
            del self._taken, self._made, self._data
            self._consumer.close()
            self._produced.close()
