"""Devices on devices, drawn at random, and writes to all of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

SECTOR = 512
BOUNDS = (1000, 4004, 6000, 10_000)
"""The sectors between which partitions lie; the second one is within a page."""
LENGTHS = (1, 7, 8, 8, 9, 16, 40)
FILES, OWN = (77, 78), 80
"""Inodes on every file system: those that may hold a loop device, and one of the recorder."""
JOBS, FLUSHERS = (1, 2), (50, 51)
"""Threads."""
LEVELS = 3

Row = dict[str, Any]


@dataclass(eq=False)
class Space:
    """A device or partition: `disk` is its name in bios, `level` the devices below it."""

    dev: str
    disk: str
    first: int
    length: int
    level: int


class World:
    """Disks, and what lies on them: device mapper, md, loop devices and file systems.

    A device that is idle is read and flushed, but not written, nor is one that lies on it.
    """

    def __init__(self, numbers: random.Random, number: int = 0) -> None:
        """Draws the world of this number: it shares no device, thread or time with others."""
        self.numbers, self.now = numbers, 10 + 1_000_000 * number
        self._apart = 100 * number
        self.jobs, self.flushers = (
            tuple(tid + self._apart for tid in tids) for tids in (JOBS, FLUSHERS)
        )
        self.manifest: dict[str, Any] = {"disks": [], "mounts": [], "own_files": {}}
        self.tables: dict[str, list[Row]] = {
            name: [] for name in ("block", "writeback", "inode_writeback", "loss", "processes")
        }
        self.spaces: dict[str, list[Space]] = {}
        """Partitions of a device, or itself."""
        self.beneath: dict[str, list[Space]] = {}
        """The spaces to which a device hands all of its writes on."""
        self.free: list[Space] = []
        self.mounted: list[Space] = []
        self._files: dict[str, list[int]] = {}
        self._partitions = 0
        for n in range(numbers.randint(1, 3)):
            at = n + self._apart
            self._add({"dev": f"8:{16 * at}", "name": f"sd{at}"}, 0, True)
        for n in range(numbers.choice([0, 1, 3, 4, 5, 6])):
            self._stack(n)
        for space in [*self.free]:
            if numbers.random() < 0.7:
                self._mount(space)
        self._forget_starts()
        # What a loop device's file system hands on has no file any more.
        needed = {space.disk for space in self.mounted if self._files[space.dev]}
        self.idle: set[str] = set()
        for dev in reversed(self.spaces):
            if dev[:2] != "8:" and dev not in needed and self._above(dev) <= self.idle:
                self.idle |= {dev} if numbers.random() < 0.5 else set()
        if numbers.random() < 0.5:
            self.tables["processes"] = [
                {"pid": tid, "tid": tid, "role": "flusher", "comm": "kworker/u8:1"}
                for tid in self.flushers
            ]
        for _ in range(numbers.choice([0, 8, 20, 40, 40, 60])):
            self._step()
        self._close()

    @property
    def devices(self) -> list[str]:
        """Every device, and every partition."""
        return sorted({row["dev"] for row in self.manifest["disks"]})

    def _above(self, dev: str) -> set[str]:
        """Returns the devices that hand all of their writes on to a device."""
        return {
            upper for upper, below in self.beneath.items() if any(one.disk == dev for one in below)
        }

    def _add(self, row: Row, level: int, may_be_parted: bool) -> None:
        """Add a device, perhaps with partitions."""
        dev, disks = row["dev"], self.manifest["disks"]
        disks.append({**row, "bytes": SECTOR * BOUNDS[-1]})
        if not may_be_parted or self.numbers.random() < 0.4:
            spaces = [Space(dev, dev, 0, BOUNDS[-1], level)]
        else:
            spaces = []
            chosen = sorted(self.numbers.sample(range(3), self.numbers.randint(1, 3)))
            for number, at in enumerate(chosen, 1):
                above = f"259:{self._partitions + self._apart}"
                name = f"8:{int(dev[2:]) + number}" if level == 0 else above
                self._partitions += level > 0
                first, length = BOUNDS[at], BOUNDS[at + 1] - BOUNDS[at]
                part = {"dev": name, "bytes": SECTOR * length, "partition_of": dev}
                disks.append(part | {"start": first})
                spaces.append(Space(name, dev, first, length, level))
        self.spaces[dev] = spaces
        self.free += spaces

    def _stack(self, number: int) -> None:
        """Stack a device on others, or two volumes on one."""
        numbers = self.numbers
        free = [space for space in self.free if space.level < LEVELS]
        kind = numbers.choice(["dm", "dm", "lvm", "md", "loop", "loop", "loop", "old", "block"])
        if kind in ("loop", "old"):
            spaces = [space for space in (*free, *self.mounted) if space.level < LEVELS]
            if spaces:
                self._put_in_file(number, numbers.choice(spaces), kind == "old")
            return
        count = 2 if kind == "md" or (kind == "dm" and numbers.random() < 0.2) else 1
        if len(free) < count:
            return
        below = numbers.sample(free, count)
        for space in below:
            self.free.remove(space)
        level, on = 1 + max(space.level for space in below), [space.dev for space in below]
        for name in range(2 if kind == "lvm" else 1):
            dev, more = f"253:{10 * number + name + self._apart}", {}
            if kind == "md":
                dev = f"9:{number + self._apart}"
            elif kind == "block":
                dev = f"7:{number + self._apart}"
                more = {"backing_file": f"/dev/{on[0]}", "backing_ino": None}
            self._add({"dev": dev, "on": on, **more}, level, kind in ("md", "block"))
            self.beneath[dev] = below

    def _put_in_file(self, number: int, space: Space, is_old: bool) -> None:
        """Add a loop device in a file; an older trace does not tell in which one."""
        if space in self.free:
            self._mount(space)
        unused = [ino for ino in FILES if ino not in self._files[space.dev]]
        if not unused:
            return
        dev = f"7:{number + self._apart}"
        row = {"dev": dev, "on": [space.dev], "backing_file": f"/{space.dev}/{number}"}
        self._files[space.dev].append(self.numbers.choice(unused))
        if not is_old:
            row["backing_ino"] = self._files[space.dev][-1]
        self._add(row, space.level + 1, True)

    def _mount(self, space: Space) -> None:
        self.free.remove(space)
        self.mounted.append(space)
        self._files[space.dev] = []
        mount = {"dev": space.dev, "path": f"/{space.dev}", "type": "ext4", "source": "x"}
        self.manifest["mounts"].append(mount)
        if self.numbers.random() < 0.4:
            self.manifest["own_files"][space.dev] = [OWN]

    def _forget_starts(self) -> None:
        """Leave out where some partitions begin: those with a file system that are alone."""
        alone = [parts[0].dev for parts in self.spaces.values() if len(parts) == 1]
        mounted = {space.dev for space in self.mounted}
        for row in self.manifest["disks"]:
            may_be_untold = "start" in row and row["dev"] in alone and row["dev"] in mounted
            if may_be_untold and self.numbers.random() < 0.5:
                del row["start"]

    def _step(self) -> None:
        numbers = self.numbers
        self.now += numbers.choice([0, 0, 1, 3])
        dev, what = numbers.choice([*self.spaces]), numbers.random()
        space = numbers.choice(self.spaces[dev])
        if what < 0.05:
            self._bio(space, numbers.choice(self.jobs), rwbs=numbers.choice(["FWS", "F"]), length=0)
        elif what < 0.1:
            self._bio(space, numbers.choice(self.jobs), rwbs=numbers.choice(["R", "RA", "D"]))
        elif what < 0.15:
            self._bio(space, numbers.choice(self.jobs), event=numbers.choice(["remap", "complete"]))
        elif what < 0.18:
            self._lose()
        elif dev in self.idle:
            return
        elif space in self.mounted and what < 0.8:
            self._write_back(space)
        elif what < 0.85:
            self._bio(Space(dev, dev, 0, BOUNDS[0], 0), numbers.choice(self.jobs))
        else:
            self._write(space, numbers.choice(self.jobs))

    def _write_back(self, space: Space) -> None:
        """Write a file back, by the flusher; others write at the same time."""
        numbers, tid = self.numbers, self.numbers.choice(self.flushers)
        ino = numbers.choice([*FILES, *FILES, OWN, 81])
        named = {"tid": tid, "pid": tid}
        work = {**named, "bdi": space.disk, "reason": "periodic"}
        inode = {**named, "dev": space.disk, "ino": ino}
        for table, row in (("writeback", work), ("inode_writeback", inode)):
            self.now += 1
            self.tables[table].append({**row, "ts": self.now, "event": "start"})
        self.now += 1
        for _ in range(numbers.randint(1, 3)):
            self._write(space, tid)
            self.now += numbers.choice([0, 1])
            if numbers.random() < 0.3:
                self._write(space, numbers.choice(self.jobs))
            others = [other for other in self.mounted if other.disk not in (space.disk, *self.idle)]
            if others and numbers.random() < 0.2:
                self._write(numbers.choice(others), tid)  # no write of the file
        for table, row, event in (
            ("inode_writeback", inode, "end"),
            ("writeback", work, "written"),
        ):
            self.now += 1
            self.tables[table].append({**row, "ts": self.now, "event": event})
        self.now += 1
        if numbers.random() < 0.3:
            self._write(space, tid)

    def _write(self, space: Space, tid: int) -> None:
        """Write to a device; those below may be written at once, by the same thread."""
        if space.disk not in self.idle:
            self._bio(space, tid)
        below = self.beneath.get(space.disk, [])
        if below and self.numbers.random() < 0.5:
            self.now += self.numbers.choice([0, 1])
            self._write(self.numbers.choice(below), tid)

    def _bio(
        self, space: Space, tid: int, *, event: str = "bio_queue", rwbs: str = "", length: int = -1
    ) -> None:
        numbers = self.numbers
        length = numbers.choice(LENGTHS) if length < 0 else length
        last = space.first + space.length - max(length, 1)
        at = numbers.choice([space.first, last, numbers.randint(space.first, last)])
        rwbs = rwbs or numbers.choice(["W", "W", "WS", "FWFS"])
        row = {"ts": self.now, "event": event, "tid": tid, "pid": tid, "comm": "x", "rwbs": rwbs}
        self.tables["block"].append({**row, "dev": space.disk, "sector": at, "nr_sector": length})

    def _lose(self) -> None:
        """Lose events while no file is written back."""
        gap = {"stream": "ftrace-machine-cpu0", "cpu": 0, "cause": "buffer overrun", "count": 7}
        self.tables["loss"].append({**gap, "from": self.now + 1, "to": self.now + 4})
        self.now += 5

    def _close(self) -> None:
        """Write to each device that was written: none was written by the recorder alone."""
        for dev in {row["dev"]: None for row in self.tables["block"]}:
            if dev not in self.idle:
                self._bio(self.numbers.choice(self.spaces[dev]), self.jobs[0])
