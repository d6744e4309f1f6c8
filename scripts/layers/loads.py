"""The loads of a guest with stacked devices.

    python loads.py written NOTES FOLDER ...    write files of known lengths in each folder
    python loads.py durable NOTES FOLDER DISK   write as training does, and make it durable

Each leaves what it found out in NOTES, as JSON. Needs only Python's standard library.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

PAGE = 4096
FSYNCED = (3, 7, 13, 29, 61, 131)
"""Pages of the files that are fsynced."""
LEFT = 37
"""Pages of the file that a sync of the file system writes."""
_DRAINED_S = 300.0
"""Most seconds in which caches write their dirty data to the disks."""

ROUNDS, THINK_S, CACHE_PAGES, CACHE_WRITES = 150, 0.05, 1021, 5
CHECKPOINT_EVERY, CHECKPOINT_PAGES = 30, 251


def _opened(path: str) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR, 0o600)


def written(*folders: str) -> dict[str, Any]:
    """Writes a file of each length by an fsync, and one by a sync; then reads them from the device.

    Then has bcache write the dirty data of its caches to the disks behind them.
    """
    found = {}
    for folder in folders:
        files = {}
        for pages in FSYNCED:
            fd = _opened(f"{folder}/{pages}")
            os.pwrite(fd, os.urandom(PAGE * pages), 0)
            os.fsync(fd)
            files[os.fstat(fd).st_ino] = pages
            os.close(fd)
        fd = _opened(f"{folder}/left")
        os.pwrite(fd, os.urandom(PAGE * LEFT), 0)
        os.sync()
        found[folder] = {"files": files, "left": os.fstat(fd).st_ino}
        os.close(fd)
        for name in (*FSYNCED, "left"):
            _read(f"{folder}/{name}")
    drain()
    return {"pid": os.getpid(), "folders": found}


def _read(path: str) -> None:
    """Reads a file past the page cache, and leaves no time of access to be written."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_NOATIME)
    with mmap.mmap(-1, PAGE * max(FSYNCED)) as buffer:
        while os.readv(fd, [buffer]):
            pass
    os.close(fd)


def drain() -> None:
    """Has bcache write its dirty data to the disks, and waits until it has none."""
    folders = list(Path("/sys/block").glob("bcache*/bcache"))
    for folder in folders:
        (folder / "writeback_running").write_text("1")
    end = time.monotonic() + _DRAINED_S
    while time.monotonic() < end and any(_is_dirty(folder) for folder in folders):
        time.sleep(0.1)


def _is_dirty(folder: Path) -> bool:
    return (folder / "state").read_text().strip() == "dirty"


def durable(folder: str, disk: str) -> dict[str, Any]:
    """Writes lines of a log, pages of a cache and checkpoints in place, each with an fsync.

    The result has the sectors written to a disk (its kernel's name) until then.
    """
    chance = random.Random(23)
    fsyncs = []

    def sync(fd: int) -> None:
        begun = time.monotonic_ns()
        os.fsync(fd)
        fsyncs.append(time.monotonic_ns() - begun)

    log, cache, checkpoint = (_opened(f"{folder}/{name}") for name in ("log", "cache", "check"))
    begun = time.monotonic_ns()
    for number in range(1, ROUNDS + 1):
        for _ in range(CACHE_WRITES):
            place = chance.randrange(CACHE_PAGES) * PAGE
            os.pwrite(cache, chance.randbytes(PAGE), place)
        sync(cache)
        os.write(log, b"a line of the log, as long as they are\n")
        sync(log)
        if number % CHECKPOINT_EVERY == 0:
            os.pwrite(checkpoint, chance.randbytes(CHECKPOINT_PAGES * PAGE), 0)
            sync(checkpoint)
        time.sleep(THINK_S)
    took = time.monotonic_ns() - begun
    return {
        "pid": os.getpid(),
        "fsyncs": fsyncs,
        "total_ns": took,
        "disk_sectors": sectors_written(disk),
    }


def sectors_written(disk: str) -> int:
    """Returns the sectors written to a disk so far: Documentation/block/stat.rst."""
    return int(Path(f"/sys/block/{disk}/stat").read_text().split()[6])


def prepare(folder: str) -> None:
    """Gives the files of `durable` their place on the disk."""
    for name, pages in {"cache": CACHE_PAGES, "check": CHECKPOINT_PAGES, "log": 0}.items():
        fd = _opened(f"{folder}/{name}")
        os.write(fd, bytes(pages * PAGE))
        os.fsync(fd)
        os.close(fd)


if __name__ == "__main__":
    found = (written if sys.argv[1] == "written" else durable)(*sys.argv[3:])
    Path(sys.argv[2]).write_text(json.dumps(found))
