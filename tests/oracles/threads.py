"""The state of threads by their last events: brackets, system calls, words of file systems.

It is written from the documentation (docs/architecture.md, docstrings), not from the views' code.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass

from tests.oracles.dirtied import Inodes, Place, Row, Volumes

I_DIRTY_PAGES = 4
WHOLE = (1 << 63) - 1
SYNC_FILE, SYNC_ALL = ("fsync", "fdatasync"), ("sync", "syncfs")
TABLES = ("writeback", "inode_writeback", "file_writes", "dirty", "block")
NEVER = -(1 << 62)


@dataclass
class Said:
    """An event of a file system."""

    ts: int
    event: str
    fs: str
    ino: int | None
    root: int | None


@dataclass
class Thread:
    """The state of a thread by its last events."""

    tid: int
    reason: str | None = None
    inode: Place | None = None
    age: int = 0
    work_at: int = NEVER
    before: bool = False
    balance: int = 0
    begun: str | None = None
    inode_at: int = NEVER
    said: Said | None = None
    synced: Said | None = None
    direct: Said | None = None
    commit: Said | None = None
    whole: tuple[int, Place] | None = None
    task: Task | None = None
    wrote_to: set[str] | None = None


@dataclass
class Task:
    """A task of a btrfs worker: who queued it and when, in what context; None: nobody known."""

    ts: int
    by: Thread | None
    extent: Said | None = None


class Replay:
    """The events of a trace, one after the other; `bio` makes a row of each write bio."""

    def __init__(self, tables: dict[str, list[Row]], manifest: dict[str, list[Row]]) -> None:
        self.tables, self.volumes = tables, Volumes(manifest)
        self.inodes = Inodes(self.volumes)
        self.start = manifest["clock"]["start_ns"]
        self.threads: dict[int, Thread] = {}
        self.queued: dict[int, Task] = {}
        self.of_process = {row["tid"]: row for row in tables["processes"]}
        kernel = [row["tid"] for row in tables["processes"] if row.get("ppid") == 2]
        self.kernel = set(kernel)
        self.calls: dict[int, list[Row]] = {}
        for row in tables["syscalls"]:
            self.calls.setdefault(row["tid"], []).append(row)
        for row in tables["file_writes"]:
            if row.get("root") is not None:
                place = self.volumes.of_file(row), row["ino"]
                self.inodes.roots.setdefault(place, set()).add(row["root"])
        self.waited = list(self.waits())

    def run(self) -> list[Row]:
        events = [(row["ts"], name, row) for name in TABLES for row in self.tables[name]]
        found = []
        for ts, table, row in sorted(events, key=lambda event: event[0]):
            thread = self.threads.setdefault(row["tid"], Thread(row["tid"]))
            match table:
                case "writeback":
                    self.pass_of_flusher(ts, row, thread)
                case "inode_writeback":
                    self.bracket(ts, row, thread)
                case "file_writes":
                    self.file_system(ts, row, thread)
                case "dirty":
                    self.dirtied(ts, row, thread)
                case "block" if row["event"] == "bio_queue" and row["rwbs"][0] in "WF":
                    found.append(self.bio(row, thread))
        return found

    def pass_of_flusher(self, ts: int, row: Row, thread: Thread) -> None:
        """Applies events of one time: if as many passes begin as end, the thread's state does not
        change."""
        if thread.work_at != ts:
            thread.before, thread.balance, thread.begun = thread.reason is not None, 0, None
        thread.work_at = ts
        if row["event"] == "start":
            thread.begun = row["reason"]
        thread.balance += 1 if row["event"] == "start" else -1
        inside = thread.balance > 0 or (thread.balance == 0 and thread.before)
        thread.reason = thread.begun if inside else None

    def bracket(self, ts: int, row: Row, thread: Thread) -> None:
        if row["event"] == "start":
            thread.inode, thread.age, thread.wrote_to = (row["dev"], row["ino"]), row["age"], set()
        else:
            if thread.inode == (row["dev"], row["ino"]) and not row["state"] & I_DIRTY_PAGES:
                for fs in self.volumes.of_bracket(row["dev"], thread.wrote_to or set()):
                    self.inodes.clean((fs, row["ino"]), thread.inode_at, ts)
            thread.inode = None
        thread.inode_at = ts

    def dirtied(self, ts: int, row: Row, thread: Thread) -> None:
        """Notes a dirtying in task context; a thread that writes a file out marks it without
        dirtying a page."""
        folio, said = row["event"] == "dirty_folio", thread.said
        if said and said.event == "writepages_start" and said.ino == row["ino"] and not folio:
            return
        if row["tid"] not in self.kernel:
            self.inodes.dirty((row["dev"], row["ino"]), ts, row["pid"], folio)

    def file_system(self, ts: int, row: Row, thread: Thread) -> None:
        fs, event = self.volumes.of_file(row), row["event"]
        said = Said(ts, event, fs, row.get("ino"), row.get("root"))
        if event == "free_inode":
            self.inodes.clean((fs, row["ino"]), ts, ts)
            return
        if event.startswith("work_"):
            self.work(ts, row, thread)
            return
        if event.startswith("direct_"):
            mine = thread.direct and (thread.direct.fs, thread.direct.ino) == (fs, row["ino"])
            if event == "direct_start":
                thread.said = thread.direct = said
            elif mine:
                thread.direct = None
            return
        thread.said = said
        if event.startswith("fast_commit_"):
            thread.commit = said if event == "fast_commit_start" else None
        if event in ("fsync", "fsync_start", "fsync_end"):
            thread.synced = said if event != "fsync_end" else None
        if event == "fsync":
            call = self.call(thread.tid, ts)
            if call and call["name"] in SYNC_FILE and call["dur_ns"] is not None:
                self.inodes.clean((fs, row["ino"]), ts, call["ts"] + call["dur_ns"])
        if event == "writepages_end" and thread.whole and thread.whole[1] == (fs, row["ino"]):
            self.inodes.clean((fs, row["ino"]), thread.whole[0], ts)
        if event in ("writepages_start", "writepages_end", "fsync"):
            thread.whole = None
        if event == "writepages_start":
            asked = row["offset"], row["last"], row["sync_mode"], row["nr_to_write"]
            if asked == (0, WHOLE, 1, WHOLE):
                thread.whole = ts, (fs, row["ino"])
        if event == "ordered_extent" and thread.task:
            thread.task.extent = said

    def work(self, ts: int, row: Row, thread: Thread) -> None:
        match row["event"]:
            case "work_queued":
                task = thread.task
                if task:  # queued by a task: for whom that one works
                    self.queued[row["work"]] = copy(task)
                else:
                    self.queued[row["work"]] = Task(ts, copy(thread))
            case "work_start":
                thread.task = copy(self.queued.get(row["work"], Task(ts, None)))
            case "work_end":
                thread.task = None

    def call(self, tid: int, ts: int) -> Row | None:
        """The system call that a thread is in."""
        for row in reversed(self.calls.get(tid, [])):
            if row["ts"] <= ts:
                ended = row["dur_ns"] is not None and row["ts"] + row["dur_ns"] < ts
                return None if ended else row
        return None

    def told_from(self, tid: int, ts: int) -> int:
        """Since when the file system's words hold: since the call began, or the last one ended."""
        begun = [row for row in self.calls.get(tid, []) if row["ts"] <= ts]
        call = self.call(tid, ts)
        if call:
            return call["ts"]
        return begun[-1]["ts"] + begun[-1]["dur_ns"] + 1 if begun else NEVER

    def lost(self, scope: str, since: int, until: int) -> bool:
        """Returns whether events may be missing between two moments."""
        gaps = [gap for gap in self.tables["loss"] if scope in gap["stream"]]
        return any(
            (gap["from"] or 0) <= until and (gap["to"] is None or gap["to"] >= since)
            for gap in gaps
        )

    def waits(self) -> Iterator[tuple[int, int]]:
        """The calls of targets that wait for the disk: made for it, or a synchronous write."""
        for tid, calls in self.calls.items():
            syncs = [
                row["ts"]
                for row in self.tables["file_writes"]
                if row["tid"] == tid and row["event"] in ("fsync", "fsync_start")
            ]
            for call in calls if self.of_process[tid]["target"] else ():
                if call["dur_ns"] is None:
                    continue
                end = call["ts"] + call["dur_ns"]
                within = any(call["ts"] <= ts <= end for ts in syncs)
                if within or call["name"] in (*SYNC_FILE, *SYNC_ALL):
                    yield call["ts"], end

    def bio(self, bio: Row, thread: Thread) -> Row:
        raise NotImplementedError
