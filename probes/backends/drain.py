"""The drain: threads that copy kernel buffers to files without reading the events.

A source is a kernel buffer (a CPU's ftrace buffer, a perf or BPF ring) and its file. The file
only grows, so it can be read up to its last whole unit even if the recorder is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

WAKE_PERCENT = 20
"""Fill level in percent at which a buffer wakes the drain, if it can."""
_SHORTEST_S = 0.005
_LONGEST_S = 0.05
"""Longest pause in s between rounds. A buffer of the default size does not fill within it."""
LONGEST_WOKEN_S = 0.4
"""Longest pause in s if every buffer wakes the drain."""
_NEARLY_EMPTY, _FILLING = 0.05, WAKE_PERCENT / 100
"""Filled fractions of a buffer. Pauses double below the first and are shortest above the second.
Each round costs CPU time that the traced program may need."""
_NICE = -10
_THREADS = 8
"""Largest number of threads. One thread moves about 10 million events per second."""


class Source(Protocol):
    """A kernel buffer and the file that its content is copied to."""

    @property
    def path(self) -> Path:
        """Path of the file."""
        ...

    @property
    def cpu(self) -> int:
        """CPU of the buffer. One thread moves all sources of a CPU."""
        ...

    @property
    def written(self) -> int:
        """Bytes written so far."""
        ...

    @property
    def capacity(self) -> int:
        """Bytes that the buffer holds."""
        ...

    @property
    def wakes(self) -> int | None:
        """Descriptor that becomes readable as the buffer fills. None: the drain polls it."""
        ...

    def move(self) -> int:
        """Moves the buffer's content, or a large part of it; returns the bytes moved."""
        ...

    def move_last(self) -> None:
        """Moves the rest of the content after recording has stopped."""
        ...

    def stats(self) -> dict[str, int]:
        """Returns counters of the buffer for the manifest."""
        ...

    def describe(self) -> dict[str, Any]:
        """Returns the manifest entries that a decoder needs besides the file's name and CPU."""
        ...

    def close(self) -> None:
        """Closes the buffer and the file. It may be called more than once."""
        ...

    def inherit(self) -> None:
        """Keeps the buffer open in a process forked from the recorder, if the recorder dies."""
        ...

    def take_over(self) -> None:
        """Completes unfinished work of a dead recorder, in the forked process.

        `move` may be called afterwards.
        """
        ...


def new_file(path: Path) -> int:
    """Makes a file that only the user can read; returns its descriptor. It must not exist yet."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Writes all of `data`. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@dataclass
class Drain:
    """Threads that move the sources' content while a recording runs.

    `failure` is the error that stopped a thread, such as a full disk. The thread's sources are
    then no longer drained, and the recording has to end.
    """

    sources: Sequence[Source]
    failure: OSError | None = None
    limit_bytes: int | None = None
    """Bytes after which the drain stops (`--max-size`). `full` is True once they are reached."""
    full: bool = False
    _stop: int = field(default_factory=lambda: os.eventfd(0, os.EFD_CLOEXEC))
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Starts the threads. Returns when all of them run."""
        cpus = sorted({source.cpu for source in self.sources})
        count = min(len(cpus), _THREADS)
        for number in range(count):
            mine = [s for s in self.sources if cpus.index(s.cpu) % count == number]
            thread = threading.Thread(target=self._run, args=(mine,), daemon=True)
            thread.start()  # returns when the thread runs, so that it has its native id
            self._threads.append(thread)
            with contextlib.suppress(PermissionError):
                # The drain needs its CPU also while many events arrive.
                os.setpriority(os.PRIO_PROCESS, thread.native_id or 0, _NICE)

    @property
    def tids(self) -> list[int]:
        """Thread ids of the drain."""
        return [t.native_id for t in self._threads if t.native_id is not None]

    @property
    def written(self) -> int:
        """Bytes written so far."""
        return sum(source.written for source in self.sources)

    @property
    def runs(self) -> bool:
        """True until `finish`."""
        return self._stop >= 0

    def finish(self) -> None:
        """Stops the threads after each has moved its remaining content. Tracing must be off."""
        if not self.runs:
            return
        os.eventfd_write(self._stop, 1)
        for thread in self._threads:
            thread.join()
        os.close(self._stop)
        self._stop = -1

    def _run(self, sources: list[Source]) -> None:
        try:
            poll = select.poll()
            poll.register(self._stop, select.POLLIN)
            wakes = [source.wakes for source in sources]
            for fd in wakes:
                if fd is not None:
                    poll.register(fd, select.POLLIN)
            longest = _LONGEST_S if None in wakes else LONGEST_WOKEN_S
            pause = _SHORTEST_S
            while all(fd != self._stop for fd, _ in poll.poll(pause * 1000)):
                filled = max([self._move(source) / source.capacity for source in sources])
                if filled > _FILLING:
                    pause = _SHORTEST_S
                elif filled < _NEARLY_EMPTY:
                    pause = min(longest, pause * 2)
                if self.failure or self.full:
                    return
            for source in sources:
                self._move(source)
                source.move_last()
        except OSError as error:
            # The traceback would keep references to buffers that will be unmapped.
            self.failure = error.with_traceback(None)

    def _move(self, source: Source) -> int:
        """Moves a source's content until it is empty or `limit_bytes` is reached.

        Returns the bytes moved.
        """
        total = 0
        while not (self.limit_bytes and self.written >= self.limit_bytes):
            moved = source.move()
            total += moved
            if not moved:
                return total
        self.full = True
        return total
