"""Processes that read files through descriptors, as Linux keeps them: numbers, and positions.

It is written from docs/reads.md (Older kernels) and the manual pages of the calls, not from the
code that infers accesses. The tables are those of a kernel that logs no accesses.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
PAGE = 4096


@dataclass(eq=False)
class File:
    """A file, and its size. The number of an inode counts on one device only."""

    dev: str
    ino: int
    size: int
    path: str


@dataclass(eq=False)
class Open:
    """An open file: several descriptors, of several processes perhaps, may share its position."""

    file: File
    flags: int = 0
    position: int = 0
    known: bool = True
    """False after a write at the end of the file: no call tells where that is, until a seek."""
    begun: bool = False
    """It was open when the recording began."""


@dataclass(eq=False)
class Process:
    """A process, its descriptors, and the target to which it belongs."""

    pid: int
    target: str | None
    table: dict[int, Open] = field(default_factory=dict)
    start_ns: int | None = None
    end_ns: int | None = None
    ppid: int = 1
    role: str = "target"

    def lowest(self) -> int:
        """The lowest number from 3 on that is free."""
        return next(number for number in range(3, 999) if number not in self.table)


class System:
    """Processes that open, read, seek, duplicate, fork and close.

    `accessed`: pages that calls read, by target and file, each time. `uses`: the same one by one,
    with the time of the call, the first page, and the number of pages. `unplaced`: bytes that calls
    read at positions that are not known, which are in neither.
    """

    def __init__(self, seed: int = 0) -> None:
        self.numbers, self.now = random.Random(seed), 1000
        self.tables: dict[str, list[Row]] = defaultdict(list)
        self.processes: list[Process] = []
        self.files: list[File] = []
        self.accessed: Counter[tuple[str | None, str, int]] = Counter()
        self.uses: list[tuple[str | None, int, str, int, int, int]] = []
        self.unplaced = 0

    # The world

    def file(self, dev: str, ino: int, size: int, path: str) -> File:
        self.files.append(File(dev, ino, size, path))
        return self.files[-1]

    def process(self, pid: int, target: str | None) -> Process:
        role = "target" if target else "other"
        self.processes.append(Process(pid, target, role=role))
        return self.processes[-1]

    def has_open(self, process: Process, number: int, what: Open) -> Open:
        """A descriptor that is open when the recording begins."""
        what.begun = True
        process.table[number] = what
        return what

    # Calls: each logs a row, and moves the time on.

    def call(self, process: Process, name: str, ret: int, **arguments: Any) -> int:
        begun = self.now
        row = {"ts": begun, "dur_ns": 3, "pid": process.pid, "tid": process.pid, "name": name}
        if process.target is not None:  # calls of other processes are not recorded
            self.tables["syscalls"].append(row | {"ret": ret} | arguments)
        self.now += 3 + self.numbers.choice([1, 2, 9])
        return begun

    def open(self, process: Process, file: File, flags: int = 0) -> int:
        number = process.lowest()
        process.table[number] = Open(file, flags)
        row = {"ts": self.now - 1, "pid": process.pid, "tid": process.pid, "event": "open"}
        if process.target is not None:
            self.tables["opens"].append(row | {"path": file.path})
        self.call(process, "openat", number, flags=flags)
        return number

    def read(self, process: Process, number: int, length: int, name: str = "read") -> int:
        what = process.table[number]
        got = max(0, min(length, what.file.size - what.position))
        asked = {"length": length} if name == "read" else {}
        begun = self.call(process, name, got, fd=number, **asked)
        if what.known:
            self.use(process, what, begun, what.position, got)
        elif process.target is not None:
            self.unplaced += got
        what.position += got
        return got

    def pread(self, process: Process, number: int, length: int, offset: int) -> int:
        what = process.table[number]
        got = max(0, min(length, what.file.size - offset))
        begun = self.call(process, "pread64", got, fd=number, length=length, offset=offset)
        self.use(process, what, begun, offset, got)
        return got

    def use(self, process: Process, what: Open, begun: int, offset: int, got: int) -> None:
        if got == 0 or what.flags & os.O_DIRECT or process.target is None:
            return
        first, last = offset // PAGE, (offset + got - 1) // PAGE
        file = what.file
        self.accessed[process.target, file.dev, file.ino] += last - first + 1
        self.uses.append((process.target, begun, file.dev, file.ino, first, last - first + 1))

    def write(self, process: Process, number: int, length: int) -> None:
        """Writes; a file that is open for appending is written at its end."""
        what = process.table[number]
        if what.flags & os.O_APPEND:
            what.position, what.known = what.file.size, False
        self.call(process, "write", length, fd=number, length=length)
        what.position += length
        what.file.size = max(what.file.size, what.position)

    def lseek(self, process: Process, number: int, offset: int, whence: int) -> None:
        what = process.table[number]
        base = {os.SEEK_SET: 0, os.SEEK_CUR: what.position, os.SEEK_END: what.file.size}[whence]
        what.position, what.known = base + offset, True
        self.call(process, "lseek", what.position, fd=number)

    def dup(self, process: Process, number: int, to: int | None = None) -> int:
        what = process.table[number]
        made = process.lowest() if to is None else to
        process.table[made] = what
        self.call(process, "dup" if to is None else "dup2", made, fd=number)
        return made

    def close(self, process: Process, number: int) -> None:
        del process.table[number]
        self.call(process, "close", 0, fd=number)

    def fork(self, parent: Process, pid: int) -> Process:
        """A child has a table of its own, with the same open files."""
        child = Process(pid, parent.target, dict(parent.table), role=parent.role)
        child.start_ns, child.ppid = self.now + 1, parent.pid
        self.processes.append(child)
        self.call(parent, "clone", pid, flags=0x1200011)  # of fork() in glibc
        return child

    def end(self, process: Process) -> None:
        process.end_ns = self.now
        process.table = {}
        self.now += 10

    # Tables

    def look(self, positions: bool = True) -> None:
        """A look at the files that the targets' processes have open."""
        numbers: dict[Open, int] = {}
        for process in self.processes:
            for number, what in process.table.items() if process.target else ():
                description = numbers.setdefault(what, len(numbers))
                row = {"ts": self.now - 9, "dur_ns": 1, "pid": process.pid, "fd": number}
                row |= {"description": description, "path": what.file.path, "flags": what.flags}
                position = what.position if positions else None
                self.tables["descriptors"].append(row | {"position": position})

    def recorded(self) -> dict[str, list[Row]]:
        """The tables of a recording, with a look at what was open when it began."""
        rows = []
        for process in self.processes:
            row = {"pid": process.pid, "tid": process.pid, "ppid": process.ppid, "comm": "job"}
            row |= {"role": process.role, "target": process.target}
            row |= {"start_ns": process.start_ns, "end_ns": process.end_ns}
            rows.append(row)
        self.tables["processes"] = rows
        self.tables["files"] = [
            {"dev": file.dev, "ino": file.ino, "path": file.path, "size": file.size}
            for file in self.files
        ]
        return dict(self.tables)


