"""Disks drawn at random: processes dirty files, and a flusher, fsyncs and a journal write them."""

from __future__ import annotations

import random

from tests.oracles.flushes import I_DIRTY_PAGES, WHOLE

SECOND = 10**9
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
AT, FAR = 1000, 100_000
"""Where the partitions begin, in sectors."""
INODES = (11, 12)
"""Their numbers on each file system."""
File = tuple[str, int]
"""A file system's device, and an inode."""


class Disk:
    """A disk, the file systems on it, and the threads that write to them.

    The file systems lie on the disk itself, on one partition, or on two. Three processes dirty
    files; a flusher and a journal write, too.
    """

    def __init__(self, case: int, numbers: random.Random, gaps: bool) -> None:
        """Cases follow one another in time. `gaps`: events may be lost."""
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
        self.lay_out(case)
        if gaps and numbers.random() < 0.1:  # before anything of this case
            gap = {"stream": "machine-cpu0", "cpu": 0, "cause": "buffer overrun"}
            self.tables["loss"].append(gap | {"from": self.now - 9, "to": self.now - 1})
        self.dirty_since: dict[File, int] = {}
        self.dirty_pages: set[File] = set()

    def lay_out(self, case: int) -> None:
        """Draw what the manifest tells of the disk, and `starts`: where each file system begins."""
        disk = {"dev": self.dev, "name": f"sd{case}", "bytes": 512 * 10 * FAR}
        self.manifest: dict[str, list] = {"disks": [disk]}
        self.starts = {self.dev: 0}
        in_use = self.numbers.choice([0, 1, 1, 2])
        if in_use:
            places = ((f"8:{16 * case + 1}", AT, FAR - AT), (f"8:{16 * case + 2}", FAR, FAR))
            for dev, start, length in places:
                row = {"dev": dev, "bytes": 512 * length, "partition_of": self.dev, "start": start}
                self.manifest["disks"].append(row)
            used = self.numbers.sample(places, in_use)
            self.starts = {dev: start for dev, start, _ in used}
        mounts = [{"dev": dev, "path": f"/{dev}", "source": "x"} for dev in self.starts]
        self.manifest["mounts"] = [mount | {"type": "ext4"} for mount in mounts]

    def file(self) -> File:
        return self.numbers.choice(list(self.starts)), self.numbers.choice(INODES)

    def log(self, table: str, event: str, tid: int, **more) -> None:
        """Log an event. Only events of one table have one time: rows tell their order."""
        self.now += self.numbers.choice([0, 1, 3]) if self.last == table else 1
        self.last = table
        self.tables[table].append({"ts": self.now, "event": event, "pid": tid, "tid": tid} | more)

    def log_bdi(self, table: str, event: str, tid: int, file: File, **more) -> None:
        """Log an event of write-back, which names the disk."""
        self.log(table, event, tid, dev=self.dev, ino=file[1], **more)

    def log_file(self, event: str, tid: int, file: File, **more) -> None:
        """Log an event of a file system, which names what is mounted."""
        self.log("file_writes", event, tid, dev=file[0], ino=file[1], **more)

    def dirty(self, but: int = 0) -> None:
        pid, file = self.numbers.choice([job for job in self.jobs if job != but]), self.file()
        if self.numbers.random() < 0.7:
            self.log_bdi("dirty", "dirty_folio", pid, file, index=self.numbers.randrange(3))
            self.dirty_since.setdefault(file, self.now)
            self.log_bdi("dirty", "mark_inode_dirty", pid, file, flags=I_DIRTY_PAGES)
            self.dirty_pages.add(file)
        else:
            flags = self.numbers.choice([1, 2, 7])
            self.log_bdi("dirty", "mark_inode_dirty", pid, file, flags=flags)
        self.dirty_since.setdefault(file, self.now)

    def bio(self, tid: int, fs: str, rwbs: str = "W") -> None:
        comm = {self.flusher: "kworker/u4:1", self.journal: "jbd2/sda-8"}.get(tid, "job")
        sector = self.starts[fs] + 8 * self.numbers.randrange(9)
        more = {"dev": self.dev, "sector": sector, "nr_sector": 8, "rwbs": rwbs, "comm": comm}
        self.log("block", "bio_queue", tid, **more)

    def bios(self, tid: int, file: File) -> bool:
        """Write some pages of a file. Others dirty files meanwhile: True if this one."""
        before = len(self.tables["dirty"])
        for _ in range(self.numbers.randrange(3) if file in self.dirty_pages else 0):
            self.bio(tid, file[0])
            if self.numbers.random() < 0.2:
                self.dirty(but=tid)
        return any(row["ino"] == file[1] for row in self.tables["dirty"][before:])

    def cleaned(self, file: File) -> None:
        self.dirty_pages.discard(file)
        self.dirty_since.pop(file, None)

    def flush(self) -> None:
        reason = self.numbers.choice(["background", "periodic", "sync"])
        self.log("writeback", "start", self.flusher, reason=reason, bdi=self.dev)
        files = sorted(self.dirty_since)
        for file in self.numbers.sample(files, self.numbers.randrange(min(3, len(files) + 1))):
            self.log_bdi("inode_writeback", "start", self.flusher, file, state=7)
            age = self.now - self.dirty_since[file]
            self.tables["inode_writeback"][-1]["age"] = age
            left = self.bios(self.flusher, file) or self.numbers.random() < 0.3
            state = I_DIRTY_PAGES if left and file in self.dirty_pages else 0
            self.log_bdi("inode_writeback", "end", self.flusher, file, age=age, state=state)
            if not left:
                self.cleaned(file)
        self.log("writeback", "written", self.flusher, reason=reason, bdi=self.dev)

    def fsync(self) -> None:
        pid, file = self.numbers.choice(self.jobs), self.file()
        self.now += 1
        begun = self.now
        self.last = ""
        self.log_file("fsync_start", pid, file)
        whole = {"offset": 0, "last": WHOLE, "sync_mode": 1, "nr_to_write": WHOLE}
        self.log_file("writepages_start", pid, file, **whole)
        again = self.bios(pid, file)
        self.log_file("writepages_end", pid, file)
        self.log_file("fsync_end", pid, file)
        if not again:
            self.cleaned(file)
        self.now += 1
        call = {"ts": begun, "pid": pid, "tid": pid, "name": "fsync", "nr": 74, "ret": 0}
        self.tables["syscalls"].append(call | {"dur_ns": self.now - begun})

    def run(self) -> Disk:
        for _ in range(self.numbers.choice([0, 1, 8, 12])):
            what = self.numbers.random()
            if what < 0.5:
                self.dirty()
            elif what < 0.75:
                self.flush()
            elif what < 0.9:
                self.fsync()
            elif what < 0.95:
                self.bio(self.journal, self.file()[0], "WS")
            else:
                file = self.file()
                self.log_file("free_inode", self.jobs[0], file)
                self.cleaned(file)
        return self
