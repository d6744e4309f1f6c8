"""Pages that leave the cache as a file system is unmounted are removed, those of others evicted.

The truth is written from docs/reads.md, docs/predict.md and the docs of the columns, not from the
code. File systems are unmounted and mounted again with the same device number, while reclaim takes
pages of the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Any

import pytest

from tests.oracles.drawing import answer_of, seeds
from tracer.analysis.report.reads import EVICTIONS
from tracer.analysis.views.reading.reads import READS
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

STREAMS = 4
STEPS = 250
SIZE, MIB = 12, 256
"""Pages of a file, and of a MiB."""
DEVICES = ("8:1", "8:2", "8:17")
"""Two partitions of a disk, and one of another."""
FILES = [(dev, ino) for dev in DEVICES for ino in (7, 8)]
LIBRARY = ("8:1", 9)
"""A file that is in memory since before the recording; nothing takes its page."""
CONTAINER = "c0ffee" * 10 + "abcd"
PROCESSES = {
    100: {"comm": "python", "target": "a"},
    101: {"comm": "python", "target": "a"},
    200: {"comm": "python", "target": "b"},
    300: {"comm": "cp", "target": None},
    301: {"comm": "db", "target": None, "container_id": CONTAINER},
    400: {"comm": "kswapd-umount", "target": None},  # its name is no evidence
    102: {"comm": "tar", "target": None},
    302: {"comm": "python", "target": "b"},
    50: {"comm": "kswapd0", "target": None, "ppid": 2},
    51: {"comm": "kswapd1", "target": None, "ppid": 2},
}
READERS, UMOUNT, KSWAPD = (100, 101, 200, 300, 301), 400, (50, 51)
LATER = {101: 102, 300: 302}
"""Processes that exit, and those that get their numbers."""
EVICTERS = {
    102: "tar",
    300: "cp",
    301: f"container {CONTAINER[:12]}",
    400: "kswapd-umount",
    50: "kswapd0",
    51: "kswapd1",
}
TARGETS = [
    {"name": name, "role": "target", "kind": "pid", "pid": pid}
    for name, pid in (("a", 100), ("b", 200))
]
SUMS = ("accessed", "missed", "read", "written", "evicted", "removed", "refaulted", "distance")

Row = dict[str, Any]
File = tuple[str, int]
Owner = tuple[str | None, str | None]
"""A target, and a container."""


class Machine:
    """Processes read and write files; reclaim takes pages, an unmount all of a disk."""

    def __init__(self, numbers: Random, exits: bool) -> None:
        self.numbers, self.now = numbers, 1000
        self.readers, self.begun = READERS, {}
        self.events: list[Row] = []
        """Rows of `page_cache` and `reclaim` in order; `does` tells why a page comes."""
        self.cached: dict[File, set[int]] = defaultdict(set)
        for number in range(STEPS):
            if exits and number == STEPS // 2:
                self.now += 2
                self.begun = dict.fromkeys(LATER.values(), self.now - 1)
                self.readers = tuple(LATER.get(pid, pid) for pid in READERS)
                for pid in LATER.values():
                    self.log(pid, "access", LIBRARY, 0)  # it begins no call amid another's
            step = numbers.choices(
                [self.read, self.write, self.reclaim, self.unmount], [9, 2, 2, 1]
            )
            step[0]()

    def log(self, pid: int, event: str, file: File, index: int, pages: int = 1, does: str = ""):
        """Logs an event of a page, at the time of the last one perhaps."""
        self.now += self.numbers.choice([0, 0, 1, 7])
        row = {"ts": self.now, "pid": pid, "tid": pid, "cpu": pid % 2, "event": event}
        row |= {"dev": file[0], "ino": file[1], "index": index, "pages": pages, "does": does}
        row |= {"continues": False} if event == "access" else {}
        self.events.append(row)

    def read(self) -> None:
        pid, file = self.numbers.choice(self.readers), self.numbers.choice(FILES)
        first = self.numbers.randrange(SIZE)
        last = min(first + self.numbers.randrange(5), SIZE - 1)
        for page in range(first, last + 1):
            if page not in self.cached[file]:
                self.log(pid, "sync_read_ahead", file, page)
                self.log(pid, "read_ahead", file, page)
                self.log(pid, "add", file, page, does="read")
                self.cached[file].add(page)
        self.log(pid, "access", file, first, last - first + 1)

    def write(self) -> None:
        pid, file = self.numbers.choice(self.readers), self.numbers.choice(FILES)
        page = self.numbers.randrange(SIZE)
        if page not in self.cached[file]:
            self.log(pid, "add", file, page, does="write")
            self.cached[file].add(page)

    def delete(self, pid: int, file: File, page: int) -> None:
        self.log(pid, "delete", file, page)
        self.cached[file].discard(page)

    def mark(self, pid: int, event: str) -> None:
        """Logs an event of reclaim, at a time that no other event has."""
        self.now += 2
        self.events.append({"ts": self.now - 1, "pid": pid, "tid": pid, "event": event})

    def reclaim(self, but: str = "", pid: int | None = None) -> None:
        """A thread of the kernel takes some pages, or a process that is short of memory does."""
        pid = pid or self.numbers.choice((*KSWAPD, *self.readers, UMOUNT))
        kind = self.numbers.choice(["direct", "memcg"])
        if pid not in KSWAPD:
            self.mark(pid, f"{kind}_begin")
        for file in self.numbers.sample(FILES, 3):
            for page in sorted(self.cached[file]) if file[0] != but else ():
                if self.numbers.random() < 0.4:
                    self.delete(pid, file, page)
        if pid not in KSWAPD:
            self.mark(pid, f"{kind}_end")

    def unmount(self) -> None:
        """All pages of a file system leave, file by file; others reclaim pages meanwhile."""
        dev = self.numbers.choice(DEVICES)
        for file in FILES:
            for page in sorted(self.cached[file]) if file[0] == dev else ():
                self.delete(UMOUNT, file, page)
                if self.numbers.random() < 0.1:
                    self.reclaim(but=dev)

    def lose(self, share: float) -> list[Row]:
        """Leaves out events of reclaim; returns the gaps."""
        lost = [row for row in self.events if "dev" not in row and self.numbers.random() < share]
        self.events = [row for row in self.events if not any(row is one for one in lost)]
        gap = {"stream": "ftrace-machine-cpu0", "cpu": 0, "cause": "buffer overrun", "count": 1}
        return [gap | {"from": row["ts"], "to": row["ts"]} for row in lost]


class Counted:
    """Counts pages event by event."""

    def __init__(self, events: list[Row]) -> None:
        self.files: dict[tuple[File, Owner], Counter[str]] = defaultdict(Counter)
        self.evictions: Counter[tuple[str | None, str]] = Counter()
        """Evicted pages, by the target that used the file last, and who evicted them."""
        self.user: dict[File, Owner] = {}
        self.gone: dict[tuple[File, int], int] = {}
        """Evictions so far, at the eviction of each page that has not returned."""
        self.own: dict[int, set[int]] = defaultdict(set)
        """Pages that each thread has brought in for its read."""
        self.reclaiming: set[int] = set()
        for row in events:
            self.count(row)

    def count(self, row: Row) -> None:
        pid, event = row["pid"], row["event"]
        if "dev" not in row:
            (self.reclaiming.add if event.endswith("begin") else self.reclaiming.discard)(pid)
            return
        file, page = (row["dev"], row["ino"]), row["index"]
        whose = PROCESSES[pid]["target"], PROCESSES[pid].get("container_id")
        match event:
            case "add":
                self.user[file] = whose
                gone = self.gone.pop((file, page), None)
                read = row["does"] == "read"
                self.files[file, whose]["read" if read else "written"] += 1
                if read:
                    self.own[pid].add(page)
                    if gone is not None:
                        distance = sum(self.evictions.values()) - gone
                        self.files[file, whose].update(refaulted=1, distance=distance)
            case "access":
                self.user[file] = whose
                missed = len(self.own.pop(pid, set()))
                self.files[file, whose].update(accessed=row["pages"], missed=missed)
            case "delete":
                user = self.user[file]
                if pid in KSWAPD or pid in self.reclaiming:
                    self.files[file, user]["evicted"] += 1
                    mine = PROCESSES[pid]["target"]
                    by = "itself" if mine and mine == user[0] else mine or EVICTERS[pid]
                    self.evictions[user[0], by] += 1
                    self.gone[file, page] = sum(self.evictions.values())
                else:
                    self.files[file, user]["removed"] += 1

    @property
    def rows(self) -> dict[Any, Row]:
        counts = {key: {name: count[name] for name in SUMS} for key, count in self.files.items()}
        return {key: row for key, row in counts.items() if any(row.values())}


def told(machine: Machine, loss: list[Row]) -> tuple[dict[Any, Row], dict[Any, int]]:
    """Returns what the view `reads` and the table of evictions tell."""
    tables: dict[str, list[Row]] = {"page_cache": [], "reclaim": [], "loss": loss}
    for row in machine.events:
        columns = {name: value for name, value in row.items() if name != "does"}
        tables["page_cache" if "dev" in row else "reclaim"].append(columns)
    tables["processes"] = [
        {"pid": pid, "tid": pid, "role": "target" if one["target"] else "other", "ppid": 1}
        | {"start_ns": machine.begun.get(pid)}
        | one
        for pid, one in PROCESSES.items()
        if pid not in LATER.values() or pid in machine.begun
    ]
    first = {later: pid for pid, later in LATER.items()}
    for rows in tables.values():
        for row in rows:
            if row.get("pid") in first:
                row |= dict.fromkeys(("pid", "tid"), first[row["pid"]])
    size = {"size": 4096 * SIZE, "path": "/f"}
    tables["files"] = [{"dev": dev, "ino": ino} | size for dev, ino in [*FILES, LIBRARY]]
    counts = {"events": len(loss), "windows": len(loss), "unknown": 0, "others": 0}
    return answer_of(both, tables, targets=TARGETS, loss=counts)


def both(trace: Trace) -> tuple[dict[Any, Row], dict[Any, int]]:
    READS.make(trace)
    found = {}
    names = ", ".join(SUMS[:-1])
    for dev, ino, target, container, mean, *row in trace.rows(
        f"SELECT dev, ino, target, container, refault_distance, {names} FROM reads"
    ):
        counts = dict(zip(SUMS, row, strict=False))
        counts["distance"] = round((mean or 0) * counts["refaulted"])
        if any(counts.values()):
            found[(dev, ino), (target, container)] = counts
    table = EVICTIONS.of(trace)
    targets = table["target"].astype(object).where(table["target"].notna(), None)
    pages = (round(MIB * one) for one in table["evicted_mib"])
    return found, dict(zip(zip(targets, table["evicter"], strict=True), pages, strict=True))


def test_pages_of_an_unmount_are_removed_and_those_of_reclaim_evicted():
    for seed in seeds(STREAMS):
        machine = Machine(Random(seed), exits=seed % 2 == 0)
        counted = Counted(machine.events)
        assert any(one["removed"] and one["evicted"] for one in counted.rows.values())
        reads, evictions = told(machine, [])
        assert reads == counted.rows
        assert evictions == counted.evictions


def test_an_unmount_whose_reclaim_was_recorded_in_part_is_told_as_documented():
    for seed in seeds(STREAMS):
        machine = Machine(Random(100 + seed), exits=False)
        loss = machine.lose(0.15)
        counted = Counted(machine.events)
        reads, evictions = told(machine, loss)
        assert reads == counted.rows
        assert evictions == counted.evictions
