"""The limits on reading files for function names, per file and per recording.

The files belong to the targets. Functions beyond a limit are left out and counted by reason, as
rows of the table `loss`. A process that needs more than its limits is ended.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from tracer.probes.workers.process import TOO_LATE, TOO_LONG, Unanswered

MAX_FILE_BYTES = 1 << 31
"""Most bytes read of one file: its tables, not its code. The checksum of a debug file needs the
whole file."""
MAX_SYMBOLS = 1 << 21
"""Most symbols in one table: a large library has half a million."""
MAX_STRING_BYTES = 1 << 28
"""Most bytes for the names of one table."""
MAX_MAP_BYTES = 1 << 26
"""Most bytes read of a just-in-time compiler's map of one process."""
MAX_MAP_LINES = 1 << 20
MAX_NAME = 512
"""Most characters of a name. A longer name is cut and ends in an ellipsis."""


@dataclass(frozen=True)
class Budget:
    """The limits for all functions of one recording.

    files         files opened, including debug files and maps of just-in-time compilers
    bytes_read    bytes read of all files together
    symbols       symbols in all tables together
    tables        tables held at a time
    table_bytes   bytes of the tables held at a time
    name_bytes    bytes of all different names together, as they are shown
    memory_bytes  memory of the process that reads the files
    cpu_s         processor time of that process, in s
    answer_s      wall time until a file is open, or read, in s
    wall_s        wall time of all waiting together, in s
    deaths        deaths of each process that opens or reads, until it is no longer replaced
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
    """Functions are not looked up; `reason` is the limit."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason)


class Account:
    """The part of a budget that has been spent.

    left_out  number of files whose functions were left out, by reason; for NAMES, of names
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
        """Counts the time of the block, and turns Unanswered into LeftOut.

        The reason is `late` if the answer came too late.
        """
        begun = time.monotonic()
        try:
            yield
        except Unanswered as error:
            why = {TOO_LATE: late, TOO_LONG: Reason.TIME}.get(error.why, Reason.DIED)
            raise LeftOut(why) from None
        finally:
            self._waited_s += time.monotonic() - begun

    def name(self, text: str) -> str | None:
        """Returns the same text, of which only one copy is kept; None if there are too many."""
        known = self._names.get(text)
        if known is None:
            size = len(text.encode())
            if self._name_bytes + size > self.budget.name_bytes:
                self.left_out[Reason.NAMES] += 1
                return None
            self._name_bytes += size
            known = self._names[text] = text
        return known
