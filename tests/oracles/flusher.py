"""A small flusher that runs at random: its passes know their wake because it made them.

It follows `wb_workfn()`, `wb_do_writeback()` and `wb_writeback()` of fs/fs-writeback.c: workers of
several devices and cgroups run at the same time, a thread serves one device after the other, and
processes queue work while a worker runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]
_WORKERS: tuple[tuple[str, int], ...] = (("8:0", 1), ("8:0", 7), ("7:0", 1))
"""Device and cgroup of each."""
_TIDS = (50, 51, 52)


class Flusher:
    """Runs for some steps. `rows`: the table writeback. `wakes`: the wake of each row.

    `base`: the first time (ns); also added to the numbers of threads and cgroups.
    """

    def __init__(self, numbers: random.Random, steps: int, base: int = 0) -> None:
        self.numbers, self.now, self.base = numbers, base, base
        self.rows: list[Row] = []
        self.wakes: list[int] = []
        """The number of the wake of each row; -1: a row of another process."""
        self.works: list[list[str]] = [[] for _ in _WORKERS]
        self.tids = [base + tid for tid in _TIDS]
        self._made = 0
        running: dict[int, tuple[int, Iterator[None]]] = {}
        for _ in range(steps):
            worker = numbers.randrange(len(_WORKERS))
            match numbers.choice(["queue", "wake", "run", "run", "run", "run"]):
                case "queue":
                    self.works[worker].append("sync")
                    self._log(base + 9, worker, "queue", "sync", -1)
                case "wake" if worker not in running:
                    busy = {tid for tid, _ in running.values()}
                    tid = numbers.choice([t for t in self.tids if t not in busy])
                    running[worker] = tid, self._workfn(tid, worker)
                case "run" if worker in running:
                    if next(running[worker][1], "ended") == "ended":
                        del running[worker]
        for _, left in running.values():  # some wakes go on when the recording ends
            if numbers.random() < 0.5:
                for _ in left:
                    pass

    def _log(self, tid: int, worker: int, event: str, reason: str | None, wake: int) -> None:
        self.now += self.numbers.choice([0, 1, 1, 50])
        row = {"ts": self.now, "tid": tid, "pid": tid, "event": event}
        if event != "pages_written":
            bdi, cgroup = _WORKERS[worker]
            row |= {"bdi": bdi, "cgroup_ino": self.base + cgroup, "reason": reason}
        self.rows.append(row)
        self.wakes.append(wake)

    def _workfn(self, tid: int, worker: int) -> Iterator[None]:
        self._made += 1
        wake, works, numbers = self._made, self.works[worker], self.numbers

        def write(reason: str) -> Iterator[None]:
            for _ in range(numbers.choice([1, 2, 2, 5])):
                if reason == "background" and works:
                    return
                self._log(tid, worker, "start", reason, wake)
                yield
                self._log(tid, worker, "written", reason, wake)

        while True:
            while works:
                self._log(tid, worker, "exec", works.pop(0), wake)
                yield from write("sync")
            for reason in ("sync", "periodic", "background"):
                if numbers.random() < 0.4:
                    yield from write(reason)
            self._log(tid, worker, "pages_written", None, wake)
            if not works:
                return
            yield
