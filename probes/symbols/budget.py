"""Limits of what is read for the names of functions: a file's, and a recording's.

The files are the targets' own. What goes beyond is left out, and counted by its reason: a row of
the table `loss`. The process that reads them is ended where it asks for more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from probes.workers.process import TOO_LATE, TOO_LONG, Unanswered

MAX_FILE_BYTES = 1 << 31
"""Read of one file: tables, not code. The checksum of a debug file takes all of it."""
MAX_SYMBOLS = 1 << 21
"""The most of one table: a large library has half a million."""
MAX_STRING_BYTES = 1 << 28
"""The most for the names of one table."""
MAX_MAP_BYTES = 1 << 26
"""The most that is read of a just-in-time compiler's map of one process."""
MAX_MAP_LINES = 1 << 20
MAX_NAME = 512
"""Characters of a name; what is longer ends in an ellipsis."""


@dataclass(frozen=True)
class Budget:
    """The limits for all functions of one recording.

    files         opened, with debug files and maps of just-in-time compilers
    bytes_read    of all of them together
    symbols       of all their tables together
    tables        held at a time
    table_bytes   held at a time
    name_bytes    of different names together, as they are shown
    memory_bytes  of the process that reads the files
    cpu_s         of processor time, of that process
    answer_s      of wall time, until a file is open, or read
    wall_s        of wall time, for all of it
    deaths        of each of the processes that open and read, until there is no other one
    """

    files: int = 4096
    bytes_read: int = 1 << 33
    symbols: int = 1 << 24
    tables: int = 1024
    table_bytes: int = 1 << 29
    name_bytes: int = 1 << 27
    memory_bytes: int = 1 << 31
    cpu_s: int = 60
    answer_s: float = 20
    wall_s: float = 120
    deaths: int = 4


class Reason(StrEnum):
    """The reason for which functions of a file were left out."""

    FILES = "too many files"
    MAPS = "too many processes with compilers of their own"
    BYTES = "too much to read"
    SYMBOLS = "too many symbols"
    TABLE = "too large a table"
    NAMES = "too many names"
    MEMORY = "too much memory"
    TIME = "too much time"
    SILENT = "the file system did not answer"
    DIED = "the process that read them died"


class LeftOut(Exception):
    """Functions are not looked up, for this reason."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason)


class Account:
    """The part of a budget that has been spent.

    left_out  of how many files functions were left out, by reason; for NAMES how many names
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.left_out: Counter[Reason] = Counter()
        self.files = self.bytes_read = self.symbols = 0
        self._waited_s = 0.0
        self._names: dict[str, str] = {}
        self._name_bytes = 0

    def check(self) -> None:
        """Raises LeftOut if nothing more may be opened or read."""
        for spent, allowed, reason in (
            (self.files, self.budget.files, Reason.FILES),
            (self.bytes_read, self.budget.bytes_read, Reason.BYTES),
            (self.symbols, self.budget.symbols, Reason.SYMBOLS),
            (self._waited_s, self.budget.wall_s, Reason.TIME),
        ):
            if spent >= allowed:
                raise LeftOut(reason)

    @contextmanager
    def waiting(self, late: Reason) -> Iterator[None]:
        """Count the time of the block; LeftOut, `late` where it was too long, for Unanswered."""
        begun = time.monotonic()
        try:
            yield
        except Unanswered as error:
            why = {TOO_LATE: late, TOO_LONG: Reason.TIME}.get(error.why, Reason.DIED)
            raise LeftOut(why) from None
        finally:
            self._waited_s += time.monotonic() - begun

    def name(self, text: str) -> str | None:
        """The same text, kept once however often it comes; None where there are too many."""
        known = self._names.get(text)
        if known is None:
            size = len(text.encode())
            if self._name_bytes + size > self.budget.name_bytes:
                self.left_out[Reason.NAMES] += 1
                return None
            self._name_bytes += size
            known = self._names[text] = text
        return known
