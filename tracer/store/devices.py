"""The names of a device, from a recording's manifest.

Related events name a device differently:

- The block layer names the whole disk and counts sectors from its beginning: a partition's bios
  are remapped before their first event (block/blk-core.c blk_partition_remap()).
- A file system names the device it is mounted from: a partition or a disk. btrfs, which may have
  several, names its UUID or a number that no block device has. overlayfs has such a number, too.
- Write-back (dirty folios, inodes, its brackets) names the bdi: MAJOR:MINOR of the whole disk, or
  btrfs's own name.

Loop devices, device mapper, md and bcache lie on other devices, whose events repeat the same data.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tracer.probes.errors import BadTrace
from tracer.store.manifest import Manifest
from tracer.store.manifest_parts import Disk

EVERYWHERE = 1 << 54
"""A sector after the last one of any device: byte numbers have 63 bits."""
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
"""Types of file systems that lie on no device."""
_SECTOR, _SECTORS_A_PAGE = 512, 8
_MINOR_BITS = 20
"""Bits of a minor number in the kernel: include/linux/kdev_t.h."""
_LOOP = "7:"
"""Major number of loop devices: Documentation/admin-guide/devices.txt."""
_MOST_BELOW = 1 << 18
"""Most devices below others, over all devices: a thousand loop devices on a btrfs of 250."""
_MOST_LAYERS = 8
"""Most nested overlays: the kernel allows two (include/linux/fs.h FILESYSTEM_MAX_STACK_DEPTH)."""


@dataclass(frozen=True)
class Names:
    """The names of a volume: `fs` in the tables of files, `bdi` in those of write-back."""

    fs: str
    bdi: str


@dataclass(frozen=True)
class Place:
    """The sectors of a disk from `first` up to, not including, `end`."""

    disk: str
    first: int = 0
    end: int = EVERYWHERE


@dataclass(frozen=True)
class Piece:
    """A place and the volume that lies there."""

    place: Place
    names: Names


@dataclass(frozen=True)
class Carrying:
    """A volume below a stacked device; with `ino`, only a loop device's file on it."""

    name: str
    ino: int | None


