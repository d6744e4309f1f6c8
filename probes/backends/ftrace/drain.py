"""Raw ring-buffer pages from the kernel into files, without a copy through Python.

A thread for some CPUs splices whole pages from `trace_pipe_raw` into a pipe and from there into
the stream's file. Pages only ever get appended, so a file is readable up to its last page
whatever happens to the recorder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from probes.backends.ftrace.instance import Instance

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
_BUSY_S = 0.005
"""Pause after a round that found pages."""
_IDLE_S = 0.05
"""Longest pause: the buffer must outlast it at any rate."""
_NICE = -10
_THREADS = 8
"""Most threads: one moves some 10 M events a second."""


@dataclass
class Stream:
    """The events of one CPU of one instance, and the file that they go to."""

    instance: Instance
    cpu: int
    path: Path
    source: int = -1
    sink: int = -1
    written: int = 0
    page_bytes: int = 4096

    def open(self) -> None:
        """Open both ends. The file must not exist; it is the user's alone."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self.sink = os.open(self.path, flags, 0o600)
        pipe = self.instance.path / "per_cpu" / f"cpu{self.cpu}" / "trace_pipe_raw"
        self.source = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self) -> None:
        """Close both ends; more than once does no harm."""
        for fd in (self.source, self.sink):
            if fd >= 0:
                os.close(fd)
        self.source = self.sink = -1


@dataclass
class Drain:
    """Threads that move pages for as long as a recording runs.

    `failure` is the error that stopped a thread (a full disk); its streams are then no longer
    drained and the recording has to end.
    """

    streams: list[Stream]
    failure: OSError | None = None
    limit_bytes: int | None = None
    """No more is written than this (`--max-size`); `full` says that it was reached."""
    full: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start draining. Returns when every thread runs."""
        cpus = sorted({stream.cpu for stream in self.streams})
        count = min(len(cpus), _THREADS)
        for number in range(count):
            mine = [s for s in self.streams if cpus.index(s.cpu) % count == number]
            thread = threading.Thread(
                target=self._run, args=(mine, os.pipe2(os.O_CLOEXEC)), daemon=True
            )
            thread.start()  # returns when the thread runs, so that it has its native id
            self._threads.append(thread)
            with contextlib.suppress(PermissionError):
                # A storm of events must not keep the drain from its CPU.
                os.setpriority(os.PRIO_PROCESS, thread.native_id or 0, _NICE)

    @property
    def tids(self) -> list[int]:
        """Thread ids of the drain."""
        return [t.native_id for t in self._threads if t.native_id is not None]

    @property
    def written(self) -> int:
        """Bytes written so far."""
        return sum(stream.written for stream in self.streams)

    def finish(self) -> None:
        """Stop the threads, after each has moved what is left. Tracing must be off."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, streams: list[Stream], pipe: tuple[int, int]) -> None:
        read_end, write_end = pipe
        try:
            with contextlib.suppress(OSError):  # above the user's limit: the default does, too
                fcntl.fcntl(write_end, _F_SETPIPE_SZ, _PIPE_BYTES)
            pause = _IDLE_S
            while not self._stop.wait(pause):
                moved = sum([self._move(s, read_end, write_end) for s in streams])
                pause = _BUSY_S if moved else min(_IDLE_S, pause * 2)
                if self.failure or self.full:
                    return
            for stream in streams:
                self._move(stream, read_end, write_end)
                self._move_last_page(stream)
        except OSError as error:
            self.failure = error
        finally:
            os.close(read_end)
            os.close(write_end)

    def _move(self, stream: Stream, read_end: int, write_end: int) -> int:
        """Move every whole page that is there; returns the bytes moved."""
        total = 0
        while not (self.limit_bytes and self.written >= self.limit_bytes):
            try:
                taken = os.splice(stream.source, write_end, _PIPE_BYTES)
            except BlockingIOError:
                return total
            if taken == 0:
                return total
            left = taken
            while left:
                moved = os.splice(read_end, stream.sink, left)
                left -= moved
                stream.written += moved
            total += taken
        self.full = True
        return total

    def _move_last_page(self, stream: Stream) -> None:
        """Move what is left in a page that never filled: splice gives whole pages only."""
        while True:
            try:
                page = os.read(stream.source, stream.page_bytes)
            except BlockingIOError:
                return
            if not page:
                return
            page = page.ljust(stream.page_bytes, b"\0")
            while page:
                moved = os.write(stream.sink, page)
                stream.written += moved
                page = page[moved:]
