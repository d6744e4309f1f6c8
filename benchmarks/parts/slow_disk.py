"""A disk that takes a stated time for each request: a file system in user space with one file.

/usr/bin/python3 slow_disk.py FOLDER --bytes N --request-ms MS --log FILE

The file FOLDER/disk is to be put under a loop device that opens it with direct I/O. One request is
served at a time, as by one arm; each is a line of the log: when it began and ended (ns of
CLOCK_MONOTONIC), its offset and its length (bytes), r or w. A flush is a request of no length. The
data lie in memory. Ends when it is unmounted.

It runs under the system's own Python, which is the one that Debian's pyfuse3 is for.
"""

from __future__ import annotations

import argparse
import errno
import mmap
import stat
import time
from pathlib import Path
from typing import Any, TextIO

import pyfuse3
import trio

DISK = pyfuse3.ROOT_INODE + 1


class SlowDisk(pyfuse3.Operations):  # type: ignore[misc]
    """The folder with its one file."""

    def __init__(self, size: int, request_s: float, log: TextIO) -> None:
        super().__init__()
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

    async def lookup(self, parent: int, name: bytes, ctx: Any = None) -> Any:
        if name != b"disk":
            raise pyfuse3.FUSEError(errno.ENOENT)
        return self._facts(DISK)

    async def open(self, inode: int, flags: int, ctx: Any) -> Any:
        return pyfuse3.FileInfo(fh=inode, direct_io=True)

    async def _serve(self, offset: int, length: int, how: str) -> None:
        begun = time.monotonic_ns()
        await trio.sleep(self.request_s)
        self.log.write(f"{begun} {time.monotonic_ns()} {offset} {length} {how}\n")

    async def read(self, fh: int, offset: int, length: int) -> bytes:
        async with self.arm:
            await self._serve(offset, length, "r")
            return self.memory[offset : offset + length]

    async def write(self, fh: int, offset: int, data: bytes) -> int:
        async with self.arm:
            self.memory[offset : offset + len(data)] = data
            await self._serve(offset, len(data), "w")
            return len(data)

    async def fsync(self, fh: int, datasync: bool) -> None:
        async with self.arm:
            await self._serve(0, 0, "f")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--request-ms", type=float, required=True)
    parser.add_argument("--log", required=True)
    given = parser.parse_args()
    with Path(given.log).open("w", buffering=1) as log:
        disk = SlowDisk(given.bytes, given.request_ms / 1e3, log)
        pyfuse3.init(disk, given.folder, {"fsname=slow_disk"})
        try:
            trio.run(pyfuse3.main)
        finally:
            pyfuse3.close(unmount=False)


if __name__ == "__main__":
    main()
