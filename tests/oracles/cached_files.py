"""Files in a simulated page cache, and the true counts of what programs do with their pages.

It is written from docs/reads.md and probes/events/page_cache.py, not from the views' code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

PAGE = 4096
WINDOW = 16
"""Pages that the kernel maps around a fault, at multiples of this number."""
BATCH = 31
"""Folios that a read takes out of the cache at a time."""
SUMS = (
    *("accessed", "mapped", "missed", "read", "written", "evicted", "removed", "refaulted"),
    *("distance", "disk_bytes", "wait_ns"),
)

Key = tuple[str, int, str | None, int | None, int | None]
"""Device, inode number, target, epoch, and the pass of its process through that epoch (from 1)."""


@dataclass(eq=False)
class Process:
    """A process and what it has mapped; its main thread marks the epochs."""

    pid: int
    target: str | None
    epoch: int | None = None
    passes: Counter[int] = field(default_factory=Counter)
    """Number of times that it has begun an epoch of each number."""
    busy: int = 0
    """Operations of its threads under way."""
    tables: dict[File, set[int]] = field(default_factory=lambda: defaultdict(set))


@dataclass(eq=False)
class Thread:
    """A thread; `recorded` tells whether the table of system calls has its calls."""

    process: Process
    tid: int
    recorded: bool
    cpu: int = 0
    called: bool = False
    """True if it has made a call since its last access."""
    begun: bool = False
    """True if a call of its has been recorded."""
    returned: bool = False
    """True if a read of its has returned some bytes."""
    advised: bool = False
    """True if it has asked for pages that it does not read."""
    asked: tuple[File, int] | None = None
    """File and last page that its last call wanted."""


@dataclass(eq=False)
class File:
    """A file of some pages; those in `cached` are in memory."""

    dev: str
    ino: int
    size: int
    path: str | None
    tail: int = PAGE
    """Bytes of its last page."""
    folios: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Folio of each page in the cache: its first page and their number."""
    ahead: set[int] = field(default_factory=set)
    """Pages that were read ahead and that nobody has used."""
    marks: set[int] = field(default_factory=set)
    """Pages at which the next ones are read ahead."""
    evicted: dict[int, int] = field(default_factory=dict)
    """Evictions of all pages by then, at the eviction of each page."""
    busy: Counter[int] = field(default_factory=Counter)
    """Pages that a call under way has brought in."""
    calls: dict[Access, range] = field(default_factory=dict)
    """Pages that the calls under way want."""
    holes: set[int] = field(default_factory=set)
    user: Thread | None = None
    beyond: bool = True
    """False if programs read no page beyond its end."""

    @property
    def bytes(self) -> int:
        return (self.size - 1) * PAGE + self.tail


@dataclass(eq=False)
class Access:
    """A call or a fault under way, and the pages that it brought in itself."""

    thread: Thread
    file: File
    own: set[int] = field(default_factory=set)


class Account:
    """True counts of the pages of all files, by file, target, epoch and pass."""

    def __init__(self) -> None:
        self.counts: dict[Key, Counter[str]] = defaultdict(Counter)
        self.by: Counter[tuple[str, int, int]] = Counter()
        """Pages evicted, by device, inode number and the evicting thread."""
        self.unused: Counter[tuple[str, int]] = Counter()
        self.evictions = 0
        self.sole: Process | None = None
        """The only process that marks phases: also those of its target, and of nobody known."""
        self.strangers = 0
        """Counts of other programs and other targets amid its epochs: they are in none."""

    def add(self, file: File, thread: Thread | None, **counts: int) -> None:
        target = thread.process.target if thread else None
        marks = thread.process if thread else None
        if self.sole and (thread is None or target == self.sole.target):
            marks = self.sole
        elif self.sole:
            self.strangers += self.sole.epoch is not None
        epoch = marks.epoch if marks else None
        number = marks.passes[epoch] if marks and epoch is not None else None
        self.counts[(file.dev, file.ino, target, epoch, number)].update(counts)

    def come(self, file: File, first: int, pages: int, thread: Thread, access: Access | None):
        """A folio comes into the cache: for an access, or to be written to."""
        file.user = thread
        for page in range(first, first + pages):
            assert page not in file.folios
            file.folios[page] = first, pages
            file.marks.discard(page)
            gone = file.evicted.pop(page, None)
            if access is None:
                self.add(file, thread, written=1)
                continue
            file.busy[page] += page not in access.own
            access.own.add(page)
            file.ahead.add(page)
            self.add(file, thread, read=1)
            if gone is not None:
                self.add(file, thread, refaulted=1, distance=self.evictions - gone)

    def use(self, access: Access, pages: set[int], asked: set[int], mapped: int = 0) -> None:
        """Somebody uses cached pages; those that he asked for and has brought in were missed."""
        file = access.file
        file.user = access.thread
        file.ahead -= pages
        missed = len(asked & access.own)
        self.add(file, access.thread, accessed=len(pages), missed=missed, mapped=mapped)

    def go(self, file: File, first: int, pages: int, thread: Thread, evicted: bool) -> None:
        """A folio leaves the cache."""
        gone = range(first, first + pages)
        unused = file.ahead.intersection(gone)
        self.unused[(file.dev, file.ino)] += len(unused)
        file.ahead -= unused
        for page in gone:
            del file.folios[page]
            file.marks.discard(page)
        if not evicted:
            self.add(file, file.user, removed=pages)
            return
        self.add(file, file.user, evicted=pages)
        self.by[(file.dev, file.ino, thread.tid)] += pages
        for page in gone:
            self.evictions += 1
            file.evicted[page] = self.evictions
