"""The view `flushes` and who dirtied what, worked out naively: one event after the other.

It is written from the documentation (docs/architecture.md, docstrings), not from the views' code.
Disks and partitions; the flusher, ext4's fsync and its journal: no btrfs, no xfs.
"""

from __future__ import annotations

from tests.oracles.dirtied import Inodes, Place, Row, Volumes

I_DIRTY_PAGES = 4
WHOLE = (1 << 63) - 1


class Thread:
    """The brackets that a thread is in."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.inode: Place | None = None
        self.begun = 0
        self.wrote_to: set[str] = set()
        self.named: Place | None = None
        self.whole: int | None = None
        self.syncs = False


def flushes_of(tables: dict[str, list[Row]], manifest: dict[str, list[Row]]) -> list[Row]:
    """What `flushes` says of each write bio: reason, ino, dirtier, dirtiers, target, certainty."""
    volumes = Volumes(manifest["disks"], manifest["mounts"])
    inodes = Inodes(volumes)
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
        place = row.get("dev"), row.get("ino")
        match table, row["event"]:
            case "writeback", "start":
                thread.reason = row["reason"]
            case "writeback", "written":
                thread.reason = None
            case "inode_writeback", "start":
                thread.inode, thread.begun, thread.wrote_to = place, ts, set()
            case "inode_writeback", "end":
                if not row["state"] & I_DIRTY_PAGES:
                    for fs in volumes.of_bracket(row["dev"], thread.wrote_to):
                        inodes.clean((fs, row["ino"]), thread.begun)
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
                    inodes.clean(place, thread.whole)
                thread.named = thread.whole = None
            case "file_writes", "free_inode":
                inodes.clean(place, ts)
            case "dirty", kind:
                inodes.dirty(place, ts, row["pid"], kind == "dirty_folio")
            case "block", "bio_queue" if row["rwbs"][0] == "W":
                found.append(row_of(row, thread, inodes, of_process, lost))
    return found


def row_of(
    bio: Row, thread: Thread, inodes: Inodes, of_process: dict[int, Row], lost: list[int]
) -> Row:
    """The row of a write bio."""
    role = of_process.get(bio["pid"], {}).get("role")
    volume = inodes.volumes.at(bio["dev"], bio["sector"])
    reason, place = thread.reason, thread.named
    if thread.inode and thread.inode[0] == bio["dev"]:
        place = volume, thread.inode[1]
        thread.wrote_to.add(volume)
    if place and place[0] != volume:
        place = None
    if reason is None:
        reason = "journal" if role == "journal" else "fsync" if thread.syncs else "other"
    row = {"ts": bio["ts"], "dev": bio["dev"], "sector": bio["sector"], "reason": reason}
    row |= {"ino": place and place[1], "dirtier": None, "dirtiers": None, "target": None}
    row["certainty"] = "exact" if place or reason == "journal" else "unknown"
    held = inodes.held(place) if place else []
    if place and held:
        row["dirtier"] = inodes.dirtier(place)
        row["dirtiers"] = len({pid for _, pid, _ in held})
        targets = {of_process[pid]["target"] for _, pid, _ in held}
        row["target"] = targets.pop() if len(targets) == 1 else None
        missed = any(inodes.clean_since(place) <= end <= bio["ts"] for end in lost)
        sure = row["dirtiers"] == 1 and not missed and bio["dev"] not in inodes.volumes.shared
        row["certainty"] = "exact" if sure else "ambiguous"
    return row
