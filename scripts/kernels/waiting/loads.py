"""Loads that read files and loads that sleep, in known numbers.

    python -m scripts.kernels.waiting.loads JOB.json    run the loads of a job: see `loads.run`

Needs only Python's standard library.
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from scripts.kernels.loads import PAGE, Said, run

SIZES = {
    "in pieces": 211, "at once": 499, "at positions": 127, "in order": 89, "shared": 131,
    "one by one": 101, "far apart": 1009, "holes": 103, "cached": 73, "mapped": 107,
    "mapped at random": 109, "direct": 16, "nameless": 61,
}  # fmt: skip
"""Pages of each file."""
CACHED = ("cached", "mapped", "nameless")
"""Files whose pages are in the cache since before the recording."""
STRIDE = 37
SLEEPS, ANSWERS, SYNCS = 73, 71, 67
_PAUSE_S = 0.003
_SEED = 5


def make_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Makes the files; returns the inode and size of each."""
    found = {}
    for name, pages in SIZES.items():
        with (folder / name).open("wb") as file:
            if name == "holes":
                file.truncate(pages * PAGE)
            else:
                file.write(os.urandom(pages * PAGE))
            file.flush()
            os.fsync(file.fileno())
            if name not in CACHED:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            found[name] = os.fstat(file.fileno()).st_ino, pages * PAGE
    return found


class _Reader:
    """Reads the files of a folder, and counts the pages of each."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.told: dict[str, dict[str, int]] = {}

    def open(self, name: str, flags: int = os.O_RDONLY, at_random: bool = False) -> int:
        """Opens a file; `at_random`: the kernel reads nothing ahead."""
        fd = os.open(f"{self._folder}/{name}", flags)
        if at_random:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd

    def took(self, name: str, at: int, size: int) -> int:
        """Counts the pages that `size` bytes are in; returns `size`."""
        if size:
            told = self.told.setdefault(name, {"accessed": 0})
            told["accessed"] += (at + size - 1) // PAGE - at // PAGE + 1
        return size

    def whole(self, name: str, fd: int, size: int) -> None:
        """Reads from the position to the end, and asks for no more.

        Linux 5.10 adds a page beyond the end of the file for a call that does.
        """
        at = os.lseek(fd, 0, os.SEEK_CUR)
        while rest := SIZES[name] * PAGE - at:
            at += self.took(name, at, len(os.read(fd, min(size, rest))))

    def knows(self, name: str, missed: int | None, read: int) -> None:
        """Notes how many pages were missed, unless that is the kernel's choice, and read."""
        told = self.told[name]
        told["read"] = read
        if missed is not None:
            told["missed"] = missed


