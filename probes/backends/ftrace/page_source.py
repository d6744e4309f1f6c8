"""Raw ring-buffer pages of one CPU into a file, without a copy through Python."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from probes.backends.drain import PIPE_BYTES, Pipe, new_file, write_all
from probes.backends.ftrace.instance import Instance

_EMPTY_NS = 150_000_000
"""How often a page that has not filled is taken, too: a killed recorder loses little more."""

_STALL_NS = 400_000_000
"""A drain that was away for longer may have lost what it does not see."""

_MOST_STALLS = 10_000


@dataclass
class PageSource:
    """The events of one CPU of one instance, and the file that they go to."""

    instance: Instance
    cpu: int
    path: Path
    page_bytes: int
    capacity: int
    """Bytes of the buffer."""
    wakes_reader: bool = False
    """Whether the kernel wakes who waits for the buffer to fill."""
    written: int = 0
    stalls: list[tuple[int, int]] = field(default_factory=list)
    """Where the file stood when the drain had been away, and when nothing had been left behind."""
    _looked: int = 0
    _emptied: int = 0
    _source: int = -1
    _sink: int = -1

    def open(self) -> None:
        """Open both ends. The file must not exist; it is the user's alone."""
        self._sink = new_file(self.path)
        pipe = self.instance.path / "per_cpu" / f"cpu{self.cpu}" / "trace_pipe_raw"
        self._source = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def sink(self) -> int:
        """The file's descriptor."""
        return self._sink

    @property
    def wakes(self) -> int | None:
        """The buffer's descriptor, where the kernel wakes who waits for it to fill."""
        return self._source if self.wakes_reader else None

    def move(self, pipe: Pipe) -> int:
        """Move whole pages, now and then one that is not; returns the bytes moved."""
        now = time.monotonic_ns()
        away, self._looked = now - self._looked, now
        try:
            taken = os.splice(self._source, pipe.write_end, PIPE_BYTES)
        except BlockingIOError:
            if now - self._emptied > _EMPTY_NS:
                self._move_unfilled()
                self._emptied = now
            return 0
        if away > _STALL_NS and self._emptied and len(self.stalls) < _MOST_STALLS:
            self.stalls.append((self.written, self._emptied))
        left = taken
        while left:
            moved = os.splice(pipe.read_end, self._sink, left)
            left -= moved
            self.written += moved
        return taken

    def move_last(self, pipe: Pipe) -> None:
        """Move what is left."""
        self._move_unfilled()

    def _move_unfilled(self) -> None:
        # Splice gives whole pages only.
        while True:
            try:
                page = os.read(self._source, self.page_bytes)
            except BlockingIOError:
                return
            if not page:
                return
            write_all(self._sink, page.ljust(self.page_bytes, b"\0"))
            self.written += self.page_bytes

    def stats(self) -> dict[str, int]:
        """The kernel's own counts for this buffer."""
        return self.instance.cpu_stats(self.cpu)

    def close(self) -> None:
        """Close both ends; more than once does no harm."""
        for fd in (self._source, self._sink):
            if fd >= 0:
                os.close(fd)
        self._source = self._sink = -1
