"""The view `flushes` and the naive one agree on write-backs drawn at random."""

import random

from analysis.views.flushes import FLUSHES
from tests.oracles.drawing import batches, grouped, rows_of_view
from tests.oracles.flushes import I_DIRTY_PAGES, WHOLE, flushes_of

DISKS = 100
"""Cases in a trace, each on a disk of its own, with threads of its own."""
SECOND = 10**9
COLUMNS = ("ts", "dev", "sector", "reason", "ino", "dirtier", "dirtiers", "target", "certainty")
TABLES = (
    "processes",
    "syscalls",
    "writeback",
    "inode_writeback",
    "file_writes",
    "dirty",
    "block",
    "loss",
)


class Disk:
    """A disk with two inodes, three processes that dirty them, a flusher and a journal."""

    def __init__(self, case: int, numbers: random.Random) -> None:
        self.numbers, self.now, self.last = numbers, (case + 1) * SECOND, ""
        self.dev, base = f"8:{16 * case}", 100 + 10 * case
        self.jobs, self.flusher, self.journal = (base, base + 1, base + 2), base + 3, base + 4
        self.tables: dict[str, list] = {name: [] for name in TABLES}
        for pid, role, target in (
            (base, "target", "a"),
            (base + 1, "target", "b"),
            (base + 2, "other", None),
            (self.flusher, "flusher", None),
            (self.journal, "journal", None),
        ):
            row = {"pid": pid, "tid": pid, "role": role, "target": target, "comm": role}
            self.tables["processes"].append(row)
        if case > DISKS // 2 and numbers.random() < 0.1:  # before anything of this case
            gap = {"stream": "machine-cpu0", "cpu": 0, "cause": "buffer overrun"}
            self.tables["loss"].append(gap | {"from": self.now - 9, "to": self.now - 1})
        self.dirty_since: dict[int, int] = {}
        self.dirty_pages: set[int] = set()

    def log(self, table: str, event: str, tid: int, **more) -> None:
        """Log an event. Only events of one table have one time: rows tell their order."""
        self.now += self.numbers.choice([0, 1, 3]) if self.last == table else 1
        self.last = table
        row = {"ts": self.now, "event": event, "pid": tid, "tid": tid, "dev": self.dev} | more
        self.tables[table].append(row)

    def dirty(self, but: int = 0) -> None:
        pid = self.numbers.choice([job for job in self.jobs if job != but])
        ino = self.numbers.choice([11, 12])
        if self.numbers.random() < 0.7:
            self.log("dirty", "dirty_folio", pid, ino=ino, index=self.numbers.randrange(3))
            self.dirty_since.setdefault(ino, self.now)
            self.log("dirty", "mark_inode_dirty", pid, ino=ino, flags=I_DIRTY_PAGES)
            self.dirty_pages.add(ino)
        else:
            flags = self.numbers.choice([1, 2, 7])
            self.log("dirty", "mark_inode_dirty", pid, ino=ino, flags=flags)
        self.dirty_since.setdefault(ino, self.now)

    def bio(self, tid: int, rwbs: str = "W") -> None:
        role = {self.flusher: "kworker/u4:1", self.journal: "jbd2/sda-8"}.get(tid, "job")
        sector = 8 * self.numbers.randrange(9)
        self.log("block", "bio_queue", tid, sector=sector, nr_sector=8, rwbs=rwbs, comm=role)

    def bios(self, tid: int, inode: int) -> None:
        for _ in range(self.numbers.randrange(3) if inode in self.dirty_pages else 0):
            self.bio(tid)
            if self.numbers.random() < 0.2:
                self.dirty(but=tid)

    def flush(self) -> None:
        reason = self.numbers.choice(["background", "periodic", "sync"])
        self.log("writeback", "start", self.flusher, reason=reason, bdi=self.dev)
        for ino in self.numbers.sample([11, 12], self.numbers.randrange(3)):
            if ino not in self.dirty_since:
                continue
            self.log("inode_writeback", "start", self.flusher, ino=ino, state=7)
            age = self.now - self.dirty_since[ino]
            self.tables["inode_writeback"][-1]["age"] = age
            before = len(self.tables["dirty"])
            self.bios(self.flusher, ino)
            again = any(row["ino"] == ino for row in self.tables["dirty"][before:])
            left = again or self.numbers.random() < 0.3
            state = I_DIRTY_PAGES if left and ino in self.dirty_pages else 0
            self.log("inode_writeback", "end", self.flusher, ino=ino, age=age, state=state)
            if not left:
                self.dirty_pages.discard(ino)
                self.dirty_since.pop(ino, None)
        self.log("writeback", "written", self.flusher, reason=reason, bdi=self.dev)

    def fsync(self) -> None:
        pid, ino = self.numbers.choice(self.jobs), self.numbers.choice([11, 12])
        self.now += 1
        begun = self.now
        self.last = ""
        self.log("file_writes", "fsync_start", pid, ino=ino)
        whole = {"offset": 0, "last": WHOLE, "sync_mode": 1, "nr_to_write": WHOLE}
        self.log("file_writes", "writepages_start", pid, ino=ino, **whole)
        before = len(self.tables["dirty"])
        self.bios(pid, ino)
        self.log("file_writes", "writepages_end", pid, ino=ino)
        self.log("file_writes", "fsync_end", pid, ino=ino)
        if all(row["ino"] != ino for row in self.tables["dirty"][before:]):
            self.dirty_pages.discard(ino)
            self.dirty_since.pop(ino, None)
        self.now += 1
        call = {"ts": begun, "pid": pid, "tid": pid, "name": "fsync", "nr": 74, "ret": 0}
        self.tables["syscalls"].append(call | {"dur_ns": self.now - begun})

    def run(self) -> dict[str, list]:
        for _ in range(self.numbers.choice([0, 1, 8, 12])):
            what = self.numbers.random()
            if what < 0.5:
                self.dirty()
            elif what < 0.75:
                self.flush()
            elif what < 0.9:
                self.fsync()
            elif what < 0.95:
                self.bio(self.journal, "WS")
            else:
                ino = self.numbers.choice([11, 12])
                self.log("file_writes", "free_inode", self.jobs[0], ino=ino)
                self.dirty_pages.discard(ino)
                self.dirty_since.pop(ino, None)
        return self.tables


def compared(cases: list[random.Random]) -> tuple[dict, dict, list[dict[str, list]]]:
    """Rows of the view and of the oracle by disk, and the tables of each disk."""
    drawn = [Disk(case, numbers).run() for case, numbers in enumerate(cases)]
    tables = {name: [row for one in drawn for row in one[name]] for name in TABLES}
    disks = [{"dev": f"8:{16 * n}", "name": f"sd{n}"} for n in range(len(cases))]
    rows = rows_of_view(FLUSHES, tables, disks=disks)
    found = [{name: row[name] for name in COLUMNS} for row in rows]
    expected = flushes_of(tables)
    return grouped(found, lambda r: r["dev"]), grouped(expected, lambda r: r["dev"]), drawn


def test_the_flushes_of_disks_are_those_of_the_oracle():
    for cases in batches(DISKS):
        found, expected, _ = compared(cases)
        assert found == expected
