"""Signals to end, delayed until nothing is half done: between steps, not inside a start."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interruptible:
    """A block in which a first Ctrl-C waits for `check`. A second Ctrl-C does not wait.

    A KeyboardInterrupt raised at once would be lost while a DataLoader shuts down, and a worker
    that hands over a batch would print an error. Workers that are forked in the block wait in the
    same way, so that the step can finish.
    """

    def __init__(self) -> None:
        self._asked = False
        # Background jobs of a shell ignore Ctrl-C, and only the main thread handles signals.
        self._active = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        )

    def __enter__(self) -> Interruptible:
        if self._active:
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._before)
        # After an error, too: Ctrl-C may have ended a worker, which is no defect.
        self.check()

    def check(self) -> None:
        """Raises KeyboardInterrupt if Ctrl-C was pressed."""
        if self._asked:
            raise KeyboardInterrupt

    def _interrupt(self, *_: object) -> None:
        self.check()
        self._asked = True


@contextmanager
def held() -> Iterator[None]:
    """Delays Ctrl-C, SIGTERM and SIGHUP until the end of the block. The block must be short.

    Only signals that a Python handler receives are delayed; a signal that ends the process at once
    still does. The signals are not blocked, since a child process would inherit that.
    """
    came: list[tuple[int, FrameType | None]] = []
    before: dict[int, Callable[[int, FrameType | None], object]] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for held_back, handler in before.items():
            signal.signal(held_back, handler)
        for told, frame in came:
            before[told](told, frame)
