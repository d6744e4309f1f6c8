"""Writes drawn at random: processes dirty files; flushers, fsyncs, closes and a journal write."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.oracles.drawn_volumes import Volume, draw_volumes
from tests.oracles.threads import I_DIRTY_PAGES, WHOLE

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
INODES = (11, 12)
"""Their numbers on each file system."""
NUMBERS = {"fsync": 74, "close": 3, "pwrite64": 18, "sync": 162}
EVERYTHING = {"offset": 0, "last": WHOLE, "nr_to_write": WHOLE}
File = tuple[int, int]
"""A file system, by its number in the case, and an inode."""


class Case:
    """File systems on a disk, and one or two tracks of threads that write to them at one time."""

    def __init__(self, case: int, numbers: random.Random, gaps: bool) -> None:
        """Cases follow one another in time. `gaps`: events may be lost."""
        volumes, self.manifest = draw_volumes(case, numbers)
        tracks = [
            Track(case, numbers, gaps, volumes, track) for track in range(numbers.choice([1, 2]))
        ]
        for track in tracks:
            track.run()
        self.tables: dict[str, list] = {}
        for name in TABLES:
            rows = [row for track in tracks for row in track.tables[name]]
            self.tables[name] = sorted(rows, key=lambda row: row.get("ts", 0))
        self.number = {pid: number for track in tracks for pid, number in track.number.items()}

    def with_numbers(self) -> dict[str, list]:
        """The tables as the kernel would tell them: the numbers of dead threads are used again."""
        return {
            name: [
                row | {key: self.number[row[key]] for key in ("pid", "tid") if key in row}
                for row in rows
            ]
            for name, rows in self.tables.items()
        }


class Track:
    """Threads that write, one at a time.

    Three processes dirty files; the system calls of two of them are recorded. A flusher, a journal
    and two workers of btrfs write. Processes may exit, and others get their numbers. So do all
    threads of every second case.
    """

    def __init__(
        self, case: int, numbers: random.Random, gaps: bool, volumes: list[Volume], track: int
    ) -> None:
        self.volumes = volumes
        self.numbers, self.now, self.last = numbers, (case + 1) * SECOND + track, ""
        base = 100 + 20 * case + 10 * track
        self.jobs, self.flusher, self.journal = (base, base + 1, base + 2), base + 3, base + 4
        self.workers, self.loop = (base + 5, base + 6), base + 7
        self.tables: dict[str, list] = {name: [] for name in TABLES}
        for pid, role, target, ppid in (
            (base, "target", "a", 1),
            (base + 1, "target", "b", 1),
            (base + 2, "other", None, 1),
            (self.flusher, "flusher", None, 2),
            (self.journal, "journal", None, 2),
            *((worker, "other", None, 2) for worker in (*self.workers, self.loop)),
        ):
            row = {"pid": pid, "tid": pid, "role": role, "target": target, "ppid": ppid}
            start = self.now - 1 if case % 2 else None
            row |= {"comm": f"{role}{pid}", "container_id": numbers.choice([None, "c", "d"])}
            self.tables["processes"].append(row | {"start_ns": start})
        self.number = {base + n: base + n - 20 * (case % 2) for n in range(8)}
        """The number of each thread."""
        self.recorded, self.unused = {base, base + 1}, [base + 8, base + 9]
        self.gaps = 0.04 if gaps else 0
        self.dirty_since: dict[File, int] = {}
        self.dirty_pages: set[File] = set()
        self.ever_clean: set[File] = set()
        self.tasks: list[Callable[[int], None]] = []
        """Tasks that wait for a worker."""
        self.addresses = [base + n for n in range(3)]

    def log(self, table: str, event: str, tid: int, **more) -> None:
        """Log an event. Only events of one table have one time: rows tell their order."""
        self.now += self.numbers.choice([0, 2, 6]) if self.last == table else 2
        self.last = table
        self.tables[table].append({"ts": self.now, "event": event, "pid": tid, "tid": tid} | more)

    def tick(self) -> int:
        self.now, self.last = self.now + 2, ""
        return self.now

    def of(self, file: File) -> Volume:
        return self.volumes[file[0]]

    def log_bdi(self, table: str, event: str, tid: int, file: File, **more) -> None:
        """Log an event of write-back, which names the bdi."""
        self.log(table, event, tid, dev=self.of(file).bdi, ino=file[1], **more)

    def log_file(self, event: str, tid: int, file: File, **more) -> None:
        """Log an event of a file system, which has names of its own."""
        volume = self.of(file)
        if volume.roots:
            more["root"] = self.numbers.choice(volume.roots)
        self.log("file_writes", event, tid, ino=file[1], **volume.named, **more)

    def file(self, *kinds: str) -> File:
        """A file of any file system, or of one of these kinds."""
        found = [n for n, each in enumerate(self.volumes) if not kinds or each.kind in kinds]
        return self.numbers.choice(found), self.numbers.choice(INODES)

    def dirty(self, but: int = 0) -> None:
        pids = [pid for pid in (*self.jobs, self.jobs[0], self.loop) if pid != but]
        pid, file = self.numbers.choice(pids), self.file()
        if self.numbers.random() < 0.7:
            self.log_bdi("dirty", "dirty_folio", pid, file, index=self.numbers.randrange(3))
            self.dirty_since.setdefault(file, self.now)
            self.log_bdi("dirty", "mark_inode_dirty", pid, file, flags=I_DIRTY_PAGES)
            self.dirty_pages.add(file)
        else:
            flags = self.numbers.choice([1, 2, 7])
            self.log_bdi("dirty", "mark_inode_dirty", pid, file, flags=flags)
        self.dirty_since.setdefault(file, self.now)

    def bio(self, tid: int, volume: Volume, rwbs: str = "W") -> None:
        dev, first = self.numbers.choice(volume.places)
        sector = first + 8 * self.numbers.randrange(9)
        more = {"dev": dev, "sector": sector, "nr_sector": 8, "rwbs": rwbs, "comm": "x"}
        self.log("block", "bio_queue", tid, **more)

    def write_out(self, tid: int, file: File, **asked) -> bool:
        """Write some pages of a file. Others dirty files meanwhile: True if this one."""
        volume, before = self.of(file), len(self.tables["dirty"])
        tells = volume.kind == "ext4" and (bool(asked) or self.numbers.random() < 0.5)
        if tells:
            self.log_file("writepages_start", tid, file, **(EVERYTHING | {"sync_mode": 0} | asked))
        for _ in range(self.numbers.randrange(3) if file in self.dirty_pages else 0):
            if volume.kind == "xfs":
                self.log_file("map_blocks", tid, file)
            if volume.kind == "btrfs":
                self.write_btrfs(tid, file)
            else:
                self.bio(tid, volume, self.numbers.choice(["W", "W", "WS"]))
            if self.numbers.random() < 0.1:
                self.bio(tid, volume, "WM")
            if self.numbers.random() < 0.2:
                self.dirty(but=tid)
            if tells and self.numbers.random() < 0.2:
                self.log_bdi("dirty", "mark_inode_dirty", tid, file, flags=2)
        if tells:
            self.log_file("writepages_end", tid, file)
        return any(row["ino"] == file[1] for row in self.tables["dirty"][before:])

    def write_btrfs(self, tid: int, file: File) -> None:
        """Write an extent, or have a worker do so: later, and perhaps by another worker."""
        volume, how = self.of(file), self.numbers.random()
        if how < 0.8:
            self.log_file("ordered_extent", tid, file)
        if how < 0.4:
            self.bio(tid, volume)
            return

        def sum_up(worker: int) -> None:
            for _ in range(self.numbers.randrange(3)):
                self.bio(worker, volume)

        def compress(worker: int) -> None:
            if how > 0.9:
                self.log_file("ordered_extent", worker, file)
            if self.numbers.random() < 0.5:
                self.queue(worker, volume, sum_up)
            else:
                sum_up(worker)

        self.queue(tid, volume, compress if how > 0.7 else sum_up)

    def queue(self, tid: int, volume: Volume, does: Callable[[int], None]) -> None:
        if not self.addresses:
            does(tid)
            return
        work = self.addresses.pop()
        if self.numbers.random() < 0.95:
            self.log("file_writes", "work_queued", tid, fsid=volume.named["fsid"], work=work)

        def run(worker: int) -> None:
            named = {"fsid": volume.named["fsid"], "work": work}
            self.log("file_writes", "work_start", worker, **named)
            does(worker)
            self.log("file_writes", "work_end", worker, **named)
            self.addresses.append(work)

        self.tasks.append(run)

    def work(self) -> None:
        """A worker runs a task that waits."""
        if self.tasks:
            self.tasks.pop(0)(self.numbers.choice(self.workers))

    def cleaned(self, file: File) -> None:
        self.ever_clean.add(file)
        self.dirty_pages.discard(file)
        self.dirty_since.pop(file, None)

    def flush(self) -> None:
        bdi = self.numbers.choice(self.volumes).bdi
        reason = self.numbers.choice(["background", "periodic", "sync"])
        self.log("writeback", "start", self.flusher, reason=reason, bdi=bdi)
        files = [file for file in sorted(self.dirty_since) if self.of(file).bdi == bdi]
        for file in self.numbers.sample(files, self.numbers.randrange(min(3, len(files) + 1))):
            age = self.now + 2 - self.dirty_since[file]
            if file not in self.ever_clean and self.numbers.random() < 0.1:
                age = self.now  # since before the recording
            self.log_bdi("inode_writeback", "start", self.flusher, file, state=7, age=age)
            waits = {"sync_mode": 1} if self.numbers.random() < 0.2 else {}
            left = self.write_out(self.flusher, file, **waits) or self.numbers.random() < 0.3
            state = I_DIRTY_PAGES if left and file in self.dirty_pages else 0
            self.log_bdi("inode_writeback", "end", self.flusher, file, age=age, state=state)
            if not left:
                self.cleaned(file)
        self.log("writeback", "written", self.flusher, reason=reason, bdi=bdi)

    def call(self, pid: int, name: str, does: Callable[[], object]) -> None:
        """A system call; those of the targets are recorded."""
        begun = self.tick()
        does()
        if self.numbers.random() < 0.2:
            self.bio(self.journal, self.numbers.choice(self.volumes), "WS")
        row = {"ts": begun, "pid": pid, "tid": pid, "name": name, "nr": NUMBERS[name], "ret": 0}
        if pid in self.recorded:
            self.tables["syscalls"].append(row | {"dur_ns": self.tick() - begun})

    def fsync(self) -> None:
        pid, file = self.numbers.choice(self.jobs), self.file()
        kind = self.of(file).kind

        def does() -> None:
            self.log_file("fsync_start" if kind == "ext4" else "fsync", pid, file)
            again = self.write_out(pid, file, sync_mode=1)
            if kind == "xfs" and self.numbers.random() < 0.5:
                self.log("file_writes", "log", pid, **self.of(file).named)
                self.bio(pid, self.of(file), "FWFSM")
            if kind == "btrfs" and self.numbers.random() < 0.5:
                self.bio(pid, self.of(file), "WSM")
            if kind == "ext4" and self.numbers.random() < 0.2:
                self.commit(pid, file)
            if kind == "ext4":
                self.log_file("fsync_end", pid, file)
            if not again:
                self.cleaned(file)

        self.call(pid, self.numbers.choice(["fsync", "fsync", "pwrite64"]), does)

    def commit(self, pid: int, file: File) -> None:
        """A fast commit of ext4, which writes out files that it needs."""
        volume = self.of(file)
        self.log("file_writes", "fast_commit_start", pid, **volume.named)
        if self.numbers.random() < 0.5:
            self.write_out(pid, (file[0], self.numbers.choice(INODES)), sync_mode=1)
        self.bio(pid, volume, "WSM")
        self.log("file_writes", "fast_commit_end", pid, **volume.named)
        if self.numbers.random() < 0.5:
            self.bio(pid, volume, "WSM")

    def close(self) -> None:
        pid, file = self.numbers.choice(self.jobs), self.file()
        self.call(pid, "close", lambda: self.write_out(pid, file))

    def sync(self) -> None:
        pid = self.numbers.choice(self.jobs)
        self.call(pid, "sync", lambda: [self.flush(), self.bio(pid, self.volumes[0], "WS")])

    def write_directly(self) -> None:
        """A direct write; pages in its way are written out first. Other ones may end amid it."""
        pid, file, other = self.numbers.choice(self.jobs), self.file(), self.file()

        def log(event: str, file: File) -> None:
            self.log("file_writes", event, pid, dev=self.of(file).dev, ino=file[1])

        def does() -> None:
            log("direct_start", file)
            if self.numbers.random() < 0.4:
                self.write_out(pid, file, last=4095)
            for _ in range(self.numbers.randrange(3)):
                if self.of(file).kind == "btrfs" and self.numbers.random() < 0.5:
                    self.queue(pid, self.of(file), lambda worker: self.bio(worker, self.of(file)))
                else:
                    self.bio(pid, self.of(file))
                if other != file and self.numbers.random() < 0.2:
                    log("direct_end", other)
            log("direct_end", file)
            if self.numbers.random() < 0.2:
                self.bio(pid, self.of(file))

        self.call(pid, "pwrite64", does)

    def free(self) -> None:
        """A file is removed; the next one may have its number."""
        kinds = [each.kind for each in self.volumes if each.kind != "btrfs"]
        if kinds:
            file = self.file(*kinds)
            self.log_file("free_inode", self.numbers.choice(self.jobs), file)
            self.cleaned(file)

    def exit(self) -> None:
        """A process exits, and another one gets its number."""
        if not self.unused:
            return
        pid, new = self.numbers.choice(self.jobs), self.unused.pop()
        first, second, third = (new if job == pid else job for job in self.jobs)
        self.jobs = first, second, third
        if pid in self.recorded:
            row = {"ts": self.tick(), "pid": pid, "tid": pid, "name": "exit_group", "nr": 231}
            self.tables["syscalls"].append(row | {"dur_ns": None, "ret": None})
        target = self.numbers.choice(["a", "b", None])
        if target:
            self.recorded.add(new)
        row = {"pid": new, "tid": new, "role": "child" if target else "other", "target": target}
        row |= {"ppid": 1, "comm": f"sh{new}", "start_ns": self.tick()}
        self.tables["processes"].append(row)
        self.number[new] = self.number[pid]

    def lose(self) -> None:
        """Events are lost: before now, or for a while from now on."""
        scope = self.numbers.choice(["machine", "machine", "target"])
        gap = {"stream": f"ftrace-{scope}-cpu0", "cpu": 0, "cause": "buffer overrun"}
        begun = self.tick()
        self.now += 4
        since = None if self.numbers.random() < 0.02 else begun
        self.tables["loss"].append(gap | {"from": since, "to": self.now})
        if self.numbers.random() < 0.5:
            for _ in range(2):
                self.step()
            self.tables["loss"][-1]["to"] = self.tick()

    def step(self) -> None:
        what = self.numbers.random()
        if what < self.gaps:
            self.lose()
        elif what < 0.45:
            self.dirty()
        elif what < 0.65:
            self.flush()
        elif what < 0.75:
            self.fsync()
        elif what < 0.77:
            self.sync()
        elif what < 0.81:
            self.write_directly()
        elif what < 0.85:
            self.close()
        elif what < 0.9:
            self.work()
        elif what < 0.95:
            self.bio(self.journal, self.numbers.choice(self.volumes), "WS")
        elif what < 0.97:
            # Outside of system calls: a page fault that makes room in memory.
            self.bio(self.numbers.choice(self.jobs), self.numbers.choice(self.volumes))
        elif what < 0.98:
            self.free()
        else:
            self.exit()

    def run(self) -> None:
        for _ in range(self.numbers.choice([1, 8, 12, 16])):
            self.step()
        while self.tasks:
            self.work()
        for gap in self.tables["loss"]:
            self.leave_out(gap)

    def leave_out(self, gap: dict) -> None:
        """Leave out some events that a gap may have had."""
        for name in TABLES[2:-1] if "machine" in gap["stream"] else TABLES[1:2]:
            kept = [
                row
                for row in self.tables[name]
                if not (gap["from"] or 0) < row["ts"] < gap["to"] or self.numbers.random() < 0.5
            ]
            self.tables[name] = kept
