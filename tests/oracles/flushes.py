"""The view `flushes` and who dirtied what, worked out naively: one event after the other.

It is written from the documentation (docs/architecture.md, docstrings), not from the views' code.
Whole disks only, and the flusher, ext4's fsync and its journal: no btrfs, no xfs.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
I_DIRTY_PAGES = 4
WHOLE = (1 << 63) - 1


class Inode:
    """Who may have a part in an inode's dirty pages: (ts, pid, by a folio), in order."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int, bool]] = []
        self.since = -1

    def dirty(self, ts: int, pid: int, folio: bool) -> None:
        self.parts.append((ts, pid, folio))

    def held(self) -> list[tuple[int, int, bool]]:
        """Those that count: marks while a page was dirty. Events of one time count together."""
        begun = min((ts for ts, _, folio in self.parts if folio), default=None)
        return [part for part in self.parts if begun is not None and part[0] >= begun]

    def clean(self, since: int) -> None:
        """Only what was dirtied from `since` on can be dirty."""
        self.parts = [part for part in self.parts if part[0] >= since]
        self.since = since

    def dirtier(self) -> int | None:
        return next((pid for _, pid, folio in reversed(self.parts) if folio), None)

    def dirtiers(self) -> int:
        return len({pid for _, pid, _ in self.held()})


class Thread:
    """The brackets that a thread is in."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.inode: tuple[str, int] | None = None
        self.begun = 0
        self.named: tuple[str, int] | None = None
        self.whole: int | None = None
        self.syncs = False


def flushes_of(tables: dict[str, list[Row]]) -> list[Row]:
    """What `flushes` says of each write bio: reason, ino, dirtier, dirtiers, target, certainty."""
    inodes: dict[tuple[str, int], Inode] = {}
    threads: dict[int, Thread] = {}
    lost = [gap["to"] for gap in tables["loss"]]
    of_process = {row["pid"]: row for row in tables["processes"]}
    events = [
        (row["ts"], name, row)
        for name in ("writeback", "inode_writeback", "file_writes", "dirty", "block")
        for row in tables[name]
    ]
    found = []
    for ts, table, row in sorted(events, key=lambda event: event[0]):
        thread = threads.setdefault(row["tid"], Thread())
        place = row["dev"], row.get("ino")
        inode = inodes.setdefault(place, Inode())
        match table, row["event"]:
            case "writeback", "start":
                thread.reason = row["reason"]
            case "writeback", "written":
                thread.reason = None
            case "inode_writeback", "start":
                thread.inode, thread.begun = place, ts
            case "inode_writeback", "end":
                if not row["state"] & I_DIRTY_PAGES:
                    inode.clean(thread.begun)
                thread.inode = None
            case "file_writes", "fsync_start":
                thread.syncs = True
            case "file_writes", "fsync_end":
                thread.syncs = False
            case "file_writes", "writepages_start":
                whole = (row["offset"], row["last"], row["sync_mode"]) == (0, WHOLE, 1)
                thread.named, thread.whole = place, ts if whole else None
            case "file_writes", "writepages_end":
                if thread.whole is not None:
                    inode.clean(thread.whole)
                thread.named = thread.whole = None
            case "file_writes", "free_inode":
                inode.clean(ts)
            case "dirty", kind:
                inode.dirty(ts, row["pid"], kind == "dirty_folio")
            case "block", "bio_queue" if row["rwbs"][0] == "W":
                found.append(row_of(row, thread, inodes, of_process, lost))
    return found


def row_of(
    bio: Row, thread: Thread, inodes: dict[Any, Inode], of_process: dict[int, Row], lost: list[int]
) -> Row:
    """The row of a write bio."""
    role = of_process.get(bio["pid"], {}).get("role")
    reason, place = thread.reason, thread.inode or thread.named
    if reason is None:
        reason = "journal" if role == "journal" else "fsync" if thread.syncs else "other"
    row = {"ts": bio["ts"], "dev": bio["dev"], "sector": bio["sector"], "reason": reason}
    inode = inodes.get(place, Inode())
    dirtier = inode.dirtier()
    row |= {"ino": place and place[1], "dirtier": dirtier, "dirtiers": inode.dirtiers() or None}
    row["target"] = None
    parts = {of_process[pid]["target"] for _, pid, _ in inode.held()}
    if dirtier is not None and len(parts) == 1:
        row["target"] = parts.pop()
    row["certainty"] = "exact" if place or reason == "journal" else "unknown"
    if dirtier is not None:
        missed = any(inode.since <= end <= bio["ts"] for end in lost)
        row["certainty"] = "exact" if inode.dirtiers() == 1 and not missed else "ambiguous"
    return row
