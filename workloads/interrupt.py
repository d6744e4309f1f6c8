"""Ctrl-C and SIGTERM where nothing is half done: between two steps, not amid a beginning."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interruptible:
    """While the `with` block runs, a first Ctrl-C waits for `check`; a second does not wait.

    Raised at once, a KeyboardInterrupt would be lost where it meets a DataLoader that is just
    being taken down, and leave a worker that hands over a batch complaining of it. Workers that
    are forked in the block wait likewise, so that the step can be finished.
    """

    def __init__(self) -> None:
        self._asked = False
        # A shell lets its background jobs ignore Ctrl-C, and only the main thread has signals.
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
        # Also after an error: a worker that Ctrl-C ended is no defect.
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C came."""
        if self._asked:
            raise KeyboardInterrupt

    def _interrupt(self, *_: object) -> None:
        self.check()
        self._asked = True


@contextmanager
def terminable() -> Iterator[None]:
    """While the block runs, SIGTERM is as Ctrl-C: what has begun is taken down again."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def held() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the end of the block, which must not last.

    Where Python handles them, that is: what ends the process at once still does. The signals are
    not blocked, as a process that begins in the block would have them blocked as well.
    """
    came: list[tuple[int, FrameType | None]] = []
    before: dict[int, Callable[[int, FrameType | None], object]] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
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
