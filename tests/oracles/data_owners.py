"""The owners of the data that threads wait for when a journal commits, worked out naively.

It is written from docs/explain.md and the docs of the columns, not from the view's code. It stands
on the naive waits, requests and flushes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.oracles.flushes import flushes_of
from tests.oracles.requests import requests_of
from tests.oracles.sync_parts import sync_waits_of

Row = dict[str, Any]
Owner = tuple[int, str | None, str | None]
"""A process, and the target and container of all who dirtied the data."""
NOBODY = {"for_pid": None, "for_comm": None, "for_target": None, "for_container": None}


class Commits:
    """The waits of a trace for commits, and what the disks wrote meanwhile."""

    def __init__(self, tables: dict[str, list[Row]], manifest: dict[str, Any]) -> None:
        self.tables = tables
        self.disk_of = {
            disk["dev"]: disk["partition_of"]
            for disk in manifest["disks"]
            if "partition_of" in disk
        }
        self.requests = requests_of(tables["block"], tables["loss"], self.disk_of)
        self.bios = [row for row in tables["block"] if row["event"] == "bio_queue"]
        self.metadata = {placed(row) for row in self.bios if "M" in row["rwbs"]}
        self.flushes = {placed(row): row for row in flushes_of(tables, manifest)}
        self.processes = {row["tid"]: row for row in tables["processes"]}

    def waits(self) -> list[Row]:
        """Returns the waits of kind sync: ts, dur_ns, tid, detail, certainty and the owner."""
        return [part for wait in sync_waits_of(self.tables) for part in self.parts(wait)]

    def parts(self, wait: Row) -> list[Row]:
        alike = {name: wait[name] for name in ("tid", "detail")}
        whole = {"ts": wait["ts"], "dur_ns": wait["dur_ns"], "certainty": "exact"} | alike | NOBODY
        if wait["detail"] != "data":
            return [whole]
        sectors = self.sectors(wait)
        found, at, sofar = [], wait["ts"], 0
        for owner in sorted(sectors, key=lambda one: (-sectors[one], one is None, in_order(one))):
            sofar += sectors[owner]
            end = wait["ts"] + wait["dur_ns"] * sofar // sectors.total()
            certainty = "inferred" if len(sectors) > 1 else "exact"
            part = {"ts": at, "dur_ns": end - at, "certainty": certainty}
            found.append(part | alike | (self.named(owner) if owner else NOBODY))
            at = end
        return [part for part in found if part["dur_ns"]] or [whole]

    def sectors(self, wait: Row) -> Counter[Owner | None]:
        """Returns the sectors of each owner that the journal's disk wrote during a wait."""
        disk, end = self.disk_of_journal(wait["by_tid"]), wait["ts"] + wait["dur_ns"]
        found: Counter[Owner | None] = Counter()
        for request in self.requests:
            if (request["dev"], request["operation"]) != (disk, "write"):
                continue
            done = request["complete_ns"]
            if request["issue_ns"] >= end or done is None or done <= wait["ts"]:
                continue
            bio = self.bio(request)
            if bio is not None and bio["ino"] is not None and placed(bio) not in self.metadata:
                found[self.owner(bio)] += request["nr_sector"]
        return found

    def disk_of_journal(self, tid: int) -> str:
        [dev] = {row["dev"] for row in self.tables["journal"] if row["tid"] == tid}
        return self.disk_of.get(dev, dev)

    def bio(self, request: Row) -> Row | None:
        """Returns the flush of the bio that the first sector of a request belongs to."""
        if request["queue_ns"] is not None:
            return self.flushes[request["queue_ns"], request["dev"], request["sector"]]
        over = [
            row
            for row in self.bios
            if row["dev"] == request["dev"]
            and row["ts"] <= request["issue_ns"]
            and row["sector"] < request["sector"] < row["sector"] + row["nr_sector"]
            and not self.is_taken(row)
        ]
        return self.flushes[placed(max(over, key=lambda row: row["ts"]))] if over else None

    def is_taken(self, bio: Row) -> bool:
        """Returns whether a request took a bio as a whole, so that nothing is left for others."""
        return any(
            (one["queue_ns"], one["dev"], one["sector"]) == placed(bio)
            and one["nr_sector"] >= bio["nr_sector"]
            for one in self.requests
        )

    def owner(self, flush: Row) -> Owner | None:
        if flush["dirtier"] is None:
            return None
        return flush["dirtier"], flush["target"], flush["container"]

    def named(self, owner: Owner) -> Row:
        pid, target, container = owner
        comm = self.processes[pid]["comm"]
        return {
            "for_pid": pid, "for_comm": comm, "for_target": target, "for_container": container
        }  # fmt: skip


def placed(bio: Row) -> tuple[int, str, int]:
    """Returns the time and place of a bio, which no other one shares."""
    return bio["ts"], bio["dev"], bio["sector"]


def in_order(owner: Owner | None) -> tuple[int, bool, str, bool, str]:
    """Returns the key by which owners of equal parts follow one another: nulls last."""
    pid, target, container = owner or (0, None, None)
    return pid, target is None, target or "", container is None, container or ""
