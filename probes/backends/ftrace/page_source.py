"""The source of one CPU's raw ring-buffer pages, spliced to a file without a copy in Python."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracer.probes.backends.drain import LONGEST_WOKEN_S, new_file, write_all
from tracer.probes.backends.ftrace.instance import Instance

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20

_EMPTY_NS = 150_000_000
"""Interval in ns at which a partly filled page is moved too. It bounds the loss if the recorder
is killed."""

_STALL_NS = round(2 * LONGEST_WOKEN_S * 1e9)
"""Time in ns between two reads after which events may have been lost unnoticed."""

_MOST_STALLS = 10_000
_STREAMS_OF_A_CPU = 4


def most_stalls(cpus: int) -> int:
    """Returns how many stalls each stream notes on a machine with so many CPUs.

    A manifest with too many parts is refused: that of all streams together stays well below. A
    later loss that is not noted begins with the last event before it.
    """
    return min(_MOST_STALLS, 100_000 // (_STREAMS_OF_A_CPU * cpus))


@dataclass
class PageSource:
    """The buffer of one CPU of one instance, and the file that its pages are moved to."""

    instance: Instance
    cpu: int
    path: Path
    page_bytes: int
    capacity: int
    """Size of the buffer in bytes."""
    wakes_reader: bool = False
    """True if the kernel wakes pollers when the buffer fills."""
    written: int = 0
    stalls: list[tuple[int, int]] = field(default_factory=list)
    """(Offset in the file, time in ns) for the first pages and for those after a late read. The
    time is the last one before them at which the drain had emptied the buffer."""
    _most_stalls: int = field(default_factory=lambda: most_stalls(os.cpu_count() or 1))
    _looked: int = 0
    _emptied: int = 0
    _source: int = -1
    _sink: int = -1
    _pipe: tuple[int, int] = (-1, -1)

    def open(self) -> None:
        """Opens the buffer and makes the file, which must not exist. Only the user can read it."""
        self._sink = new_file(self.path)
        pipe = self.instance.path / "per_cpu" / f"cpu{self.cpu}" / "trace_pipe_raw"
        self._source = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pipe = os.pipe2(os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # above the user's limit: the default size works too
            fcntl.fcntl(self._pipe[1], _F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def sink(self) -> int:
        """Descriptor of the file."""
        return self._sink

    @property
    def wakes(self) -> int | None:
        """Descriptor of the buffer if the kernel wakes pollers when it fills, else None."""
        return self._source if self.wakes_reader else None

    def move(self) -> int:
        """Moves full pages, and sometimes a partly filled one; returns the bytes of full pages."""
        now = time.monotonic_ns()
        away, self._looked = now - self._looked, now
        try:
            taken = os.splice(self._source, self._pipe[1], _PIPE_BYTES)
        except BlockingIOError:
            if now - self._emptied > _EMPTY_NS:
                # Only this page: a buffer that fills as fast as it is read would never be empty.
                self._move_unfilled()
                self._emptied = now
            return 0
        late = away > _STALL_NS or not self.written
        if late and self._emptied and len(self.stalls) < self._most_stalls:
            self.stalls.append((self.written, self._emptied))
        left = taken
        while left:
            moved = os.splice(self._pipe[0], self._sink, left)
            left -= moved
            self.written += moved
        return taken

    def move_last(self) -> None:
        """Moves the remaining pages. Tracing must be off."""
        while self._move_unfilled():
            pass

    def inherit(self) -> None:
        """Does nothing: the forked process inherits the buffer, the file and the pipe."""

    def take_over(self) -> None:
        """Moves the content of the pipe to the file, and removes an incomplete last page."""
        with contextlib.suppress(BlockingIOError):
            while os.splice(self._pipe[0], self._sink, _PIPE_BYTES, flags=os.SPLICE_F_NONBLOCK):
                pass
        size = os.fstat(self._sink).st_size
        os.ftruncate(self._sink, size - size % self.page_bytes)
        os.lseek(self._sink, 0, os.SEEK_END)

    def _move_unfilled(self) -> bool:
        """Moves one partly filled page, since splice moves only full ones.

        Returns whether there was a page.
        """
        try:
            page = os.read(self._source, self.page_bytes)
        except BlockingIOError:
            return False
        if page:
            write_all(self._sink, page.ljust(self.page_bytes, b"\0"))
            self.written += self.page_bytes
        return bool(page)

    def describe(self) -> dict[str, Any]:
        """Returns the manifest entries that a decoder needs."""
        return {"stalls": self.stalls} if self.stalls else {}

    def stats(self) -> dict[str, int]:
        """Returns the kernel's counts for this buffer."""
        return self.instance.cpu_stats(self.cpu)

    def close(self) -> None:
        """Closes the buffer, the file and the pipe. It may be called more than once."""
        for fd in (self._source, self._sink, *self._pipe):
            if fd >= 0:
                os.close(fd)
        self._source = self._sink = -1
        self._pipe = (-1, -1)
