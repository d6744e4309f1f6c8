"""Ctrl-C between two steps, where nothing is half done."""

from __future__ import annotations

import signal
import threading


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
