"""A small file system that two programs write to, with its events and the truth about its pages.

It is written from docs/what-if.md. It knows every file as an object, with its name, so it needs no
events to tell which pages are the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
JOB, OTHER = 7, 8
"""Threads: system calls are recorded of the first alone."""
NAMES = ("checkpoint", "log", "cache")


@dataclass(eq=False)
class File:
    """A file: its inode number, the block of each page, and the file that took its place."""

    ino: int
    blocks: dict[int, int] = field(default_factory=dict)
    taken_by: File | None = None
    exists: bool = True
    named: bool = True
    """Found with its name at the end."""

    @property
    def last(self) -> File:
        """The last file that is known to have had its path."""
        return self if self.taken_by is None else self.taken_by.last


@dataclass(frozen=True)
class Written:
    """A page write-back: the page of the device, and the file and place in it, if it has one."""

    page: int
    file: File | None
    index: int
    metadata: bool = False


class FileSystem:
    """Draws what two programs do to a file system, until `steps` things are done."""

    def __init__(self, number: int, numbers: random.Random) -> None:
        self.dev = f"8:{16 * number}"
        self._threads = 100 * number  # those of other file systems do other things meanwhile
        self.numbers = numbers
        self.tables: dict[str, list[Row]] = {
            name: [] for name in ("block", "extents", "file_writes", "syscalls", "files")
        }
        self.written: list[Written] = []
        self._names: dict[tuple[int, str], File] = {}
        self._used: set[int] = set()
        self._inodes: set[int] = set()
        self._fresh = 10_000
        self._now = 0
        for _ in range(numbers.choice([0, 1, 5, 20, 40])):
            self._now += numbers.choice([1, 1, 5])
            self._do()
        for (tid, name), file in self._names.items():
            file.named = numbers.random() < 0.8
            if file.named:
                path = f"/m/{tid}/{name}"
                self.tables["files"].append({"dev": self.dev, "ino": file.ino, "path": path})

    def _do(self) -> None:
        tid = self._threads + self.numbers.choice([JOB, JOB, OTHER])
        name = self.numbers.choice(NAMES)
        file = self._names.get((tid, name))
        what = self.numbers.choice(
            ["truncate", "truncate", "overwrite", "rename", "rename", "held", "unlink", "metadata"]
        )
        if what == "metadata":
            self._bio(tid, self.numbers.randrange(900, 904), 1, "WM")
            self.written.append(Written(self._last_page(), None, 0, True))
        elif what in ("rename", "held"):
            self._rename(tid, name, file, held=what == "held")
        elif file is None:
            self._names[tid, name] = self._put(tid, self._made())
        elif what == "unlink":
            del self._names[tid, name]
            self._event(tid, "free_inode", file)
            self._free(file)
        elif what == "overwrite":
            index = self.numbers.choice([*file.blocks])
            self._write(tid, file, [index])
        else:
            self._used -= {*file.blocks.values()}
            file.blocks.clear()
            self._event(tid, "alloc_da_blocks", file)
            self._put(tid, file)

    def _rename(self, tid: int, name: str, old: File | None, held: bool) -> None:
        new = self._put(tid, self._made(), late := self.numbers.random() < 0.5)
        begin, ret = self._now + 1, self.numbers.choice([0, 0, 0, -28])
        self._now = begin
        if old is not None:
            self._event(tid, "alloc_da_blocks", new)
        if late:
            self._write(tid, new, [*new.blocks])
        freed = ret == 0 and old is not None and not held
        if freed:
            self._now += self.numbers.choice([0, 1])
            self._event(tid, "free_inode", old)
        self._now += 1
        if tid == self._threads + JOB:
            call = {"tid": tid, "pid": tid, "name": "rename", "nr": 82, "ret": ret}
            self.tables["syscalls"].append({**call, "ts": begin, "dur_ns": self._now - begin})
            if freed:
                old.taken_by = new
        self._now += 1
        if ret:
            self._event(tid, "free_inode", new)
            self._free(new)
            return
        if old is not None:
            if held:
                self._event(tid, "free_inode", old)
            self._free(old)
        self._names[tid, name] = new

    def _made(self) -> File:
        ino = min({*range(11, 60)} - self._inodes)  # a number that was freed comes again
        self._inodes.add(ino)
        return File(ino)

    def _free(self, file: File) -> None:
        file.exists = False
        self._used -= {*file.blocks.values()}
        self._inodes.discard(file.ino)
        self._now += 1

    def _put(self, tid: int, file: File, later: bool = False) -> File:
        """Gives the file one to four pages, and writes them out unless that is done later."""
        pages = self.numbers.randint(1, 4)
        if known := self.numbers.random() < 0.9:
            free = [n for n in range(1, 60) if not self._used & {*range(n, n + pages)}]
            first = self.numbers.choice(free[:8])
        else:
            first = self._fresh  # no event tells of blocks that nobody else ever has
            self._fresh += pages
        self._used |= {*range(first, first + pages)}
        file.blocks = {n: first + n for n in range(pages)}
        if known:
            place = {"file_block": 0, "disk_block": first, "blocks": pages}
            row = {"ts": self._now, "tid": tid, "event": "known", "dev": self.dev}
            self.tables["extents"].append({**row, "ino": file.ino, **place})
        if not later:
            self._write(tid, file, [*file.blocks])
        return file

    def _write(self, tid: int, file: File, indices: list[int]) -> None:
        self._bio(tid, file.blocks[indices[0]], len(indices), "W")
        for index in indices:
            page = file.blocks[index]
            self.written.append(Written(page, file if page < 10_000 else None, index))

    def _bio(self, tid: int, page: int, pages: int, rwbs: str) -> None:
        row = {"ts": self._now, "event": "bio_queue", "tid": tid, "pid": tid, "comm": "x"}
        place = {"dev": self.dev, "sector": 8 * page, "nr_sector": 8 * pages}
        self.tables["block"].append({**row, **place, "rwbs": rwbs})

    def _last_page(self) -> int:
        return int(self.tables["block"][-1]["sector"] // 8)

    def _event(self, tid: int, event: str, file: File | None) -> None:
        row = {"ts": self._now, "tid": tid, "event": event, "dev": self.dev}
        self.tables["file_writes"].append({**row, "ino": file.ino if file else None})


def identified(written: list[Written], identity: str) -> tuple[list[Any], int]:
    """Each write-back's page by an identity, and the number of those that have another identity."""
    pages: list[Any] = []
    fell_back = 0
    for one in written:
        block = ("block", one.page)
        if identity == "block":
            pages.append(block)
        elif one.file is None:
            pages.append(block)
            fell_back += not one.metadata
        elif identity == "file":
            pages.append((id(one.file), one.index))
        elif identity == "index":
            pages.append(one.index)
        else:
            last = one.file.last
            pages.append((id(last), one.index))
            fell_back += not (last.exists and last.named)
    return pages, fell_back
