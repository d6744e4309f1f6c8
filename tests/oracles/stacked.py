"""Devices that lie on other devices, worked out naively: each write looks for a device above it.

It is written from docs/what-if.md, docs/architecture.md ("The names of a device") and the docs of
the manifest, not from the code.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.oracles.layer import pages_of

Row = dict[str, Any]
Inode = tuple[str, int]
"""The name of a device in write-back events, and the number of an inode."""
SECTOR = 512


@dataclass
class Counted:
    """The pages that count, in their order, and the number of those left out on each device."""

    pages: list[tuple[str, int]] = field(default_factory=list)
    below: Counter[str] = field(default_factory=Counter)

    @property
    def by_device(self) -> dict[str, int]:
        return dict(Counter(dev for dev, _ in self.pages))


class Stack:
    """The devices of a trace, and its writes in order of time."""

    def __init__(self, tables: dict[str, list[Row]], manifest: dict[str, Any]) -> None:
        self.disks: list[Row] = manifest["disks"]
        self.own: dict[str, list[int]] = manifest["own_files"]
        self.brackets = tables["inode_writeback"]
        self.writes = [row for row in tables["block"] if pages_of([row])]
        self.writes.sort(key=lambda row: row["ts"])
        self.active = {row["dev"] for row in self.writes}

    def count(self, devices: list[str] | None = None) -> Counted:
        """Returns the pages that count: those of named devices as they are, else each one once."""
        found = Counted()
        for write in self.writes:
            pages = pages_of([write])
            if self.is_own(write):
                continue
            if devices is not None:
                if any(self.lies_on(write, dev) for dev in devices):
                    found.pages += pages
            elif self.is_below(write):
                found.below[write["dev"]] += len(pages)
            else:
                found.pages += pages
        return found

    def place(self, dev: str) -> tuple[str, int, float]:
        """Returns the name that bios give to a device, its first sector there and the one after
        its last. A partition without a start is the only one: it is read as the whole disk."""
        for row in self.disks:
            if row["dev"] == dev and "partition_of" in row:
                if "start" in row:
                    length = row["bytes"] // SECTOR
                    return row["partition_of"], row["start"], row["start"] + length
                return row["partition_of"], 0, float("inf")
        return dev, 0, float("inf")

    def lies_on(self, write: Row, dev: str) -> bool:
        disk, first, end = self.place(dev)
        return write["dev"] == disk and first <= write["sector"] < end

    def inode(self, write: Row) -> Inode | None:
        """Returns the inode that the thread of a write was writing back."""
        found = None
        for row in self.brackets:
            if row["tid"] == write["tid"] and row["ts"] < write["ts"]:
                found = (row["dev"], row["ino"]) if row["event"] == "start" else None
        return found

    def is_of(self, write: Row, dev: str, ino: int) -> bool:
        """Returns whether a write is of this file of the file system on a device."""
        return self.lies_on(write, dev) and self.inode(write) == (self.place(dev)[0], ino)

    def is_own(self, write: Row) -> bool:
        return any(self.is_of(write, dev, ino) for dev, inos in self.own.items() for ino in inos)

    def is_below(self, write: Row) -> bool:
        """Returns whether a write is one to a device above, which counts there."""
        return any(
            self.writes_above(upper) and self.hands_on(upper, dev, write)
            for upper in self.disks
            for dev in upper.get("on", [])
        )

    def hands_on(self, upper: Row, dev: str, write: Row) -> bool:
        """Returns whether a write may be one that `upper` handed on to `dev`, on which it lies."""
        if "backing_file" not in upper:
            return self.lies_on(write, dev)
        if "backing_ino" not in upper:
            return False  # an older trace does not tell
        if upper["backing_ino"] is None:
            return self.lies_on(write, dev)
        return self.is_of(write, dev, upper["backing_ino"])

    def writes_above(self, device: Row) -> bool:
        """Returns whether a device, or one that hands all of its writes on to it, is written."""
        if device["dev"] in self.active:
            return True
        return any(
            upper.get("backing_ino") is None
            and ("backing_ino" in upper or "backing_file" not in upper)
            and any(self.place(dev)[0] == device["dev"] for dev in upper.get("on", []))
            and self.writes_above(upper)
            for upper in self.disks
        )
