"""Queries of DuckDB that a signal ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")
_Came = list[tuple[int, FrameType | None]]

_ENDING: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_MS = 1
_LOOK = b"\0"
"""A byte that is no signal's number."""


class FirstSignal:
    """A handler that raises KeyboardInterrupt for the first signal that it gets, and only then."""

    def __init__(self) -> None:
        self._came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        if not self._came:
            self._came = True
            raise KeyboardInterrupt


def interruptible(
    connection: duckdb.DuckDBPyConnection, call: Callable[[duckdb.DuckDBPyConnection], T]
) -> T:
    """Returns the result of `call(connection)`. Ctrl-C ends the queries of the call.

    Python runs the handlers of signals in the main thread, but not while DuckDB runs a query there.
    So another thread learns of each signal as it comes, and interrupts the queries until the call
    has ended. Only then KeyboardInterrupt is raised: the connection can be closed, or used again.

    This holds for Ctrl-C and for the signals that a `FirstSignal` handles. Other handlers may not
    want the query to end. A call from another thread than the main one has no signals to handle.
    """
    if threading.current_thread() is not threading.main_thread():
        return call(connection)
    watch = _watch_of_this_process()
    with delayed() as (numbers, came), watch.over(_Call(connection, numbers), came):
        return call(connection)


@contextlib.contextmanager
def delayed() -> Iterator[tuple[Collection[int], _Came]]:
    """Runs the handlers that raise KeyboardInterrupt at the end of the block.

    Yields the numbers of their signals, and a list of the signals that have come. Another thread
    than the main one has no handlers to run.
    """
    came: _Came = []
    before: dict[int, Callable[[int, FrameType | None], object]] = {}
    in_main = threading.current_thread() is threading.main_thread()
    for number in _ENDING if in_main else ():
        handler = signal.getsignal(number)
        if handler is signal.default_int_handler or isinstance(handler, FirstSignal):
            before[number] = handler
    try:
        for number in before:
            signal.signal(number, lambda number, frame: came.append((number, frame)))
        yield before.keys(), came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, frame in came:
            before[number](number, frame)


class _Call:
    """A call whose queries end if one of some signals comes."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, numbers: Collection[int]) -> None:
        self.connection = connection
        self.numbers = numbers
        self.is_to_end = False


class _Watch:
    """A thread that interrupts queries of the main thread. A process has one: a start costs 0.2 ms.

    An interrupt ends only a query that runs. It is repeated until the call has ended, because the
    call's next query may be about to begin.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._told, self._telling = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lock = threading.Lock()
        self._calls: list[_Call] = []
        """The calls that have not ended, one within the other."""
        self._other = -1
        """The file descriptor by which somebody else, such as an event loop, learns of signals."""
        threading.Thread(target=self._watch, name="tracer-signals", daemon=True).start()

    @contextlib.contextmanager
    def over(self, call: _Call, came: _Came) -> Iterator[None]:
        """Watches over a call, which is the block. `came` has the signals that came before it."""
        with self._lock:
            self._calls.append(call)
            before = signal.set_wakeup_fd(self._telling, warn_on_full_buffer=False)
            if before != self._telling:
                self._other = before
        try:
            if came:  # before the file descriptor was set
                call.is_to_end = True
                os.write(self._telling, _LOOK)
            yield
        finally:
            signal.set_wakeup_fd(before)
            with self._lock:
                self._learn()  # A later call is not to end because of a signal of this one.
                self._calls.pop()

    def _learn(self) -> None:
        """Learns of the signals that have come. The lock is held."""
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            numbers = os.read(self._told, 4096)
        for call in self._calls:
            call.is_to_end |= any(number in call.numbers for number in numbers)
        if self._other >= 0 and (others := numbers.replace(_LOOK, b"")):
            with contextlib.suppress(OSError):  # It is full, or was closed.
                os.write(self._other, others)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._told, select.POLLIN)
        repeats = False
        while True:
            poll.poll(_AGAIN_MS if repeats else None)
            with self._lock:
                self._learn()
                ending = [call for call in self._calls if call.is_to_end]
                for call in ending:
                    call.connection.interrupt()
            repeats = bool(ending)


_watches: list[_Watch] = []
"""The watch of this process, or of its parent: no thread watches in a fork."""


def _watch_of_this_process() -> _Watch:
    if not _watches or _watches[0].pid != os.getpid():
        _watches[:] = [_Watch()]
    return _watches[0]
