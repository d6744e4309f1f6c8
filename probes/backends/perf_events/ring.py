"""One perf event's ring on one CPU, drained in bulk: no record is looked at.

The kernel writes whole records and moves `data_head`; what was taken is given back through
`data_tail`. Layout: struct perf_event_mmap_page in include/uapi/linux/perf_event.h.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracer.probes.backends import chunks
from tracer.probes.backends.drain import WAKE_PERCENT, new_file, write_all
from tracer.probes.backends.perf_events.attributes import DISABLE, ENABLE, open_event
from tracer.probes.errors import FeatureMissing

_HEAD, _TAIL = 1024 // 8, 1032 // 8
_LARGEST_RECORD = 8 << 10
"""A mapping with a path of PATH_MAX."""
_LOOK_NS = 250_000_000
"""Interval in ns at which an empty ring is noted."""


@dataclass
class Ring:
    """A perf event and the file that its records go to; a `Source` of the drain."""

    event: str
    """The kind of its samples (`records`)."""
    config: int
    cpu: int
    path: Path
    size: int
    """Bytes, a power of two."""
    mappings: bool = False
    user: bool = True
    """True if it also counts events in user mode."""
    written: int = 0
    lost: int = 0
    """Records that found no room, by the kernel's own count at the end."""
    _fd: int = -1
    _sink: int = -1
    _memory: mmap.mmap | None = field(default=None, repr=False)
    _words: ctypes.Array[ctypes.c_uint64] | None = field(default=None, repr=False)
    _of_parent: object = field(default=None, repr=False)
    _start: int = 0
    _noted: int = 0

    def open(self) -> None:
        """Open the event, switched off, and its file. PermissionMissing or FeatureMissing."""
        wake = self.size * WAKE_PERCENT // 100
        self._fd = open_event(self.config, self.cpu, self.mappings, self.user, wake)
        self._map()
        self._sink = new_file(self.path)

    def _map(self) -> None:
        try:
            self._memory = mmap.mmap(self._fd, mmap.PAGESIZE + self.size)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise FeatureMissing(
                f"no perf ring of {self.size >> 10} KiB can be had: {why}",
                "give a smaller one with -b, raise kernel.perf_event_mlock_kb, or run with "
                "CAP_IPC_LOCK",
            ) from None
        self._words = (ctypes.c_uint64 * (mmap.PAGESIZE // 8)).from_buffer(self._memory)

    @property
    def capacity(self) -> int:
        """Bytes that the ring holds."""
        return self.size

    @property
    def sink(self) -> int:
        """The file's descriptor."""
        return self._sink

    @property
    def wakes(self) -> int:
        """The event's descriptor."""
        return self._fd

    def start(self) -> None:
        """Starts recording."""
        self._start = time.monotonic_ns() - chunks.SLACK_NS
        fcntl.ioctl(self._fd, ENABLE, 0)

    def stop(self) -> None:
        """Stops recording."""
        fcntl.ioctl(self._fd, DISABLE, 0)

    def move(self) -> int:
        """Move every record that is there; returns the bytes moved."""
        assert self._words is not None and self._memory is not None
        now = time.monotonic_ns()
        head, tail = self._words[_HEAD], self._words[_TAIL]
        if head == tail:
            if now - self._noted > _LOOK_NS:
                self._note(chunks.DATA, 0, now, tail)
            self._start = now - chunks.SLACK_NS
            return 0
        first = tail % self.size
        size = head - tail
        full = size > self.size - _LARGEST_RECORD
        self._note(chunks.FULL if full else chunks.DATA, size, now, tail)
        with memoryview(self._memory) as view:
            data = view[mmap.PAGESIZE :]
            straight = min(size, self.size - first)
            write_all(self._sink, data[first : first + straight])
            if straight < size:
                write_all(self._sink, data[: size - straight])
            data.release()
        self._words[_TAIL] = head
        self._start = now - chunks.SLACK_NS
        self.written += size
        return size

    def _note(self, kind: int, size: int, now: int, at: int) -> None:
        write_all(self._sink, chunks.header(kind, self.cpu, size, self._start, now, at))
        self.written += chunks.HEADER.itemsize
        self._noted = now

    def move_last(self) -> None:
        """Move what is left; afterwards `lost` is known."""
        self._noted = 0
        self.move()
        self.lost = self._count_lost()

    def _count_lost(self) -> int:
        return self._lost_of(self._fd)

    @staticmethod
    def _lost_of(fd: int) -> int:
        # value and lost, where the kernel counts lost records; else value alone.
        data = os.read(fd, 16)
        return int(struct.unpack("<QQ", data)[1]) if len(data) == 16 else 0

    def inherit(self) -> None:
        """Map the ring anew: a fork does not inherit it, and without a mapping it is gone."""
        # The parent's mapping does not exist here; unmapping its address could unmap ours.
        self._of_parent = self._memory, self._words
        self._map()

    def take_over(self) -> None:
        """Cut off a chunk that was not written whole; do not take what was written twice."""
        assert self._words is not None
        headers = chunks.mend(self._sink, self.path)
        if not len(headers):
            return
        last = headers[-1]
        self._start = int(last["start"])
        if last["bytes"] and int(last["at"]) == self._words[_TAIL]:
            self._words[_TAIL] += int(last["bytes"])

    def describe(self) -> dict[str, Any]:
        """Returns the ring's entry for the manifest."""
        return {"samples": self.event}

    def stats(self) -> dict[str, int]:
        """Counters for the manifest."""
        return {"dropped events": self.lost}

    def close(self) -> None:
        """Close all; more than once does no harm."""
        self._words = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        for fd in (self._fd, self._sink):
            if fd >= 0:
                os.close(fd)
        self._fd = self._sink = -1
