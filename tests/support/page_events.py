"""Events of the page cache, written call by call: reads, evictions and read-ahead of small jobs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

MIB = 1 << 20
PAGE = 4096
STEP_NS = 1000
DEV, INO = "254:0", 12
JOB, PEER, OTHER, KSWAPD = 7, 9, 30, 50
HOT, SCANNED = 30, 1000
"""Pages of `scanned`."""
ONE = [{"name": "job", "role": "target", "kind": "pid", "pid": JOB}]
TWO = [*ONE, {"name": "peer", "role": "target", "kind": "pid", "pid": PEER}]
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python", "ppid": 1},
    {"pid": PEER, "tid": PEER, "role": "target", "target": "peer", "comm": "python", "ppid": 1},
    {"pid": OTHER, "tid": OTHER, "role": "other", "comm": "cp", "ppid": 1},
    {"pid": KSWAPD, "tid": KSWAPD, "role": "other", "comm": "kswapd0", "ppid": 2},
]


class PageEvents:
    """The events of calls, in order of time. All pages are missing at first."""

    def __init__(self) -> None:
        """Begins at 1 us with an empty page cache."""
        self.now = STEP_NS
        self.events: list[dict[str, Any]] = []
        self.reclaim: list[dict[str, Any]] = []
        self.phases: list[dict[str, Any]] = []
        self.cached: set[tuple[int, int]] = set()

    def add_event(self, tid: int, event: str, index: int, pages: int = 1, ino: int = INO) -> None:
        """Adds an event of a thread that is its process."""
        self.now += STEP_NS
        self.events.append(
            {"ts": self.now, "pid": tid, "tid": tid, "event": event, "dev": DEV, "ino": ino,
             "index": index, "pages": pages}
        )  # fmt: skip

    def bring_in(self, index: int, pages: int, ino: int = INO, tid: int = JOB) -> None:
        """Reads pages from disk that no call has asked for yet."""
        self.add_event(tid, "sync_read_ahead", index, pages, ino)
        for page in range(index, index + pages):
            self.add_event(tid, "add", page, 1, ino)
            self.cached.add((ino, page))

    def read(self, index: int, pages: int = 1, ino: int = INO, tid: int = JOB) -> None:
        """Reads pages by one call, which brings in those that are missing."""
        missing = [at for at in range(index, index + pages) if (ino, at) not in self.cached]
        for first, count in _runs(missing):
            self.bring_in(first, count, ino, tid)
        self.add_event(tid, "access", index, pages, ino)

    def evict(self, pages: Iterable[int], ino: int = INO, by: int = KSWAPD) -> None:
        """Takes pages out of the cache, in the reclaim of a thread."""
        if by != KSWAPD:
            self._bracket(by, "memcg_begin")
        for page in pages:
            self.add_event(by, "delete", page, 1, ino)
            self.cached.remove((ino, page))
        if by != KSWAPD:
            self._bracket(by, "memcg_end")

    def _bracket(self, tid: int, event: str) -> None:
        self.now += STEP_NS
        self.reclaim.append({"ts": self.now, "pid": tid, "tid": tid, "event": event})
        self.now += STEP_NS

    def end_epoch(self, number: int, tid: int = JOB) -> None:
        """Ends an epoch of a thread, which began where its last epoch ended."""
        start = max((one["end"] for one in self.phases if one["tid"] == tid), default=0)
        self.now += STEP_NS
        self.phases.append(
            {"name": "epoch", "start": start, "end": self.now, "pid": tid, "tid": tid,
             "epoch": number}
        )  # fmt: skip

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The tables of a trace."""
        return {
            "processes": PROCESSES, "page_cache": self.events, "reclaim": self.reclaim,
            "phases": self.phases,
        }  # fmt: skip

    @property
    def clock(self) -> dict[str, Any]:
        """The clock of a recording that has just ended."""
        return {"name": "mono", "start_ns": 0, "end_ns": self.now + STEP_NS}


def looped(pages: int, epochs: int, ino: int = INO, tid: int = JOB, chunk: int = 8) -> PageEvents:
    """Reads a file in order, epoch by epoch, with room for all of it."""
    made = PageEvents()
    for epoch in range(epochs):
        for at in range(0, pages, chunk):
            made.read(at, min(chunk, pages - at), ino, tid)
        made.end_epoch(epoch, tid)
    return made


def scanned(scan_ns: int, scanner: int = JOB) -> PageEvents:
    """Reads HOT pages twice, then SCANNED others at a time, then the first ones again, all by the
    job but the second part. An epoch of each part."""
    made = PageEvents()
    parts = (1, JOB, [*range(HOT)] * 2), (2, scanner, range(SCANNED)), (1, JOB, range(HOT))
    for epoch, (ino, tid, pages) in enumerate(parts):
        if epoch == 1:
            made.now = scan_ns
        for page in pages:
            made.read(page, 1, ino, tid)
        for each in sorted({JOB, scanner}):
            made.end_epoch(epoch, each)
    return made


def sample(target: str | None, name: str, value: float, ts: int = STEP_NS) -> dict[str, Any]:
    """Makes a sample of a target."""
    return {"ts": ts, "target": target, "name": name, "value": value, "unit": "bytes"}


def _runs(pages: list[int]) -> list[tuple[int, int]]:
    parts = [list(part) for _, part in groupby(enumerate(pages), lambda one: one[1] - one[0])]
    return [(part[0][1], len(part)) for part in parts]
