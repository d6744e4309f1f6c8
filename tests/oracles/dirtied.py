"""The file system of a place and the dirtiers of its files, worked out naively.

It is written from the documentation (docs/architecture.md, docstrings), not from the views' code.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
Place = tuple[str, int]
"""A device, and the number of an inode there."""


class Volumes:
    """The file systems of the manifest: their places, and the names that events have for them.

    A file system is called as file-system events do, a btrfs as write-back does.
    """

    def __init__(self, manifest: dict[str, list[Row]]) -> None:
        self.parts = [disk for disk in manifest["disks"] if "partition_of" in disk]
        self.of_btrfs: dict[str, str] = {}
        for btrfs in manifest["btrfs"]:
            for name in (btrfs["fsid"], btrfs["dev"], *btrfs["devices"]):
                self.of_btrfs[name] = btrfs["bdi"]
        self.mounted = {self.of_btrfs.get(row["dev"], row["dev"]) for row in manifest["mounts"]}
        names = [self.bdi(fs) for fs in self.mounted]
        self.shared = {disk for disk in names if names.count(disk) > 1}
        """Disks whose name in write-back events several mounted file systems share."""

    def bdi(self, fs: str) -> str:
        """The name that write-back has: of the whole disk, or btrfs's own."""
        return next((part["partition_of"] for part in self.parts if part["dev"] == fs), fs)

    def of_file(self, row: Row) -> str:
        """The file system of its own event."""
        name = row.get("fsid") or row["dev"]
        return self.of_btrfs.get(name, name)

    def at(self, dev: str, sector: int) -> str:
        """The file system that a sector of a device belongs to; the disk where nobody can tell."""
        parts = [part for part in self.parts if part["partition_of"] == dev]
        if any("start" in part for part in parts):
            for part in parts:
                if part["start"] <= sector < part["start"] + part["bytes"] // 512:
                    dev = part["dev"]
        else:
            used = [part["dev"] for part in parts if self.in_use(part["dev"])]
            dev = used[0] if len(used) == 1 else dev
        return self.of_btrfs.get(dev, dev)

    def in_use(self, dev: str) -> bool:
        return self.of_btrfs.get(dev, dev) in self.mounted

    def is_btrfs(self, fs: str) -> bool:
        return fs in self.of_btrfs.values()

    def of_bracket(self, bdi: str, wrote_to: set[str]) -> set[str]:
        """The file systems that a bracket is of, which names the disk."""
        if bdi in self.shared:
            return wrote_to - {bdi}
        # Also of what was written where nobody knows whose place it is: the name tells.
        return {fs for fs in self.mounted if self.bdi(fs) == bdi} | {bdi}


class Inodes:
    """The dirtiers of inodes: write-back names the disk and the inode, file systems also the
    volume."""

    def __init__(self, volumes: Volumes) -> None:
        self.volumes = volumes
        self.parts: dict[Place, list[tuple[int, int, bool]]] = {}
        """Dirtyings by bdi and inode: (ts, pid, by a folio), in order."""
        self.cleaned: dict[Place, list[tuple[int, int]]] = {}
        """Cleanings by file system and inode, as (end, since): from `end` on, only pages dirtied
        from `since` on can be dirty."""
        self.roots: dict[Place, set[int]] = {}
        """The subvolumes of a btrfs in which the inode's number was seen."""

    def dirty(self, place: Place, ts: int, pid: int, folio: bool) -> None:
        self.parts.setdefault(place, []).append((ts, pid, folio))

    def clean(self, place: Place, since: int, end: int) -> None:
        self.cleaned.setdefault(place, []).append((end, since))

    def clean_since(self, place: Place, at: int) -> int:
        return max((since for end, since in self.cleaned.get(place, []) if end <= at), default=-1)

    def held(self, place: Place, at: int) -> list[tuple[int, int, bool]]:
        """Those that count: marks while a page was dirty. Events of one time count together."""
        since = self.clean_since(place, at)
        parts = self.parts.get((self.volumes.bdi(place[0]), place[1]), [])
        parts = [part for part in parts if since <= part[0] <= at]
        begun = min((ts for ts, _, folio in parts if folio), default=None)
        return [part for part in parts if begun is not None and part[0] >= begun]
