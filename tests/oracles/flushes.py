"""The view `flushes`, worked out naively: one event after the other.

It is written from the documentation (docs/architecture.md, docstrings), not from the views' code.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracles.dirtied import Place, Row
from tests.oracles.threads import SYNC_ALL, SYNC_FILE, Replay, Said, Thread

WRITES = ("write", "pwrite64")
NAMING = ("writepages_start", "map_blocks", "ordered_extent", "fsync", "direct_start")


@dataclass
class Decision:
    """The decision to write a bio: its thread, its time, and the brackets around it.

    What its file system said is None where it is of another volume, or over.
    """

    thread: Thread
    at: int
    fs: str
    metadata: bool
    of_task: bool
    extent: Said | None
    call: Row | None = None
    said: Said | None = None
    synced: Said | None = None
    direct: Said | None = None
    commit: Said | None = None

    @property
    def name(self) -> str | None:
        return self.call["name"] if self.call else None

    @property
    def file(self) -> Said | None:
        """The event that names the file."""
        if self.extent or self.said is None or self.said.event in NAMING:
            return self.extent or self.said
        return self.direct if self.said.event in ("writepages_end", "log") else None


@dataclass
class Reason:
    """`since`: no event after it may be missing. `by_call`: the system call is what tells."""

    reason: str
    certainty: str = "exact"
    since: int | None = None
    by_call: bool = False


class Flushes(Replay):
    """Rows of the view, of the events of a trace."""

    def decision(self, bio: Row, thread: Thread) -> Decision:
        fs, metadata = self.volumes.at(bio["dev"], bio["sector"]), "M" in bio["rwbs"]
        task = thread.task if self.volumes.is_btrfs(fs) else None
        found = Decision(thread, bio["ts"], fs, metadata, task is not None, None)
        if task:
            found.thread, found.extent = task.by or Thread(-1), task.extent
            found.at = task.ts if task.by else bio["ts"]
        thread = found.thread
        found.call = self.call(thread.tid, found.at)
        since = self.told_from(thread.tid, found.at)

        def holds(said: Said | None, since: int = since) -> Said | None:
            return said if said and said.fs == fs and said.ts >= since else None

        # Outside of brackets that have ended since.
        found.said = holds(thread.said, max(thread.work_at, thread.inode_at, since))
        found.synced, found.commit = holds(thread.synced), holds(thread.commit)
        found.direct = None if metadata else holds(thread.direct)
        return found

    def bio(self, bio: Row, thread: Thread) -> Row:
        """The row of a write bio, looked at where it was decided on."""
        it = self.decision(bio, thread)
        if thread.inode and thread.wrote_to is not None:
            thread.wrote_to.add(it.fs)
        thread, file = it.thread, it.file
        of_disk = thread.inode and thread.inode[0] == self.volumes.bdi(it.fs)
        inode = thread.inode if of_disk else None
        ino, root = (inode[1] if inode else file.ino if file else None), None
        if it.metadata:
            ino = inode[1] if inode else 1 if self.volumes.is_btrfs(it.fs) else None
        elif file and file.ino == ino:
            root = file.root
        by = self.reason(it, ino)
        relied = [thread.inode_at] if inode else [file.ts] if file else []
        relied += [it.at] if it.of_task else []
        relied += [] if by.since is None else [by.since]
        if by.by_call and it.call and self.lost("target", it.call["ts"], it.at):
            by.certainty = "inferred"
        if (relied and self.lost("machine", min(relied), bio["ts"])) or thread.tid == -1:
            by.certainty = "unknown"
        row = {name: bio[name] for name in ("ts", "dev", "sector")}
        row |= {"reason": by.reason, "call": it.name, "ino": ino, "root": root}
        row |= {"certainty": by.certainty, "dirtier": None, "dirtiers": None, "target": None}
        row |= {"dirtier_comm": None, "dirtied_ns": None, "container": None, "whose": None}
        if ino is not None and not it.metadata:
            event = it.said.event if it.said else None
            if it.direct and row["reason"] == "direct" and event != "writepages_start":
                others = event in ("map_blocks", "ordered_extent")
                row |= self.writer(row, (it.fs, ino), it.at, thread.tid, others)
            else:
                row |= self.dirtiers(row, (it.fs, ino), it.at, thread if inode else None)
        if row["dirtier"] is None:
            row["whose"] = self.inferred(thread.tid, row, it.metadata)
        return row

    def reason(self, it: Decision, ino: int | None) -> Reason:
        call, synced, said = it.call, it.synced, it.said
        if it.thread.reason:
            return Reason(it.thread.reason, since=it.thread.work_at)
        if self.of_process.get(it.thread.tid, {}).get("role") == "journal":
            return Reason("journal")
        if it.metadata and said and said.event == "log":
            return Reason("journal", since=said.ts)
        if it.metadata and it.commit:
            return Reason("journal", since=it.commit.ts)
        if it.metadata and self.volumes.is_btrfs(it.fs):
            return Reason("journal")
        if it.direct:
            return Reason("direct", since=it.direct.ts)
        # ext4 says where it ends, xfs and btrfs do not.
        told = synced is not None and synced.event == "fsync_start"
        if call and it.name in SYNC_FILE and not (told and self.lost("target", call["ts"], it.at)):
            return Reason("fsync", by_call=True)
        if synced and (told or call):
            return Reason("fsync", since=synced.ts, by_call=not told)
        if it.name in SYNC_ALL:
            return Reason("sync", by_call=True)
        if it.name in WRITES:
            return Reason("direct", "inferred")
        if call:
            return Reason("other", "inferred" if ino is None else "exact", by_call=True)
        if synced and said and said.ino == synced.ino:
            return Reason("fsync", "inferred", synced.ts)
        return Reason("other", "unknown")

    def dirtiers(self, row: Row, place: Place, at: int, flusher: Thread | None) -> Row:
        """Returns the dirtiers of the pages; `flusher`: the thread whose bracket the bio is in."""
        held = self.inodes.held(place, at)
        since = self.inodes.clean_since(place, at)
        doubted = (
            self.lost("machine", since, row["ts"])
            or (flusher is not None and flusher.inode_at - flusher.age < self.start)
            or self.volumes.bdi(place[0]) in self.volumes.shared
            or len(self.inodes.roots.get(place, ())) > 1
        )
        if not held:
            return {}
        ts, last = [(ts, pid) for ts, pid, folio in held if folio][-1]
        return self.parts(row, {pid for _, pid, _ in held}, last, ts, doubted)

    def writer(self, row: Row, place: Place, at: int, pid: int, others: bool) -> Row:
        """Returns the direct writers of the pages; `others`: they may be pages that were in the
        way."""
        parts = {other for _, other, _ in self.inodes.held(place, at)} if others else set()
        return self.parts(row, parts | {pid}, pid, at, False)

    def parts(self, row: Row, processes: set[int], dirtier: int, ts: int, doubted: bool) -> Row:
        targets = {self.of_process[pid]["target"] for pid in processes}
        containers = {self.of_process[pid].get("container_id") for pid in processes}
        whose = "target" if None not in targets else "shared" if len(targets) > 1 else "other"
        doubted = (doubted or len(processes) > 1) and row["certainty"] == "exact"
        return {
            "dirtier": dirtier,
            "dirtier_comm": self.of_process[dirtier]["comm"],
            "dirtied_ns": ts,
            "dirtiers": len(processes),
            "whose": whose,
            "target": targets.pop() if len(targets) == 1 else None,
            "container": containers.pop() if len(containers) == 1 else None,
            "certainty": "ambiguous" if doubted else row["certainty"],
        }

    def inferred(self, tid: int, row: Row, metadata: bool) -> str | None:
        """Returns the owner if nobody was seen to dirty the pages, from the thread that decided on
        the bio."""
        process, of_all = self.of_process.get(tid), metadata or row["reason"] == "journal"
        if process is None:
            return None
        if tid in self.kernel:
            waits = any(begun <= row["ts"] <= end for begun, end in self.waited)
            return "target" if of_all and waits else None
        if of_all or row["reason"] in ("direct", "fsync") or row["call"] == "close":
            return "target" if process["target"] else "other"
        return None


def flushes_of(tables: dict[str, list[Row]], manifest: dict[str, list[Row]]) -> list[Row]:
    """Returns the rows of `flushes`, one per write bio."""
    return Flushes(tables, manifest).run()