class Devices:
    """The devices of a recording, named MAJOR:MINOR; btrfs is also named by its bdi or UUID.

    A device that is missing from the manifest counts as a whole disk with one name.
    """

    def __init__(self, manifest: Manifest) -> None:
        """Reads disks, mounts and btrfs from a manifest.

        Raises BadTrace if more devices lie below others than any machine has.
        """
        self._disks: dict[str, Disk] = {
            d["dev"]: d for d in manifest.get("disks", []) if "dev" in d
        }
        mounts = manifest.get("mounts", [])
        self._mounted = {mount["dev"] for mount in mounts}
        self._upper = {mount["dev"]: mount["on"] for mount in mounts if "on" in mount}
        self._btrfs: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        for found in manifest.get("btrfs", []):
            for name in (found["fsid"], found["bdi"], found["dev"], *found["devices"]):
                if name:
                    self._btrfs[name] = found["bdi"]
            self._members[found["bdi"]] = found["devices"]
        # A manifest of 1 MB can name 10,000 disks on a btrfs of 40,000.
        lower = (name for disk in self._disks.values() for name in disk.get("on", []))
        if (below := sum(len(self._block_devices(name)) for name in lower)) > _MOST_BELOW:
            raise BadTrace(
                f"the manifest has {below} devices below others, more than any machine",
                "do not trust the trace",
            )

    @property
    def partitions(self) -> dict[str, str]:
        """The whole disk of each partition."""
        return {
            dev: disk["partition_of"] for dev, disk in self._disks.items() if "partition_of" in disk
        }

    def whole(self, dev: str) -> str:
        """Returns the block layer's name for a disk or a partition: the whole disk."""
        return self._disks.get(dev, {}).get("partition_of", dev)

    def names(self, name: str) -> Names:
        """Returns the names of a volume, given any of its names."""
        name = self._below_overlays(name)
        bdi = self._btrfs.get(name)
        return Names(name, self.whole(name)) if bdi is None else Names(bdi, bdi)

    def all_names(self) -> dict[str, Names]:
        """Returns the volumes with several names, by each name that file systems use for them."""
        known = (*self.partitions, *self._btrfs, *self._upper)
        return {name: self.names(name) for name in known}

    @cached_property
    def pieces(self) -> list[Piece]:
        """The places of volumes on disks without overlaps; the rest of a disk is the disk's own."""
        by_disk: dict[str, list[str]] = {}
        for dev, disk in self.partitions.items():
            by_disk.setdefault(disk, []).append(dev)
        found: list[Piece] = []
        members = {dev for devs in self._members.values() for dev in devs}
        for disk in sorted({*by_disk, *(members - self.partitions.keys())}):
            if disk in self._btrfs:
                found.append(Piece(Place(disk), self.names(disk)))
            # A disk in use has no partitions in use: block/bdev.c bd_may_claim().
            elif disk not in self._mounted:
                found += self._on(disk, by_disk.get(disk, []))
        return found

    def _on(self, disk: str, partitions: list[str]) -> Iterator[Piece]:
        known = [
            (span[0], span[1], self._in_use(dev), dev)
            for dev in partitions
            if (span := self._span(dev)) is not None
        ]
        for first, end, dev in _not_overlapping(known):
            yield Piece(Place(disk, first, end), self.names(dev))

    def _in_use(self, dev: str) -> bool:
        return dev in self._mounted or dev in self._btrfs or dev in self._carriers

    def _span(self, dev: str) -> tuple[int, int] | None:
        """Returns the first sector of a partition and the one after its last; None if unknown."""
        disk = self._disks[dev]
        if "start" not in disk:
            # If only one partition is in use, its place does not matter.
            return (0, EVERYWHERE) if self._used_on.get(self.whole(dev)) == [dev] else None
        length = disk["bytes"] // _SECTOR if "bytes" in disk else EVERYWHERE
        return min(disk["start"], EVERYWHERE), min(disk["start"] + length, EVERYWHERE)

    def without_place(self, disk: str) -> list[str]:
        """Returns the partitions of a disk that are in use and have no known place."""
        used = self._used_on.get(disk, [])
        return [dev for dev in used if self._parted(dev) and self._span(dev) is None]

    def _parted(self, dev: str) -> bool:
        return "partition_of" in self._disks.get(dev, {})

    @cached_property
    def _used_on(self) -> dict[str, list[str]]:
        """The devices with a file system or below another device, by their whole disk."""
        found: dict[str, list[str]] = {}
        members = {dev for devs in self._members.values() for dev in devs}
        for dev in sorted(self._mounted | members | self._carriers):
            found.setdefault(self.whole(dev), []).append(dev)
        return found

    @cached_property
    def _carriers(self) -> set[str]:
        """The devices that device mapper, md, bcache and loop devices lie on."""
        below = {name for disk in self._disks.values() for name in disk.get("on", [])}
        return below & self._disks.keys()

    def mounted_on(self, bdi: str) -> list[str]:
        """Returns the file systems, by device, that write-back names by this disk's bdi."""
        used = self._used_on.get(bdi, [])
        return [dev for dev in used if dev in self._mounted and dev not in self._btrfs]

    def shared(self) -> list[str]:
        """Returns the disks whose name several mounted file systems share."""
        return [disk for disk in self._used_on if len(self.mounted_on(disk)) > 1]

    def places(self, name: str) -> list[Place]:
        """Returns the places of a disk, partition or file system. BadTrace if unknown."""
        found = []
        for dev in self._block_devices(name):
            place = self.place(dev)
            if place is None:
                raise BadTrace(
                    f"the trace does not tell where partition {dev} begins",
                    f"name its disk, {self.whole(dev)}, or record again",
                )
            found.append(place)
        return found

    def describes(self, name: str) -> bool:
        """Returns whether the manifest has a device or file system of this name."""
        return name in self._disks or name in self._mounted or name in self._btrfs

    def lies_on(self, name: str, places: Iterable[Place]) -> tuple[bool, bool]:
        """Returns whether a volume lies on these places at least in part, and whether as a whole.

        It may do so through the devices that it lies on, but not through the file of a loop device:
        the file system below has pages of its own in the page cache.
        """
        wanted, seen = list(places), set[str]()
        waiting = list(self._block_devices(name))
        in_part, whole = False, True
        while waiting:
            dev = waiting.pop()
            if dev in seen:
                continue
            seen.add(dev)
            here = self.place(dev) or Place(self.whole(dev))
            disk = self._disks.get(here.disk, {})
            if any(
                here.disk == one.disk and one.first <= here.first and here.end <= one.end
                for one in wanted
            ):
                in_part = True
            elif "on" in disk and (not self._has_file(here.disk) or self._is_on_device(here.disk)):
                waiting += [below for lower in disk["on"] for below in self._block_devices(lower)]
            else:
                whole = False
        return in_part, in_part and whole

    def _is_on_device(self, loop: str) -> bool:
        """Returns whether a loop device is known to lie on a block device, not in a file."""
        return self._disks.get(loop, {}).get("backing_ino", -1) is None

    def place(self, dev: str) -> Place | None:
        """Returns the place of a disk or partition; None if unknown."""
        if not self._parted(dev):
            return Place(dev)
        span = self._span(dev)
        return None if span is None else Place(self.whole(dev), *span)

    def below(self, dev: str) -> dict[str, list[str]]:
        """Returns the devices or file systems below a stacked device, with the disks of each."""
        return {name: self.disks(name) for name in self._disks.get(dev, {}).get("on", [])}

    def stacked(self) -> Iterator[tuple[str, str, str]]:
        """Yields each stacked device with a device below it and that device's whole disk."""
        for dev in self._disks:
            for name, disks in self.below(dev).items():
                for disk in disks:
                    yield dev, name, disk

    def loops(self) -> Iterator[tuple[str, Place]]:
        """Yields each loop device on a block device, and the place that holds its sectors."""
        for dev, disk in self._disks.items():
            if self._has_file(dev) and self._is_on_device(dev):
                for name in disk.get("on", []):
                    if (place := self.place(name)) is not None:
                        first = min(place.first + disk.get("backing_offset", 0), EVERYWHERE)
                        yield dev, Place(place.disk, first, place.end)

    def cached(self) -> Iterator[tuple[str, Place, bool]]:
        """Yields bcache's devices, with each place below and whether the data lies in order there.

        It does on the device behind the cache. The cache has it at any place.
        """
        for dev, disk in self._disks.items():
            for name in disk.get("on", []) if "backing_dev" in disk else []:
                place, is_behind = self.place(name), name == disk["backing_dev"]
                if place is not None:
                    first = place.first + is_behind * disk.get("backing_offset", 0)
                    yield dev, Place(place.disk, min(first, EVERYWHERE), place.end), is_behind

    def carrying(self, disks: Iterable[str], deep: bool = True) -> list[Carrying]:
        """Returns what carries the data of these disks again, on all devices below them.

        Without `deep`, only the devices that they lie on themselves.

        A device in between may show no writes: RAID 0 sends the same bio on, which is logged once.
        """
        found: dict[Carrying, None] = {}
        waiting = list(disks)
        while waiting:
            upper = waiting.pop()
            disk = self._disks.get(upper, {})
            # A file system below a loop device may carry much else than its file.
            if not self._has_file(upper) or "backing_ino" in disk:
                for name in disk.get("on", []):
                    carrying = Carrying(name, disk.get("backing_ino"))
                    if deep and carrying not in found and carrying.ino is None:
                        waiting += self.disks(name)
                    found[carrying] = None
        return list(found)

    def layers(self, name: str, files: bool = True) -> list[str]:
        """Returns the disks of a volume and those that they lie on, from top to bottom.

        `files`: also the disks below a loop device, which hold its file.
        """
        found: dict[str, None] = {}
        waiting = self.disks(name)
        while waiting:
            disk = waiting.pop(0)
            if disk not in found:
                found[disk] = None
                if files or not self._has_file(disk):
                    waiting += [below for disks in self.below(disk).values() for below in disks]
        return list(found)

    def requested(self, name: str) -> list[str]:
        """Returns the disks whose requests are those of a disk, partition or file system.

        Device mapper, md and bcache have no requests of their own: they hand bios to the devices
        below. A loop device has requests.
        """
        return [
            disk
            for disk in self.layers(name, files=False)
            if self._has_file(disk) or not self.below(disk)
        ]

    def _has_file(self, disk: str) -> bool:
        """Returns whether a disk is a loop device; the trace need not tell of its file."""
        return "backing_file" in self._disks.get(disk, {}) or disk.startswith(_LOOP)

    def disks(self, name: str) -> list[str]:
        """Returns the disks below a disk, partition or file system."""
        return [self.whole(dev) for dev in self._block_devices(name)]

    def device_inodes(self, disks: Iterable[str]) -> dict[tuple[str, int], int]:
        """Returns the inodes of disks and partitions themselves, which hold dirty metadata.

        (bdi, inode number) to the first page on the disk. Kernel: block/bdev.c bdev_alloc().
        """
        spans = dict.fromkeys(disks, (0, EVERYWHERE))
        wanted = [dev for dev, disk in self.partitions.items() if disk in spans]
        spans |= {dev: span for dev in wanted if (span := self._span(dev)) is not None}
        return {
            (self.whole(dev), number): span[0] // _SECTORS_A_PAGE
            for dev, span in spans.items()
            if (number := _number(dev)) is not None
        }

    def _block_devices(self, name: str) -> list[str]:
        name = self._below_overlays(name)
        # The name of a btrfs member means only that member.
        if name in self._disks or name not in self._btrfs:
            return [name]
        return self._members[self._btrfs[name]]

    def _below_overlays(self, name: str) -> str:
        for _ in range(_MOST_LAYERS):
            name = self._upper.get(name, name)
        return name


def _number(dev: str) -> int | None:
    """Returns a device's number in the kernel; None if `dev` is not a device's name."""
    major, _, minor = dev.partition(":")
    if not (major.isdecimal() and minor.isdecimal() and len(major) < 10 > len(minor)):
        return None
    return (int(major) << _MINOR_BITS) + int(minor)


def _not_overlapping(
    known: Iterable[tuple[int, int, bool, str]],
) -> Iterator[tuple[int, int, str]]:
    """Cuts spans (first, end, in use, name) so that none overlap; yields (first, end, name).

    Overlaps occur with an extended partition. The place then belongs to a partition in use and,
    among these, to the one that begins last.
    """
    waiting = sorted((span for span in known if span[0] < span[1]), reverse=True)
    points = sorted({point for span in waiting for point in span[:2]})
    here: list[tuple[bool, int, int, str]] = []
    for begin, then in pairwise(points):
        while waiting and waiting[-1][0] == begin:
            first, end, in_use, name = waiting.pop()
            heapq.heappush(here, (not in_use, -first, end, name))
        while here and here[0][2] <= begin:
            heapq.heappop(here)
        if here:
            yield begin, then, here[0][3]
