"""Raw ring-buffer pages of one CPU into a file, without a copy through Python."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probes.backends.drain import LONGEST_WOKEN_S, new_file, write_all
from probes.backends.ftrace.instance import Instance

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20

_EMPTY_NS = 150_000_000
"""How often a page that has not filled is taken, too: a killed recorder loses little more."""

_STALL_NS = round(2 * LONGEST_WOKEN_S * 1e9)
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
    """Where the file stood at first and when the drain had been away, and when nothing had been
    left behind before that."""
    _looked: int = 0
    _emptied: int = 0
    _source: int = -1
    _sink: int = -1
    _pipe: tuple[int, int] = (-1, -1)

    def open(self) -> None:
        """Open both ends. The file must not exist; it is the user's alone."""
        self._sink = new_file(self.path)
        pipe = self.instance.path / "per_cpu" / f"cpu{self.cpu}" / "trace_pipe_raw"
        self._source = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pipe = os.pipe2(os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # above the user's limit: the default does, too
            fcntl.fcntl(self._pipe[1], _F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def sink(self) -> int:
        """The file's descriptor."""
        return self._sink

    @property
    def wakes(self) -> int | None:
        """The buffer's descriptor, where the kernel wakes who waits for it to fill."""
        return self._source if self.wakes_reader else None

    def move(self) -> int:
        """Move whole pages, now and then one that is not; returns the bytes moved."""
        now = time.monotonic_ns()
        away, self._looked = now - self._looked, now
        try:
            taken = os.splice(self._source, self._pipe[1], _PIPE_BYTES)
        except BlockingIOError:
            if now - self._emptied > _EMPTY_NS:
                # No more than this one: what fills as fast as it is read has no end.
                self._move_unfilled()
                self._emptied = now
            return 0
        late = away > _STALL_NS or not self.written
        if late and self._emptied and len(self.stalls) < _MOST_STALLS:
            self.stalls.append((self.written, self._emptied))
        left = taken
        while left:
            moved = os.splice(self._pipe[0], self._sink, left)
            left -= moved
            self.written += moved
        return taken

    def move_last(self) -> None:
        """Move what is left. Tracing must be off."""
        while self._move_unfilled():
            pass

    def inherit(self) -> None:
        """Both ends and the pipe are the forked process's, too."""

    def take_over(self) -> None:
        """Move what was on its way, and cut off a page that was not written whole."""
        with contextlib.suppress(BlockingIOError):
            while os.splice(self._pipe[0], self._sink, _PIPE_BYTES, flags=os.SPLICE_F_NONBLOCK):
                pass
        size = os.fstat(self._sink).st_size
        os.ftruncate(self._sink, size - size % self.page_bytes)
        os.lseek(self._sink, 0, os.SEEK_END)

    def _move_unfilled(self) -> bool:
        """Move one page as it is, splice giving whole ones only; whether there was one."""
        try:
            page = os.read(self._source, self.page_bytes)
        except BlockingIOError:
            return False
        if page:
            write_all(self._sink, page.ljust(self.page_bytes, b"\0"))
            self.written += self.page_bytes
        return bool(page)

    def describe(self) -> dict[str, Any]:
        """For the manifest."""
        return {"stalls": self.stalls} if self.stalls else {}

    def stats(self) -> dict[str, int]:
        """The kernel's own counts for this buffer."""
        return self.instance.cpu_stats(self.cpu)

    def close(self) -> None:
        """Close both ends; more than once does no harm."""
        for fd in (self._source, self._sink, *self._pipe):
            if fd >= 0:
                os.close(fd)
        self._source = self._sink = -1
        self._pipe = (-1, -1)
