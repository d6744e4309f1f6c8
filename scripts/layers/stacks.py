"""Stacks of devices: the disks that each needs, and the commands that build it in a guest.

Needs only Python's standard library.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MODULES = (
    *("dm_mod", "dm_crypt", "xts", "ecb", "raid1", "raid0", "loop"),
    *("dm_writecache", "dm_cache", "dm_cache_smq", "bcache"),
    *("libnvdimm", "nd_pmem", "nd_btt", "nd_e820"),
)
"""Modules of the kernel that the stacks and layers need."""
PARTITION_SECTOR = 4096
"""The first sector of the partition on a disk that has one."""
_KEY = "00112233445566778899aabbccddeeff" * 4
"""A key for dm-crypt; a test has nothing to hide."""


@dataclass(frozen=True)
class Stack:
    """Devices that lie on each other."""

    name: str
    disks: int
    """Number of disks at its bottom."""
    partitioned: bool
    """The stack lies on the first partition of each disk."""
    build: Callable[[str, list[str]], list[str]]
    """Takes a name and the disks (paths); returns the devices built, from the lowest to the top."""
    copies: int = 1
    """Number of times that each page reaches the lowest level while it is written."""
    is_cache: bool = False
    """The first disk is slow, and the second an SSD that caches it (`slow_disk.py`)."""
    is_late: bool = False
    """The first disk gets the pages later. No event tells whose they are then."""
    remaps: bool = True
    """Events tell of each bio below from which place it comes; those of a cache never do."""


def built(command: list[str], text: str | None = None) -> str:
    """Runs a command that builds a device; returns its output. Raises RuntimeError."""
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {(ran.stderr or ran.stdout).strip()}")
    return ran.stdout.strip()


def sectors(device: str) -> int:
    """Returns the length of a device, in sectors of 512 bytes."""
    return int(built(["blockdev", "--getsz", device]))


def mapped(name: str, *lines: str) -> str:
    """Makes a device of device mapper with this table."""
    built(["dmsetup", "create", "--noudevsync", "--noudevrules", name], "\n".join(lines) + "\n")
    return f"/dev/mapper/{name}"


def _linear(name: str, disks: list[str]) -> list[str]:
    return [mapped(name, f"0 {sectors(disks[0])} linear {disks[0]} 0")]


def _crypt(name: str, disks: list[str]) -> list[str]:
    length = sectors(disks[0])
    return [mapped(name, f"0 {length} crypt aes-xts-plain64 {_KEY} 0 {disks[0]} 0")]


def _segments(name: str, disks: list[str]) -> list[str]:
    """Two segments in the wrong order, as LVM makes them when a volume grows."""
    half = sectors(disks[0]) // 2 // 8 * 8
    lines = (f"0 {half} linear {disks[0]} {half}", f"{half} {half} linear {disks[0]} 0")
    return [mapped(name, *lines)]


def _raid(level: str) -> Callable[[str, list[str]], list[str]]:
    def build(name: str, disks: list[str]) -> list[str]:
        number = next(n for n in range(10, 100) if not Path(f"/sys/block/md{n}").exists())
        device = f"/dev/md{number}"
        bitmap = ["--bitmap=none", "--assume-clean"] if level == "1" else []
        options = [f"--level={level}", f"--raid-devices={len(disks)}", "--metadata=1.2", *bitmap]
        built(["mdadm", "--create", device, "--run", *options, *disks])
        return [device]

    return build


def _loop(name: str, disks: list[str]) -> list[str]:
    return [built(["losetup", "--find", "--show", "--direct-io=on", disks[0]])]


def _bcache(mode: str) -> Callable[[str, list[str]], list[str]]:
    """A cache for all writes. Dirty data stays in it until `writeback_running` is set."""

    def build(_name: str, disks: list[str]) -> list[str]:
        behind, cache = disks
        built(["make-bcache", "-w", "4k", "-b", "128k", "-C", cache, "-B", behind])
        for disk in (cache, behind):
            Path("/sys/fs/bcache/register").write_text(disk)
        folder = Path("/sys/class/block", Path(behind).name, "bcache")
        for setting, value in {
            "cache_mode": mode,
            "sequential_cutoff": "0",
            "cache/congested_read_threshold_us": "0",
            "cache/congested_write_threshold_us": "0",
            "writeback_running": "0",
            "writeback_percent": "0",
            "writeback_delay": "0",
        }.items():
            (folder / setting).write_text(value)
        return [f"/dev/{(folder / 'dev').resolve().name}"]

    return build


def _deep(name: str, disks: list[str]) -> list[str]:
    """LVM on LUKS on RAID 1 on partitions."""
    (array,) = _raid("1")(name, disks)
    (crypt,) = _crypt(f"{name}-crypt", [array])
    return [array, crypt, *_segments(name, [crypt])]


STACKS = (
    Stack("dm-linear", 1, False, _linear),
    Stack("dm-crypt", 1, False, _crypt),
    Stack("md RAID 1", 2, False, _raid("1"), 2),
    Stack("md RAID 0", 2, False, _raid("0")),
    Stack("dm-linear of two segments on a partition", 1, True, _segments),
    Stack("loop on a partition", 1, True, _loop, remaps=False),
    Stack("dm-linear on dm-crypt on md RAID 1 on partitions", 2, True, _deep, 2),
    Stack("bcache, writethrough", 2, False, _bcache("writethrough"), 2, is_cache=True),
    Stack("bcache, writeback", 2, False, _bcache("writeback"), is_cache=True, is_late=True),
)
"""From the simple to the deep; then caches."""


def disks_of(number: int, stack: Stack) -> list[str]:
    """Returns the serial numbers of a stack's disks."""
    return [f"stack{number}-{disk}" for disk in range(stack.disks)]


def found() -> dict[str, str]:
    """Returns the devices of the guest's disks, by serial number."""
    return {
        (block / "serial").read_text().strip(): f"/dev/{block.name}"
        for block in Path("/sys/block").glob("vd*")
    }


def number_of(device: str) -> str:
    """Returns a device's number, MAJOR:MINOR."""
    number = os.stat(device).st_rdev  # noqa: PTH116 a device, not a file
    return f"{os.major(number)}:{os.minor(number)}"