def drawn(seed: int, calls: int = 150) -> System:
    """Random programs: two targets and a stranger, with equal numbers of descriptors."""
    system = System(seed)
    run(system, calls)
    return system


def run(system: System, calls: int) -> None:
    """Lets random programs run in a system."""
    numbers = system.numbers
    files = [
        system.file(dev, ino, size, f"/data/{dev}/{ino}")
        for dev, ino, size in (
            ("8:1", 7, 3 * PAGE + 100),
            ("8:2", 7, 40 * PAGE),
            ("8:1", 9, 11 * PAGE - 1),
            ("8:2", 12, 25 * PAGE + 1),
        )
    ]
    first = system.process(100, "a")
    second, stranger = system.process(200, "b"), system.process(300, None)
    shared = system.has_open(first, 3, Open(files[0], position=5000))
    first.table[4] = shared
    system.has_open(first, 5, Open(files[1], position=PAGE))
    system.has_open(first, 7, Open(files[1], position=PAGE))  # as far, but a position of its own
    system.has_open(second, 3, Open(files[2], flags=os.O_APPEND))
    system.has_open(stranger, 3, Open(files[1], position=3 * PAGE))
    system.look()
    children = 0
    for _ in range(calls):
        alive = [process for process in system.processes if process.end_ns is None]
        process = numbers.choice(alive)
        kinds = ["open", "fork"] if not process.table else [
            "read", "read", "read", "readv", "pread", "pread", "lseek", "lseek", "dup", "dup2",
            "open", "close", "write", "fork", "end",
        ]  # fmt: skip
        kind = numbers.choice(kinds)
        number = numbers.choice([*process.table]) if process.table else -1
        length = numbers.choice([1, 100, PAGE, PAGE + 1, 3000, 3 * PAGE, 20 * PAGE])
        match kind:
            case "read" | "readv":
                system.read(process, number, length, kind)
            case "pread":
                size = process.table[number].file.size
                system.pread(process, number, length, numbers.randrange(size + PAGE))
            case "lseek":
                what = process.table[number]
                whence = numbers.choice([os.SEEK_SET, os.SEEK_CUR, os.SEEK_END])
                low = {os.SEEK_SET: 0, os.SEEK_CUR: -what.position, os.SEEK_END: -what.file.size}
                offset = max(low[whence], numbers.choice([-2 * PAGE, -5, 0, 777, 2 * PAGE]))
                system.lseek(process, number, offset, whence)
            case "dup":
                system.dup(process, number)
            case "dup2":
                system.dup(process, number, numbers.choice([number + 1, 3, 9]))
            case "open":
                flags = numbers.choice([0, 0, 0, os.O_APPEND | os.O_RDWR, os.O_DIRECT])
                system.open(process, numbers.choice(files), flags)
            case "close":
                system.close(process, number)
            case "write":
                flags = process.table[number].flags
                if flags & os.O_APPEND:
                    system.write(process, number, length)
            case "fork" if children < 5:
                children += 1
                system.fork(process, 1000 + children)
            case "end" if process.pid > 1000:
                system.end(process)
