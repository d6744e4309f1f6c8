"""Jobs that share files, with each of their calls, for the models of a page cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracles.shared_cache import EPOCHS, FIRST, SECOND, Jobs, Page
from tests.oracles.two_lists import READ, REMOVAL, Call, Own, TwoLists

REMOVER = 400
"""Number of a process that reads nothing."""
TENANTS = {"a": 0, "b": 1, None: 2}
NO_LIMIT = 10**9
"""Pages."""


@dataclass(frozen=True)
class JobCall:
    """A call of a target (None: others) in an epoch (None: in none): a read, mostly."""

    target: str | None
    epoch: int | None
    reader: Any
    """The thread, and how often it has opened the file. One that reads the first page has opened it
    anew (docs/predict.md)."""
    file: tuple[str, int]
    first: int
    pages: int
    ts: int
    kind: str = READ

    @property
    def place(self) -> tuple[Any, str, tuple[str, int], int]:
        """Reader, kind, file and first page."""
        return self.reader, self.kind, self.file, self.first


def removal(file: tuple[str, int], page: int, ts: int) -> JobCall:
    """Returns the removal of a page for a program, whichever it is."""
    return JobCall(None, None, None, file, page, 1, ts, REMOVAL)


def kernel_reads(
    calls: Sequence[JobCall],
    sizes: Mapping[Any, int],
    pages: int,
    shared: bool,
    ahead: int = 0,
    own: Sequence[Own] = (),
) -> dict[tuple[str, int | None], int]:
    """Pages that a naive kernel reads for each epoch of the targets with so much memory.

    `shared`: the targets share it. Other processes have as much as they need. `own`: changes of
    the own memory; target a has the first limit.
    """
    limits, capacities = ([0, 0, 1], [pages]) if shared else ([0, 1, 2], [pages] * 2)
    cache = TwoLists([*capacities, NO_LIMIT], limits, sizes, ahead, exact=False)
    _, read = cache.run(
        (
            Call(TENANTS[one.target], (one.target, one.epoch), *one.place, one.pages, one.ts)
            for one in calls
        ),
        own,
    )
    return {group: pages for group, pages in read.items() if group[0] is not None}


class CalledJobs(Jobs):
    """Jobs whose stages, pauses of `pause_ns` apart, are made of the reads in `calls`.

    Reclaim takes pages before a share of the calls (`evicts`). Before another one, a program asks
    the kernel to drop some (`drops`): these removals are in `calls`, too.
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
        self._openings: Counter[tuple[int, tuple[str, int]]] = Counter()
        super().__init__(seed, common)

    def _stage(self, stage: int) -> None:
        self.now = max(self.now, stage * self.pause_ns)
        super()._stage(stage)

    def _read(self, pid: int, file: tuple[str, int, int]) -> list[tuple[Page, bool]]:
        if self.numbers.random() < self.evicts:
            self._evict(pid, file)
        if self.numbers.random() < self.drops:
            self._drop(self.numbers.choice([pid, REMOVER]), file)
        pages = super()._read(pid, file)
        dev, ino, first = pages[0][0]
        target = "a" if pid == FIRST else "b" if pid == SECOND and self.stage < 4 else None
        epoch = EPOCHS[target][self.stage] if target else None
        if first == 0:
            self._openings[pid, (dev, ino)] += 1
        reader = (pid, target), (dev, ino), self._openings[pid, (dev, ino)]
        self.calls.append(JobCall(target, epoch, reader, (dev, ino), first, len(pages), self.now))
        return pages

    def _evict(self, pid: int, file: tuple[str, int, int]) -> None:
        """Lets reclaim take the first cached pages of a file. No other event has its times."""
        thread = {"pid": pid, "tid": pid, "cpu": 0}
        reclaim = self.tables.setdefault("reclaim", [])
        reclaim.append({"ts": self.now + 1, "event": "memcg_begin", **thread})
        self.now += 2
        self._take(pid, file)
        self.now += 1
        reclaim.append({"ts": self.now, "event": "memcg_end", "nr_reclaimed": 1, **thread})
        self.now += 1

    def _drop(self, pid: int, file: tuple[str, int, int]) -> None:
        """Takes the first cached pages of a file as a program asks for it."""
        self.tables.setdefault("reclaim", [])
        for number in self._take(pid, file):
            self.calls.append(removal(file[:2], number, self.now))

    def _take(self, pid: int, file: tuple[str, int, int]) -> list[int]:
        """Takes the first cached pages of a file; returns them."""
        thread, most = {"pid": pid, "tid": pid, "cpu": 0}, self.numbers.randrange(file[2])
        taken = sorted(page for page in self._cached if page[:2] == file[:2] and page[2] <= most)
        self._cached.difference_update(taken)
        for _, _, number in taken:
            self._event(thread, file, "delete", number, 1)
        return [number for _, _, number in taken]
