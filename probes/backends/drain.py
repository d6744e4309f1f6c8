"""What the kernel has for us into files, by threads that look at no event.

A source is a buffer of the kernel (a CPU's ftrace buffer, a perf or BPF ring) and its file, which
only ever grows: it is readable up to its last unit whatever happens to the recorder.
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
"""How full a buffer is when it wakes the drain, where it can."""
_SHORTEST_S = 0.005
_LONGEST_S = 0.05
"""Pauses between rounds: a buffer of the default size outlasts the longest at any rate."""
LONGEST_WOKEN_S = 0.4
"""The longest pause where every buffer wakes the drain."""
_NEARLY_EMPTY, _FILLING = 0.05, WAKE_PERCENT / 100
"""Parts of a buffer found filled: below the one pauses grow, above the other they are shortest.
A round costs processor time that the traced program may be waiting for."""
_NICE = -10
_THREADS = 8
"""Most threads: one moves some 10 M events a second."""


class Source(Protocol):
    """A buffer in the kernel and the file that its content goes to."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def cpu(self) -> int:
        """Sources of one CPU are moved by one thread."""
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
        """A descriptor that can be read once the buffer has filled; None: it is to be looked at."""
        ...

    def move(self) -> int:
        """Move what is there, or a good part of it; returns the bytes moved."""
        ...

    def move_last(self) -> None:
        """Move what is left, after the last event."""
        ...

    def stats(self) -> dict[str, int]:
        """The kernel's own counters."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a decoder must know of the file, beyond its name and CPU."""
        ...

    def close(self) -> None:
        """Close both; more than once does no harm."""
        ...

    def inherit(self) -> None:
        """In a process forked from the recorder: keep hold of the buffer, whoever dies."""
        ...

    def take_over(self) -> None:
        """There: mend what the recorder did not end, so that `move` may go on with it."""
        ...


def new_file(path: Path) -> int:
    """A new file, the user's alone; it must not exist."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data`; OSError passes through."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@dataclass
class Drain:
    """Threads that move pages for as long as a recording runs.

    `failure` is the error that stopped a thread (a full disk); its sources are then no longer
    drained and the recording has to end.
    """

    sources: Sequence[Source]
    failure: OSError | None = None
    limit_bytes: int | None = None
    """No more is written than this (`--max-size`); `full` says that it was reached."""
    full: bool = False
    _stop: int = field(default_factory=lambda: os.eventfd(0, os.EFD_CLOEXEC))
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start draining. Returns when every thread runs."""
        cpus = sorted({source.cpu for source in self.sources})
        count = min(len(cpus), _THREADS)
        for number in range(count):
            mine = [s for s in self.sources if cpus.index(s.cpu) % count == number]
            thread = threading.Thread(target=self._run, args=(mine,), daemon=True)
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
        return sum(source.written for source in self.sources)

    def finish(self) -> None:
        """Stop the threads, after each has moved what is left. Tracing must be off."""
        if self._stop < 0:
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
            # Its traceback would hold views of buffers that are to be unmapped.
            self.failure = error.with_traceback(None)

    def _move(self, source: Source) -> int:
        """Move all that is there, unless the limit is reached; returns the bytes moved."""
        total = 0
        while not (self.limit_bytes and self.written >= self.limit_bytes):
            moved = source.move()
            total += moved
            if not moved:
                return total
        self.full = True
        return total
