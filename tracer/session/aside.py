"""Readers of samples in a separate process, which is abandoned if it does not answer.

A read from a dead file system or driver may never return, and no signal interrupts it. A thread
that waits for such a read would keep its whole process from ending.
"""

from __future__ import annotations

import json
import mmap
import time
from collections.abc import Callable
from functools import partial

from tracer.probes.sampler.reading import NotAvailable, Reader, Reading
from tracer.probes.workers.process import Channel, Unanswered, Worker
from tracer.store.checked import encoded

_FIND_S = 30.0
"""Timeout in s of the first request: a driver may have to be loaded."""
_PATIENCE_S = 10.0
_SIGN_S = 0.5
"""Time in s between two signs of life of a slow reader."""
_FIND, _READ, _LAST, _GO_ON = b"find", b"read", b"last", b"go on"

Find = Callable[[Callable[[], None]], tuple[list[Reader], dict[str, str]]]
"""Makes readers and says why others are missing. Readers call its argument while they read."""
Timed = tuple[int, list[Reading]]
"""Readings and the time (ns) at which they ended."""


class Aside:
    """A group of readers in another process."""

    def __init__(self, name: str, find: Find) -> None:
        """Forks and makes the readers in the child. `name` stands for all of them until then."""
        self.missing: dict[str, str] = {}
        self.facts: dict[str, str] = {}
        self.cpu_s = 0.0
        self.signs = 0
        """Number of signs of life so far."""
        self.given_up: str | None = None
        """The reader that did not answer, and why; nothing is read any more."""
        self._asked = mmap.mmap(-1, mmap.PAGESIZE)
        """Memory shared with the process: the name of the reader that is reading."""
        self._asked[: len(name)] = name.encode()
        self._worker: Worker | None = None
        try:
            self._worker = Worker(partial(_serve, find, self._asked))
        except Unanswered as error:
            self._give_up(error)
        self._ask(_FIND, _FIND_S)

    @property
    def pids(self) -> list[int]:
        """The pid of the process, while there is one."""
        return [self._worker.pid] if self._worker is not None else []

    def read(self, last: bool = False) -> list[Timed]:
        """Returns the readings of every reader now; none after one has failed to answer."""
        return self._ask(_LAST if last else _READ, _PATIENCE_S)

    def _ask(self, request: bytes, seconds: float) -> list[Timed]:
        try:
            while self._worker is not None:
                told = json.loads(self._worker.ask(request, seconds))
                self.signs += 1
                if told is not None:
                    self.cpu_s, self.missing, self.facts, readings = told
                    return [(ns, [(*reading,) for reading in of_one]) for ns, of_one in readings]
                request = _GO_ON
        except Unanswered as error:
            self._give_up(error)
        return []

    def _give_up(self, error: Unanswered) -> None:
        self._worker = None
        asked = bytes(self._asked).rstrip(b"\0").decode()
        self.given_up = f"{asked}: {error.why}"
        self.missing = {**self.missing, asked: error.why}

    def close(self) -> None:
        """Ends the process. Repeated calls do no harm."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _serve(find: Find, asked: mmap.mmap, channel: Channel) -> None:
    """Runs in the process: answers each request with the readings of all readers."""
    signed = time.monotonic()

    def still_there() -> None:
        nonlocal signed
        if time.monotonic() - signed > _SIGN_S:
            channel.send(encoded(None))
            if channel.receive() is None:
                raise SystemExit
            signed = time.monotonic()

    request = channel.receive()
    readers, missing = find(still_there)
    readings: list[Timed] = []
    while request is not None:
        gone, facts = dict(missing), dict[str, str]()
        for reader in readers:
            gone |= reader.missing
            facts |= reader.facts
        channel.send(encoded([time.process_time(), gone, facts, readings]))
        request = channel.receive()
        signed = time.monotonic()
        readings = []
        for reader in list(readers) if request is not None else ():
            asked[:] = reader.name.encode().ljust(len(asked), b"\0")
            reader.last = request == _LAST
            try:
                found = reader.read()
            except NotAvailable as error:
                readers.remove(reader)
                missing[reader.name] = f"no longer: {error.why}"
            else:
                readings.append((time.monotonic_ns(), found))
            still_there()
