"""The view `flushes`, worked out naively: one event after the other.

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
WRITES = ("write", "pwrite64")
NAMING = ("writepages_start", "map_blocks", "ordered_extent", "fsync", "direct_start")
TABLES = ("writeback", "inode_writeback", "file_writes", "dirty", "block")
NEVER = -(1 << 62)


@dataclass
class Said:
    """What a file system said."""

    ts: int
    event: str
    fs: str
    ino: int | None
    root: int | None


@dataclass
class Thread:
    """What a thread is in, by its last events."""

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
    """The events of a trace, one after the other."""

    def __init__(self, tables: dict[str, list[Row]], manifest: dict[str, list[Row]]) -> None:
        self.tables, self.volumes = tables, Volumes(manifest)
        self.inodes = Inodes(self.volumes)
        self.start = manifest["clock"]["start_ns"]
        self.threads: dict[int, Thread] = {}
        self.queued: dict[int, Task] = {}
        self.of_process = {row["pid"]: row for row in tables["processes"]}
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
        """As many that begin as end at one time leave a thread as it was, in a pass or in none."""
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
        """In task context; who writes a file out marks it without dirtying a page."""
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
        """Whether events may be missing between two moments."""
        gaps = [gap for gap in self.tables["loss"] if scope in gap["stream"]]
        return any(
            (gap["from"] or 0) <= until and (gap["to"] is None or gap["to"] >= since)
            for gap in gaps
        )

    def bio(self, bio: Row, thread: Thread) -> Row:
        """The row of a write bio, looked at where it was decided on."""
        fs, ts, extent = self.volumes.at(bio["dev"], bio["sector"]), bio["ts"], None
        if thread.inode and thread.wrote_to is not None:
            thread.wrote_to.add(fs)
        task = thread.task if self.volumes.is_btrfs(fs) else None
        at: int | None = ts
        if task:
            thread, extent = task.by or Thread(-1), task.extent
            at = task.ts if task.by else ts
        call = self.call(thread.tid, at)
        told_from = self.told_from(thread.tid, at)
        direct = thread.direct
        if direct and (direct.fs != fs or direct.ts < told_from or "M" in bio["rwbs"]):
            direct = None
        named, metadata = self.named(thread, fs, told_from), "M" in bio["rwbs"]
        synced = thread.synced
        if synced and (synced.fs != fs or synced.ts < told_from):
            synced = None
        inode = thread.inode if thread.inode and thread.inode[0] == self.volumes.bdi(fs) else None
        commit = thread.commit
        if commit and (commit.fs != fs or commit.ts < told_from):
            commit = None
        file = extent or (named if named and named.event in NAMING else None)
        if file is None and named and named.event in ("writepages_end", "log"):
            file = direct
        ino, root = (inode[1] if inode else file.ino if file else None), None
        if metadata:
            ino = inode[1] if inode else 1 if self.volumes.is_btrfs(fs) else None
        elif file and file.ino == ino:
            root = file.root
        relied = [thread.inode_at] if inode else [file.ts] if file else []
        relied += [at] if task else []
        reason, certainty, by, by_call = self.reason(
            thread, at, named, synced, direct, commit, call, metadata, fs, ino
        )
        relied += [] if by is None else [by]
        if by_call and call and self.lost("target", call["ts"], at):
            certainty = "inferred"
        if (relied and self.lost("machine", min(relied), ts)) or thread.tid == -1:
            certainty = "unknown"
        row = {name: bio[name] for name in ("ts", "dev", "sector")}
        row |= {"reason": reason, "call": call and call["name"], "ino": ino, "root": root}
        row |= {"certainty": certainty, "dirtier": None, "dirtiers": None, "target": None}
        row["whose"] = None
        if ino is not None and not metadata:
            written_out = named and named.event == "writepages_start"
            if direct and row["reason"] == "direct" and not written_out:
                others = bool(named and named.event in ("map_blocks", "ordered_extent"))
                row |= self.writer(row, (fs, ino), at, thread.tid, others)
            else:
                row |= self.dirtiers(row, (fs, ino), at, thread if inode else None)
        if row["dirtier"] is None:
            row["whose"] = self.inferred(thread.tid, row, metadata)
        return row

    def named(self, thread: Thread, fs: str, since: int) -> Said | None:
        """What its file system said last, outside of brackets that have ended since."""
        said = thread.said
        if said is None or said.fs != fs or said.ts < max(thread.work_at, thread.inode_at, since):
            return None
        return said

    def reason(
        self,
        thread: Thread,
        at: int,
        said: Said | None,
        synced: Said | None,
        direct: Said | None,
        commit: Said | None,
        call: Row | None,
        metadata: bool,
        fs: str,
        ino: int | None,
    ) -> tuple[str, str, int | None, bool]:
        """A bio's reason, how certain that is, since which event no other may be missing, and
        whether it is by the system call."""
        name = call["name"] if call else None
        if thread.reason:
            return thread.reason, "exact", thread.work_at, False
        if self.of_process.get(thread.tid, {}).get("role") == "journal":
            return "journal", "exact", None, False
        if metadata and said and said.event == "log":
            return "journal", "exact", said.ts, False
        if metadata and commit:
            return "journal", "exact", commit.ts, False
        if metadata and self.volumes.is_btrfs(fs):
            return "journal", "exact", None, False
        if direct:
            return "direct", "exact", direct.ts, False
        # ext4 says where it ends, xfs and btrfs do not.
        told = synced is not None and synced.event == "fsync_start"
        if call and name in SYNC_FILE and not (told and self.lost("target", call["ts"], at)):
            return "fsync", "exact", None, True
        if synced and (told or call):
            return "fsync", "exact", synced.ts, not told
        if name in SYNC_ALL:
            return "sync", "exact", None, True
        if name in WRITES:
            return "direct", "inferred", None, True
        if call:
            return "other", "inferred" if ino is None else "exact", None, True
        if synced and said and said.ino == synced.ino:
            return "fsync", "inferred", synced.ts, False
        return "other", "unknown", None, False

    def dirtiers(self, row: Row, place: Place, at: int, flusher: Thread | None) -> Row:
        """Who dirtied it; `flusher`: the thread whose bracket it is in."""
        held = self.inodes.held(place, at)
        since = self.inodes.clean_since(place, at)
        doubted = (
            self.lost("machine", since, row["ts"])
            or (flusher is not None and flusher.inode_at - flusher.age < self.start)
            or self.volumes.bdi(place[0]) in self.volumes.shared
            or len(self.inodes.roots.get(place, ())) > 1
        )
        last = [pid for _, pid, folio in held if folio]
        return self.parts(row, {pid for _, pid, _ in held}, last[-1], doubted) if held else {}

    def writer(self, row: Row, place: Place, at: int, pid: int, others: bool) -> Row:
        """Who wrote it directly; `others`: it may be pages that were in the way."""
        parts = {other for _, other, _ in self.inodes.held(place, at)} if others else set()
        return self.parts(row, parts | {pid}, pid, False)

    def parts(self, row: Row, processes: set[int], dirtier: int, doubted: bool) -> Row:
        targets = {self.of_process[pid]["target"] for pid in processes}
        whose = "target" if None not in targets else "shared" if len(targets) > 1 else "other"
        doubted = (doubted or len(processes) > 1) and row["certainty"] == "exact"
        return {
            "dirtier": dirtier,
            "dirtiers": len(processes),
            "whose": whose,
            "target": targets.pop() if len(targets) == 1 else None,
            "certainty": "ambiguous" if doubted else row["certainty"],
        }

    def inferred(self, tid: int, row: Row, metadata: bool) -> str | None:
        """Whose it is, of a thread that decided on it, where nobody was seen to dirty it."""
        process, of_all = self.of_process.get(tid), metadata or row["reason"] == "journal"
        if process is None:
            return None
        if tid in self.kernel:
            waits = any(begun <= row["ts"] <= end for begun, end in self.waited)
            return "target" if of_all and waits else None
        if of_all or row["reason"] in ("direct", "fsync") or row["call"] == "close":
            return "target" if process["target"] else "other"
        return None

    def waits(self) -> Iterator[tuple[int, int]]:
        """The calls of targets that wait for the disk: made for it, or a synchronous write."""
        for tid, calls in self.calls.items():
            syncs = [
                row["ts"]
                for row in self.tables["file_writes"]
                if row["tid"] == tid and row["event"] in ("fsync", "fsync_start")
            ]
            for call in calls if self.of_process[tid]["target"] else ():
                end = call["ts"] + call["dur_ns"]
                within = any(call["ts"] <= ts <= end for ts in syncs)
                if within or call["name"] in (*SYNC_FILE, *SYNC_ALL):
                    yield call["ts"], end


def flushes_of(tables: dict[str, list[Row]], manifest: dict[str, list[Row]]) -> list[Row]:
    """What `flushes` says of each write bio."""
    return Replay(tables, manifest).run()
