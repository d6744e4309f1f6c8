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
    with delayed() as (numbers, came), _watched(connection, numbers, came):
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


@contextlib.contextmanager
def _watched(
    connection: duckdb.DuckDBPyConnection, numbers: Collection[int], came: _Came
) -> Iterator[None]:
    """Interrupts the queries of the block from another thread once one of the signals has come.

    An interrupt ends only a query that runs. It is repeated, because the next query of the block
    may be about to begin.
    """
    told, telling = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = signal.set_wakeup_fd(telling, warn_on_full_buffer=False)

    def watch() -> None:
        poll = select.poll()
        poll.register(told, select.POLLIN)
        interrupts = bool(came)  # before the file descriptor was set
        while True:
            if poll.poll(_AGAIN_MS if interrupts else None):
                read = os.read(told, 4096)
                if not read:
                    return  # the block has ended
                if before >= 0:
                    with contextlib.suppress(BlockingIOError):
                        os.write(before, read)  # an event loop waits for signals, too
                interrupts = interrupts or any(number in numbers for number in read)
            if interrupts:
                connection.interrupt()

    watching = threading.Thread(target=watch, name="tracer-signals")
    try:
        watching.start()
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(telling)
        watching.join()
        os.close(told)
