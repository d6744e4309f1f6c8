"""Commits of a journal drawn at random, beside neighbours that dirty files and a flusher."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.oracles.threads import I_DIRTY_PAGES, WHOLE

SECOND = 10**9
AT, FAR = 1000, 5000
"""The sectors at which the partitions of a disk begin."""
INODES = (11, 12, 13)
"""Their numbers on each file system."""
PAGES = 4
SECTORS = 8
"""Sectors of a page."""
JOB, ALONE, TENANT, INSIDE, ALSO_INSIDE, ENDED, HEIR, JOURNAL, FLUSHER = range(9)
"""Processes of a case, by their distance from its first number."""
SLEEPERS = (10, 11)
"""The threads of the job that wait for commits."""
NUMBERS = 20
"""Thread numbers in each case."""
TABLES = (
    *("processes", "syscalls", "off_cpu", "journal", "block", "file_writes", "dirty"),
    *("inode_writeback", "writeback", "loss"),
)

Row = dict[str, Any]
File = tuple[str, int]
"""A file system and an inode."""


class Case:
    """A disk with one or two file systems, another disk, and the threads that write to them.

    The events of threads have times of their own, except dirtyings that follow one another. Issues
    and completions of requests may have the time of any event.
    """

    def __init__(self, case: int, numbers: random.Random) -> None:
        self.case, self.numbers, self.base = case, numbers, NUMBERS * (case + 1)
        self.now, self.last = (case + 1) * SECOND, ""
        self.disk, self.elsewhere = f"8:{32 * case}", f"8:{32 * case + 16}"
        self.manifest: dict[str, list[Row]] = {"disks": [], "mounts": [], "btrfs": []}
        self.first: dict[str, int] = {}
        """The first sector of each file system."""
        self.draw_disks()
        self.volumes = list(self.first)
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.dirtied: set[File] = set()
        self.unseen = {
            (fs, ino) for fs in self.volumes for ino in INODES if numbers.random() < 0.15
        }
        """Files whose dirtying was not recorded."""
        self.lives = [JOB, ALONE, TENANT, INSIDE, ALSO_INSIDE, ENDED]
        """The processes that may dirty files."""

    def draw_disks(self) -> None:
        disks = self.manifest["disks"]
        for dev in (self.disk, self.elsewhere):
            disks.append({"dev": dev, "name": f"sd{dev}", "bytes": 512 * 2 * FAR})
        layout = self.numbers.choice(["whole", "one", "two", "two"])
        if layout == "whole":
            self.first[self.disk] = 0
        else:
            for number, start in ((1, AT), (2, FAR))[: 1 if layout == "one" else 2]:
                dev = f"8:{32 * self.case + number}"
                part = {"dev": dev, "bytes": 512 * (FAR - AT), "partition_of": self.disk}
                disks.append(part | {"start": start})
                self.first[dev] = start
        self.first[self.elsewhere] = 0
        for dev in self.first:
            mount = {"dev": dev, "path": f"/{dev}", "source": "x", "type": "ext4"}
            self.manifest["mounts"].append(mount)

    def disk_of(self, fs: str) -> str:
        return self.elsewhere if fs == self.elsewhere else self.disk

    def run(self) -> None:
        for at, comm, role, target, container in (
            (JOB, "job", "target", "a", None),
            (ALONE, "alone", "other", None, None),
            (TENANT, "tenant", "target", "b", "c2"),
            (INSIDE, "inside", "other", None, "c1"),
            (ALSO_INSIDE, "also", "other", None, "c1"),
            (ENDED, "ended", "other", None, "c3"),
            (JOURNAL, "jbd2", "journal", None, None),
            (FLUSHER, "flusher", "flusher", None, None),
        ):
            self.process(at, comm, role, target, container)
        for at in SLEEPERS:
            self.process(JOB, f"job{at}", "target", "a", None, at)
        self.dirty(self.numbers.randrange(1, 7))
        if self.numbers.random() < 0.5:
            self.replace()
        for number in range(self.numbers.choice([1, 1, 2, 3])):
            self.commit(number)
            self.dirty(self.numbers.randrange(4))

    def process(
        self, at: int, comm: str, role: str, target: str | None, container: str | None, tid: int = 0
    ) -> Row:
        row = {"pid": self.base + at, "tid": self.base + (tid or at), "comm": comm, "role": role}
        row |= {"ppid": 2 if at in (JOURNAL, FLUSHER) else 1, "target": target}
        row |= {"container_id": container, "start_ns": self.now - 1, "end_ns": None}
        self.tables["processes"].append(row)
        return row

    def replace(self) -> None:
        """A process ends, and another one gets its number."""
        ended = next(p for p in self.tables["processes"] if p["pid"] == self.base + ENDED)
        self.now += 5
        ended["end_ns"] = self.now
        self.lives.remove(ENDED)
        if self.numbers.random() < 0.7:
            self.now += 5
            self.process(HEIR, "heir", "other", None, None)
            self.lives.append(HEIR)
        self.now, self.last = self.now + 5, ""

    def log(self, table: str, at: int, event: str, **more: Any) -> None:
        """Logs an event of a thread. Only dirtyings that follow one another may have one time."""
        self.now += self.numbers.choice([0, 1, 4]) if self.last == table == "dirty" else 2
        self.last = table
        pid = self.base + (JOB if at in SLEEPERS else at)
        row = {"ts": self.now, "event": event, "pid": pid, "tid": self.base + at}
        self.tables[table].append(row | more)

    def dirty(self, times: int) -> None:
        """Processes dirty pages of files, most files always by the same ones."""
        for _ in range(times):
            fs, ino = self.numbers.choice(self.volumes), self.numbers.choice(INODES)
            at = self.lives[(ino + self.case) % len(self.lives)]
            if self.numbers.random() < 0.3:
                at = self.numbers.choice(self.lives)
            self.dirtied.add((fs, ino))
            if (fs, ino) not in self.unseen:
                more = {"dev": self.disk_of(fs), "ino": ino}
                page = self.numbers.randrange(PAGES)
                self.log("dirty", at, "dirty_folio", index=page, **more)
                self.log("dirty", at, "mark_inode_dirty", flags=I_DIRTY_PAGES, **more)

    # A commit, and what happens meanwhile

    def commit(self, number: int) -> None:
        """Threads take turns at random while the journal commits; some of the job's wait for it."""
        sleepers = [at for at in SLEEPERS if self.numbers.random() < 0.8]
        asleep = {}
        tasks = [self.journal(number), self.flusher(), self.neighbours()]
        while tasks:
            task = tasks[0] if self.numbers.random() < 0.4 else self.numbers.choice(tasks)
            if next(task, "over") == "over":
                tasks.remove(task)
            elif sleepers and self.numbers.random() < 0.2:
                at = sleepers.pop()
                asleep[at] = self.calls(at)
        self.now += 2
        for at, (called, slept) in asleep.items():
            woken, delay = self.now, self.numbers.choice([0, 1, 5])
            end = woken + delay
            journal = self.base + JOURNAL
            self.tables["off_cpu"].append(
                {"ts": slept, "dur_ns": end - slept, "pid": self.base + JOB, "tid": self.base + at,
                 "state": "D", "wake_ns": woken, "waker_tid": journal, "waker_pid": journal,
                 "interrupt": False, "run_delay_ns": delay}
            )  # fmt: skip
            self.tables["syscalls"].append(
                {"ts": called, "dur_ns": end + 1 - called, "pid": self.base + JOB,
                 "tid": self.base + at, "name": "fsync"}
            )  # fmt: skip
            self.now += 8
        self.now, self.last = self.now + 2, ""

    def calls(self, at: int) -> tuple[int, int]:
        """A thread of the job calls fsync, may write a file, and sleeps; returns both times."""
        self.now, self.last = self.now + 2, ""
        called, file = self.now, (self.volumes[0], self.numbers.choice(INODES))
        self.log("file_writes", at, "fsync_start", dev=file[0], ino=file[1])
        if self.numbers.random() < 0.5:
            for _ in self.write(at, file, sync_mode=1):
                pass
        self.now, self.last = self.now + 2, ""
        return called, self.now

    def journal(self, number: int) -> Iterator[str]:
        """The steps of a commit, and what the journal's thread writes in them."""
        fs = self.volumes[0]
        more = {"dev": fs, "transaction_id": number}
        self.log("journal", JOURNAL, "commit_start", **more)
        yield ""
        self.log("journal", JOURNAL, "commit_flushing", **more)
        yield ""
        for file in sorted(file for file in self.dirtied if file[0] == fs):
            if self.numbers.random() < 0.5:
                yield from self.write(JOURNAL, file, sync_mode=1)
        self.log("journal", JOURNAL, "commit_logging", **more)
        yield ""
        for _ in range(self.numbers.choice([0, 1, 2])):
            self.bio(JOURNAL, fs, self.numbers.randrange(400, 440), rwbs="WSM")
            yield ""
        if self.numbers.random() < 0.9:
            self.bio(JOURNAL, fs, 440 + number, rwbs="FWFSM")
            yield ""
        if self.numbers.random() < 0.95:
            self.log("journal", JOURNAL, "commit_end", **more)

    def flusher(self) -> Iterator[str]:
        """The flusher writes some dirty files of all disks."""
        for file in sorted(self.dirtied):
            if self.numbers.random() < 0.5:
                continue
            bdi = self.disk_of(file[0])
            more = {"dev": bdi, "ino": file[1], "age": 1}
            self.log("inode_writeback", FLUSHER, "start", state=7, **more)
            yield ""
            yield from self.write(FLUSHER, file, sync_mode=0)
            left = self.numbers.random() < 0.3
            self.log("inode_writeback", FLUSHER, "end", state=I_DIRTY_PAGES if left else 0, **more)
            yield ""

    def neighbours(self) -> Iterator[str]:
        for _ in range(self.numbers.choice([0, 1, 3])):
            self.dirty(1)
            yield ""

    # Bios and requests

    def write(self, at: int, file: File, sync_mode: int) -> Iterator[str]:
        """A thread writes pages of a file; the file system tells of it."""
        fs, ino = file
        whole = {"offset": 0, "last": WHOLE, "nr_to_write": WHOLE, "sync_mode": sync_mode}
        if self.numbers.random() < 0.3:  # some pages only
            whole["last"] = 4096 * PAGES - 1
        self.log("file_writes", at, "writepages_start", dev=fs, ino=ino, **whole)
        for _ in range(self.numbers.randrange(4)):
            first = self.numbers.randrange(PAGES)
            length = SECTORS * self.numbers.choice([1, 1, 2, PAGES - first])
            rwbs = "WM" if at == FLUSHER and self.numbers.random() < 0.1 else "WS"
            self.bio(at, fs, SECTORS * (PAGES * ino + first), length, rwbs)
            if at not in SLEEPERS:
                yield ""
        self.log("file_writes", at, "writepages_end", dev=fs, ino=ino)

    def bio(self, at: int, fs: str, sector: int, length: int = SECTORS, rwbs: str = "WS") -> None:
        """A bio, and the requests that it becomes."""
        dev, sector = self.disk_of(fs), self.first[fs] + sector
        place = {"dev": dev, "sector": sector, "nr_sector": length, "rwbs": rwbs}
        self.log("block", at, "bio_queue", comm="x", **place)
        pieces = [(sector, length)]
        if length > SECTORS and self.numbers.random() < 0.3:  # the device takes it in two pieces
            pieces = [(sector, SECTORS), (sector + SECTORS, length - SECTORS)]
        for first, count in pieces:
            issued = self.now + self.numbers.choice([1, 1, 5, 20])
            took = self.numbers.choice([1, 2, 10, 40])
            request = {"dev": dev, "sector": first, "nr_sector": count, "rwbs": rwbs}
            self.at(issued, "issue", request)
            if self.numbers.random() < 0.9:
                self.at(issued + took, "complete", request)

    def at(self, ts: int, event: str, request: Row) -> None:
        by = {"pid": self.base + FLUSHER, "tid": self.base + FLUSHER, "comm": "x"}
        self.tables["block"].append({"ts": ts, "event": event} | by | request)

    # The tables

    def told(self) -> dict[str, list[Row]]:
        """Returns the tables with each process under a number of its own, in order of time."""
        return {
            name: sorted(rows, key=lambda row: row.get("ts", 0) + row.get("dur_ns", 0))
            for name, rows in self.tables.items()
        }

    def as_numbered(self, row: Row, *columns: str) -> Row:
        """Returns a row with the numbers that the kernel gave processes."""
        heir = {self.base + HEIR: self.base + ENDED}
        return row | {name: heir.get(row[name], row[name]) for name in columns if name in row}
