"""The client of the confined process that reads files of targets.

The process gets open files from the process that opens them (`opening.py`), holds tables of their
functions, and answers with names as they are in the file (`reader_process.py`). It may end at any
time and may send any answer, so answers are limited and checked.
"""

from __future__ import annotations

import json
import socket
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tracer.probes.symbols.budget import Budget
from tracer.probes.symbols.reader_process import Debug, Facts, Tables
from tracer.probes.symbols.table import build_table
from tracer.probes.workers.confinement import Limits
from tracer.probes.workers.process import TOO_LONG, Unanswered, Worker

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_MAX_FACTS = 1 << 20


class Reader:
    """The process as its client sees it. Each call raises Unanswered if the process ends."""

    def __init__(self, budget: Budget, files: socket.socket) -> None:
        """Keeps `files`, the socket from which the process takes open files."""
        self._budget = budget
        self._files = files
        self._worker: Worker | None = None
        self._spent_s = 0.0
        """Processor time in s of processes that have ended."""
        self._deaths = 0

    def start(self) -> None:
        """Starts the process, with the processor time that is left."""
        if self._worker is not None:
            return
        left = int(self._budget.cpu_s - self._spent_s)
        if left < 1:
            raise Unanswered(TOO_LONG)
        if self._deaths >= self._budget.deaths:
            raise Unanswered("it ended too often")
        build_table([])  # compiles its loop here: a confined process cannot load it
        limits = Limits(self._budget.memory_bytes, left)
        self._worker = Worker(Tables(self._files, limits).serve, [self._files.fileno()])

    def load(self, number: int, name: str) -> Facts:
        """Has an ELF file read; `name` is its name in messages."""
        return self._facts("elf", number, name)

    def load_with(self, number: int, name: str, debug: Debug) -> Facts:
        """Has an ELF file that asked for its debug file read, with the candidates for it."""
        return self._facts("debug", number, name, debug)

    def load_map(self, number: int, name: str) -> Facts:
        """Has the map of a just-in-time compiler read."""
        return self._facts("map", number, name)

    def names(
        self, number: int, places: NDArray[np.int64] | NDArray[np.uint64]
    ) -> tuple[list[int], list[bytes]]:
        """Returns the function at each place, as an index into the names (-1: none), and the names.

        At most `MOST_PLACES` places are allowed. A place is an offset into an ELF file, or for a
        map an address of its process. Names are as in the file, cut after some 16 KiB.
        """
        answer = self._ask("names", number, data=places.tobytes())
        bounds = 4 * len(places)
        found = np.frombuffer(answer[:bounds], np.int32) if len(answer) >= bounds else None
        count = answer.count(b"\0", bounds)
        if found is None or count > len(places) or (found < -1).any() or (found >= count).any():
            raise self._nonsense()
        return found.tolist(), answer[bounds:].split(b"\0")[:-1]

    def forget(self, number: int) -> None:
        """Closes a file, or drops its table."""
        self._ask("forget", number)

    def _facts(self, what: str, number: int, name: str, debug: Debug = ()) -> Facts:
        try:
            return _checker().validate_json(self._ask(what, number, name, debug)[:_MAX_FACTS])
        except ValueError:
            raise self._nonsense() from None

    def _ask(
        self, what: str, number: int, name: str = "", debug: Debug = (), data: bytes = b""
    ) -> bytes:
        self.start()
        assert self._worker is not None
        request = json.dumps([what, number, name, debug]).encode()
        try:
            return self._worker.ask(request + b"\n" + data, self._budget.answer_s)
        except Unanswered:
            self._ended()
            raise

    def _nonsense(self) -> Unanswered:
        self._ended()
        return Unanswered("its answer is invalid")

    def _ended(self) -> None:
        assert self._worker is not None
        self._worker.close()
        self._spent_s += self._worker.cpu_s
        self._worker = None
        self._deaths += 1

    def close(self) -> None:
        """Ends the process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


@cache
def _checker() -> TypeAdapter[Facts]:
    from pydantic import TypeAdapter

    return TypeAdapter(Facts)
