"""Which file system a place belongs to, and who dirtied its files, worked out naively.

It is written from the documentation (docs/architecture.md, docstrings), not from the views' code.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
Place = tuple[str, int]
"""A device, and the number of an inode there."""


class Volumes:
    """The file systems of the manifest's disks: what places and which names of theirs they have."""

    def __init__(self, disks: list[Row], mounts: list[Row]) -> None:
        self.parts = [disk for disk in disks if "partition_of" in disk]
        self.mounted = {mount["dev"] for mount in mounts}
        names = [self.disk(dev) for dev in self.mounted]
        self.shared = {disk for disk in names if names.count(disk) > 1}
        """Disks whose name in write-back events several mounted file systems share."""

    def disk(self, dev: str) -> str:
        return next((part["partition_of"] for part in self.parts if part["dev"] == dev), dev)

    def of_bracket(self, disk: str, wrote_to: set[str]) -> set[str]:
        """The file systems that a bracket is of, which names the disk."""
        if disk in self.shared:
            return wrote_to
        return {dev for dev in self.mounted if self.disk(dev) == disk}

    def at(self, disk: str, sector: int) -> str:
        """The file system that a sector of a disk belongs to."""
        for part in self.parts:
            if part["partition_of"] == disk:
                first, end = part["start"], part["start"] + part["bytes"] // 512
                if first <= sector < end:
                    return part["dev"]
        return disk


class Inodes:
    """Who dirtied what: write-back names the disk and the inode, file systems the volume too."""

    def __init__(self, volumes: Volumes) -> None:
        self.volumes = volumes
        self.parts: dict[Place, list[tuple[int, int, bool]]] = {}
        """By disk and inode: (ts, pid, by a folio), in order."""
        self.since: dict[Place, int] = {}
        """By volume and inode: only what was dirtied from then on can be dirty."""

    def dirty(self, place: Place, ts: int, pid: int, folio: bool) -> None:
        self.parts.setdefault(place, []).append((ts, pid, folio))

    def clean(self, place: Place, since: int) -> None:
        self.since[place] = max(since, self.clean_since(place))

    def clean_since(self, place: Place) -> int:
        return self.since.get(place, -1)

    def held(self, place: Place) -> list[tuple[int, int, bool]]:
        """Those that count: marks while a page was dirty. Events of one time count together."""
        parts = self.parts.get((self.volumes.disk(place[0]), place[1]), [])
        parts = [part for part in parts if part[0] >= self.clean_since(place)]
        begun = min((ts for ts, _, folio in parts if folio), default=None)
        return [part for part in parts if begun is not None and part[0] >= begun]

    def dirtier(self, place: Place) -> int | None:
        return next((pid for _, pid, folio in reversed(self.held(place)) if folio), None)