def _by_position(reader: _Reader) -> None:
    for _ in range(3):  # cold, then cached
        fd = reader.open("in pieces")
        reader.whole("in pieces", fd, 7 * PAGE)
        os.close(fd)
        fd = reader.open("at once")
        reader.whole("at once", fd, SIZES["at once"] * PAGE)
        os.close(fd)
    fd = reader.open("in order", at_random=True)
    reader.whole("in order", fd, PAGE)
    os.close(fd)
    fd = reader.open("at positions")
    reader.whole("at positions", fd, 1000)
    for turn in range(11):
        at = os.lseek(fd, 11 * PAGE * turn // 3, os.SEEK_SET)
        reader.took("at positions", at, len(os.read(fd, 5000)))
    at = os.lseek(fd, -3 * PAGE, os.SEEK_END)
    reader.took("at positions", at, len(os.read(fd, 3 * PAGE)))
    os.close(fd)
    fd = reader.open("shared")
    other = os.dup(fd)
    for turn in range(4):  # one position for all of them
        child = os.fork()
        if child == 0:
            os.read(fd if turn % 2 else other, 9 * PAGE)
            os._exit(0)
        os.waitpid(child, 0)
        reader.took("shared", turn * 9 * PAGE, 9 * PAGE)
    reader.whole("shared", other, 5 * PAGE)
    for name in ("in pieces", "at once", "at positions", "shared"):
        reader.knows(name, None, SIZES[name])
    reader.knows("in order", SIZES["in order"], SIZES["in order"])


def _by_offset(reader: _Reader) -> None:
    draw = random.Random(_SEED)
    fd, pages = reader.open("one by one", at_random=True), SIZES["one by one"]
    for page in draw.sample(range(pages), pages):
        reader.took("one by one", page * PAGE, len(os.pread(fd, PAGE, page * PAGE)))
    reader.knows("one by one", pages, pages)
    fd, places = reader.open("far apart", at_random=True), range(0, SIZES["far apart"], STRIDE)
    for page in places:
        reader.took("far apart", page * PAGE, len(os.pread(fd, 100, page * PAGE + 7)))
    reader.knows("far apart", len(places), len(places))
    fd, pages = reader.open("holes", at_random=True), SIZES["holes"]
    for page in range(pages):
        reader.took("holes", page * PAGE, len(os.pread(fd, PAGE, page * PAGE)))
    reader.knows("holes", pages, pages)


def reading(folder: str) -> Said:
    """Reads by the file's position, by offsets, and past the cache."""
    reader = _Reader(folder)
    _by_position(reader)
    _by_offset(reader)
    for name in ("cached", "nameless"):
        fd = reader.open(name)
        reader.whole(name, fd, 2 * PAGE)
        reader.knows(name, 0, 0)
    fd = reader.open("direct", os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, SIZES["direct"] * PAGE) as memory:
        os.readv(fd, [memory])
    reader.told["direct"] = {"accessed": 0, "missed": 0, "read": 0}
    return reader.told


def mapping(folder: str) -> Said:
    """Touches each page of mapped files: of one that is cached, and of one that is not."""
    reader = _Reader(folder)
    draw = random.Random(_SEED)
    for name in ("mapped", "mapped at random"):
        fd, pages = reader.open(name), list(range(SIZES[name]))
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            if name == "mapped at random":
                mapped.madvise(mmap.MADV_RANDOM)
                draw.shuffle(pages)
            for page in pages:
                _ = mapped[page * PAGE]
                reader.took(name, page * PAGE, 1)
    reader.knows("mapped", 0, 0)
    reader.knows("mapped at random", len(pages), len(pages))
    return reader.told


def _slept() -> int:
    """Returns how often this process has gone to sleep, as the kernel counts it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def sleeping() -> Said:
    """Sleeps for some time. The kernel may not have to: on a busy machine, the time may be over."""
    before = _slept()
    for _ in range(SLEEPS):
        time.sleep(_PAUSE_S)
    return {"sleeps": _slept() - before}


def asking() -> Said:
    """Waits for answers from another process, which sees it asleep before it answers."""
    there, back, asker = os.pipe(), os.pipe(), Path(f"/proc/{os.getpid()}/stat")
    child = os.fork()
    if child == 0:
        for _ in range(ANSWERS):
            os.read(there[0], 1)
            while asker.read_text().rpartition(")")[2].split()[0] != "S":
                time.sleep(_PAUSE_S)
            os.write(back[1], b"x")
        os._exit(0)
    before = _slept()
    for _ in range(ANSWERS):
        os.write(there[1], b"x")
        os.read(back[0], 1)
    sleeps = _slept() - before
    os.waitpid(child, 0)
    return {"sleeps": sleeps}


def syncing(folder: str) -> Said:
    """Appends a page to a file and fsyncs it, again and again."""
    fd = os.open(f"{folder}/synced", os.O_CREAT | os.O_RDWR, 0o600)
    sleeps = 0
    for number in range(SYNCS):
        os.pwrite(fd, os.urandom(PAGE), number * PAGE)
        before = _slept()
        os.fsync(fd)
        sleeps += _slept() - before
    return {"sleeps": sleeps}


LOADS: tuple[Callable[..., Said], ...] = (reading, mapping, sleeping, asking, syncing)

if __name__ == "__main__":
    run(Path(sys.argv[1]), LOADS)
