"""The progress of a job: one line on a terminal, nothing if stderr is no terminal."""

from __future__ import annotations

import sys
import time

_EVERY_S = 0.1


class Progress:
    """A context manager that shows `name done/total note` on stderr, redrawn in place."""

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._shown = sys.stderr.isatty()
        self._drawn = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            # Clear the line for the output that follows.
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, done: int, note: str = "") -> None:
        """Shows that `done` of the total are done."""
        if not self._shown:
            return
        now = time.monotonic()
        if now - self._drawn >= _EVERY_S or done == self._total:
            self._drawn = now
            sys.stderr.write(f"\r{self._name} {done}/{self._total} {note}\x1b[K")
            sys.stderr.flush()
