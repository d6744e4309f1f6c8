"""Jobs that share files, with each of their calls, for the models of a page cache."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.oracles.shared_cache import EPOCHS, FIRST, SECOND, Jobs, Page
from tests.oracles.two_lists import READ


@dataclass(frozen=True)
class JobCall:
    """A read of some pages by a target (None: others) in an epoch (None: in none)."""

    target: str | None
    epoch: int | None
    reader: Any
    """The thread, and how often it has opened the file. One that reads the first page has opened it
    anew (docs/predict.md)."""
    file: tuple[str, int]
    first: int
    pages: int
    ts: int

    @property
    def place(self) -> tuple[Any, str, tuple[str, int], int]:
        """Reader, kind, file and first page."""
        return self.reader, READ, self.file, self.first


class CalledJobs(Jobs):
    """Jobs whose stages, pauses of `pause_ns` apart, are made of the reads in `calls`.

    Reclaim takes pages before a share of the calls (`evicts`). Before another one, a program asks
    the kernel to drop some (`drops`).
    """

    def __init__(
        self,
        seed: int,
        common: bool = True,
        pause_ns: int = 0,
        evicts: float = 0,
        drops: float = 0,
    ) -> None:
        self.calls: list[JobCall] = []
        self.pause_ns, self.evicts, self.drops = pause_ns, evicts, drops
        self.stage = 0
        self._openings: Counter[tuple[int, tuple[str, int]]] = Counter()
        super().__init__(seed, common)

    def _stage(self, stage: int) -> None:
        self.now, self.stage = max(self.now, stage * self.pause_ns), stage
        super()._stage(stage)

    def _read(self, pid: int, file: tuple[str, int, int]) -> list[tuple[Page, bool]]:
        if self.numbers.random() < self.evicts:
            self._take(pid, file, True)
        if self.numbers.random() < self.drops:
            self._take(pid, file, False)
        pages = super()._read(pid, file)
        dev, ino, first = pages[0][0]
        target = "a" if pid == FIRST else "b" if pid == SECOND and self.stage < 4 else None
        epoch = EPOCHS[target][self.stage] if target else None
        if first == 0:
            self._openings[pid, (dev, ino)] += 1
        reader = (pid, target), (dev, ino), self._openings[pid, (dev, ino)]
        self.calls.append(JobCall(target, epoch, reader, (dev, ino), first, len(pages), self.now))
        return pages

    def _take(self, pid: int, file: tuple[str, int, int], evicted: bool) -> None:
        """Takes the first cached pages of a file: by reclaim, or as its program asks for it."""
        thread, most = {"pid": pid, "tid": pid, "cpu": 0}, self.numbers.randrange(file[2])
        reclaim = self.tables.setdefault("reclaim", [])
        if evicted:
            reclaim.append({"ts": self.now, "event": "memcg_begin", **thread})
            self.now += 1
        for dev, ino, number in sorted(self._cached):
            if (dev, ino) == file[:2] and number <= most:
                self._cached.discard((dev, ino, number))
                self._event(thread, file, "delete", number, 1)
        self.now += 1
        if evicted:
            reclaim.append({"ts": self.now, "event": "memcg_end", "nr_reclaimed": 1, **thread})
