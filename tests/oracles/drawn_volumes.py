"""File systems on disks and partitions, drawn at random, as a manifest tells of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

AT, FAR = 1000, 100_000
"""The sectors at which the partitions begin."""
KINDS = ("ext4", "ext4", "xfs", "btrfs")


@dataclass
class Volume:
    """A file system: `dev` and `named` are its names in its own events, `bdi` that of write-back;
    `places` are the disks and first sectors of its devices."""

    kind: str
    dev: str
    bdi: str
    places: list[tuple[str, int]]
    named: dict = field(default_factory=dict)

    @property
    def roots(self) -> tuple[int, ...]:
        return (5, 5, 5, 256) if self.kind == "btrfs" else ()


def draw_volumes(case: int, numbers: random.Random) -> tuple[list[Volume], dict[str, list]]:
    """The file systems of a case, and what the manifest has of them.

    On the disk itself, on one partition or two, on a loop device whose file is on a partition. A
    trace may not tell where partitions begin.
    """
    disk = f"8:{16 * case}"
    manifest: dict[str, list] = {"mounts": [], "btrfs": []}
    manifest["disks"] = [{"dev": disk, "name": f"sd{case}", "bytes": 512 * 10 * FAR}]
    layout = numbers.choice(["whole", "one", "one", "two", "two", "loop"])
    places = [(disk, disk, 0)]
    told, by_disk = numbers.random() < 0.9, numbers.random() < 0.9
    if layout != "whole":
        parts = ((f"8:{16 * case + 1}", AT, FAR - AT), (f"8:{16 * case + 2}", FAR, FAR))
        for dev, start, length in parts:
            row = {"dev": dev, "bytes": 512 * length, "partition_of": disk}
            manifest["disks"].append(row | ({"start": start} if told else {}))
        used = numbers.sample(parts, 2 if layout == "two" else 1)
        # Somebody else's trace may name the partition in block events, too.
        places = [(dev, *((disk, start) if by_disk else (dev, 0))) for dev, start, _ in used]
    volumes: list[Volume] = []
    for dev, on, start in places:
        kind = numbers.choice(KINDS)
        if volumes and volumes[0].kind == kind == "btrfs" and numbers.random() < 0.5:
            volumes[0].places.append((on, start))  # another device of the same one
            manifest["btrfs"][0]["devices"].append(dev)
            continue
        if kind == "btrfs":
            fsid = f"35cbcaf9-a890-4565-b69e-{case:08x}{len(volumes):04x}"
            bdi, number = f"btrfs-{2 * case + len(volumes)}", f"0:{50 + 2 * case + len(volumes)}"
            volumes.append(Volume(kind, number, bdi, [(on, start)], {"dev": None, "fsid": fsid}))
            row = {"fsid": fsid, "bdi": bdi, "dev": number, "devices": [dev]}
            manifest["btrfs"].append(row)
        else:
            volumes.append(Volume(kind, dev, disk, [(on, start)], {"dev": dev}))
    if layout == "loop":
        loop = f"7:{case}"
        manifest["disks"].append({"dev": loop, "name": f"loop{case}", "on": [volumes[0].dev]})
        volumes.append(Volume("ext4", loop, loop, [(loop, 0)], {"dev": loop}))
    for each in volumes:
        mount = {"dev": each.dev, "path": f"/{each.dev}", "source": "x", "type": each.kind}
        manifest["mounts"].append(mount)
    return volumes, manifest
