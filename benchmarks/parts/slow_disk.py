"""A disk with a fixed time for each request: a file system in user space with one file.

/usr/bin/python3 slow_disk.py FOLDER --bytes N --request-ms MS --log FILE
    [--layer-pages N --age-ms MS]

Put the file FOLDER/disk under a loop device that opens it with direct I/O. It serves one request at
a time, like a disk with one arm. Each request is a line of the log: begin and end (ns of
CLOCK_MONOTONIC), offset and length (bytes), and kind: r(ead), w(rite), f(lush) or d(estage). A
flush has length 0. The data are in memory. The program ends when the disk is unmounted.

The extended attribute user.request_ms of FOLDER/disk sets the time of all later requests: 0, for
example, while a file system is made on the disk.

With --layer-pages there is a non-volatile layer before the arm: it takes writes at once, and
flushes have nothing to do. The page written longest ago goes to the disk when it reaches the age
--age-ms, or to make room, with one request per page. The last line of the log is an l with the
bytes left in the layer.

It runs under the system's Python, because Debian's pyfuse3 is built for it.
"""

from __future__ import annotations

import argparse
import errno
import mmap
import stat
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, TextIO

import pyfuse3
import trio

DISK = pyfuse3.ROOT_INODE + 1
PAGE = 4096
REQUEST_MS = b"user.request_ms"


class SlowDisk(pyfuse3.Operations):  # type: ignore[misc]
    """The folder with its one file."""

    def __init__(
        self, size: int, request_s: float, log: TextIO, pages: int = 0, age_s: float = 0.0
    ) -> None:
        super().__init__()
        self.layer = Layer(self, pages, age_s) if pages else None
        self.memory = mmap.mmap(-1, size)
        self.size = size
        self.request_s = request_s
        self.log = log
        self.arm = trio.Lock()

    def _facts(self, inode: int) -> Any:
        facts = pyfuse3.EntryAttributes()
        facts.st_ino = inode
        facts.st_mode = (
            stat.S_IFDIR | 0o700 if inode == pyfuse3.ROOT_INODE else stat.S_IFREG | 0o600
        )
        facts.st_size = 0 if inode == pyfuse3.ROOT_INODE else self.size
        facts.st_nlink = 1
        facts.attr_timeout = facts.entry_timeout = 3600
        return facts

    async def getattr(self, inode: int, ctx: Any = None) -> Any:
        return self._facts(inode)

    async def setattr(self, inode: int, attr: Any, fields: Any, fh: int, ctx: Any) -> Any:
        return self._facts(inode)

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: Any) -> None:
        if name != REQUEST_MS:
            raise pyfuse3.FUSEError(errno.ENOTSUP)
        self.request_s = float(value) / 1e3

    async def lookup(self, parent: int, name: bytes, ctx: Any = None) -> Any:
        if name != b"disk":
            raise pyfuse3.FUSEError(errno.ENOENT)
        return self._facts(DISK)

    async def open(self, inode: int, flags: int, ctx: Any) -> Any:
        return pyfuse3.FileInfo(fh=inode, direct_io=True)

    async def serve(self, offset: int, length: int, how: str) -> None:
        """Serves a request with the arm, whose lock the caller holds."""
        begun = time.monotonic_ns()
        await trio.sleep(self.request_s)
        self.log.write(f"{begun} {time.monotonic_ns()} {offset} {length} {how}\n")

    async def read(self, fh: int, offset: int, length: int) -> bytes:
        if self.layer is not None and self.layer.holds(offset, length):
            return self.memory[offset : offset + length]
        async with self.arm:
            await self.serve(offset, length, "r")
            return self.memory[offset : offset + length]

    async def write(self, fh: int, offset: int, data: bytes) -> int:
        if self.layer is not None:
            await self.layer.take(offset, len(data))
            self.memory[offset : offset + len(data)] = data
            return len(data)
        async with self.arm:
            self.memory[offset : offset + len(data)] = data
            await self.serve(offset, len(data), "w")
            return len(data)

    async def fsync(self, fh: int, datasync: bool) -> None:
        if self.layer is not None:
            return
        async with self.arm:
            await self.serve(0, 0, "f")


class Layer:
    """The dirty pages with their times of writing, the oldest first."""

    def __init__(self, disk: SlowDisk, pages: int, age_s: float) -> None:
        self.disk = disk
        self.pages = pages
        self.age_s = age_s
        self.dirty: OrderedDict[int, float] = OrderedDict()

    def holds(self, offset: int, length: int) -> bool:
        """Returns whether the whole range is in the layer."""
        last = (offset + length - 1) // PAGE
        return all(page in self.dirty for page in range(offset // PAGE, last + 1))

    async def take(self, offset: int, length: int) -> None:
        """Takes written pages; waits for room if there is none."""
        for page in range(offset // PAGE, (offset + length - 1) // PAGE + 1):
            while page not in self.dirty and len(self.dirty) >= self.pages:
                await self.destage()
            self.dirty[page] = trio.current_time()
            self.dirty.move_to_end(page)

    async def destage(self) -> None:
        """Writes the oldest page to the disk."""
        async with self.disk.arm:
            if self.dirty:
                page, _ = self.dirty.popitem(last=False)
                await self.disk.serve(page * PAGE, PAGE, "d")

    async def age(self) -> None:
        """Destages pages that are old enough, without end."""
        while True:
            oldest = next(iter(self.dirty.values()), None)
            now = trio.current_time()
            if oldest is not None and now >= oldest + self.age_s:
                await self.destage()
            else:
                await trio.sleep(0.01 if oldest is None else min(0.01, oldest + self.age_s - now))


async def _run(disk: SlowDisk) -> None:
    async with trio.open_nursery() as nursery:
        if disk.layer is not None:
            nursery.start_soon(disk.layer.age)
        await pyfuse3.main()
        nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--request-ms", type=float, required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--layer-pages", type=int, default=0)
    parser.add_argument("--age-ms", type=float, default=0.0)
    given = parser.parse_args()
    with Path(given.log).open("w", buffering=1) as log:
        request_s, age_s = given.request_ms / 1e3, given.age_ms / 1e3
        disk = SlowDisk(given.bytes, request_s, log, given.layer_pages, age_s)
        pyfuse3.init(disk, given.folder, {"fsname=slow_disk"})
        try:
            trio.run(_run, disk)
        finally:
            pyfuse3.close(unmount=False)
            if disk.layer is not None:
                now = time.monotonic_ns()
                log.write(f"{now} {now} 0 {len(disk.layer.dirty) * PAGE} l\n")


if __name__ == "__main__":
    main()
