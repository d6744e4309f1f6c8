"""Raw ring-buffer pages of one CPU into a file, without a copy through Python."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from probes.backends.drain import PIPE_BYTES, Pipe, new_file, write_all
from probes.backends.ftrace.instance import Instance


@dataclass
class PageSource:
    """The events of one CPU of one instance, and the file that they go to."""

    instance: Instance
    cpu: int
    path: Path
    page_bytes: int
    written: int = 0
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

    def move(self, pipe: Pipe) -> int:
        """Move whole pages; returns the bytes moved."""
        try:
            taken = os.splice(self._source, pipe.write_end, PIPE_BYTES)
        except BlockingIOError:
            return 0
        left = taken
        while left:
            moved = os.splice(pipe.read_end, self._sink, left)
            left -= moved
            self.written += moved
        return taken

    def move_last(self, pipe: Pipe) -> None:
        """Move what is left in a page that never filled: splice gives whole pages only."""
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
