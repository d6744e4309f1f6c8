"""Jobs in whose recordings some pages were in memory before.

It is written from docs/predict.md (Pages in memory before the recording), not from the code of
`tracer predict`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.oracles.called_jobs import JobCall, removal
from tests.oracles.last_calls import LastCalls
from tests.oracles.two_lists import FAULT, READ, WRITE

Row = dict[str, Any]
File = tuple[str, int]
Page = tuple[File, int]
SECOND = 1_000_000_000
DATA: tuple[File, ...] = (("8:1", 7), ("8:2", 7), ("8:1", 8), ("8:2", 9))
"""Files on two partitions, two of them with one inode number."""
LIBRARY, OTHERS = ("8:1", 10), ("8:2", 12)
"""A file that the first target maps, and one that no target uses."""
SIZES: dict[File, int] = {
    **dict(zip(DATA, (40, 30, 60, 50), strict=True)), LIBRARY: 60, OTHERS: 20,
}  # fmt: skip
READS = {"a": (DATA[0], *DATA[2:]), "b": DATA[1:3], "x": (*DATA, OTHERS)}
PIDS = {"a": 100, "b": 200, "x": 300, "r": 400}
"""Two targets, and two processes that are none: the last one reads nothing."""
EPOCHS = {"a": (None, 0, 1, 2), "b": (0, 1, None, 2)}
"""Epoch of each target in each stage; None: it marks none."""
CALLS = 60
"""Calls of a stage."""
WINDOW, AROUND = 16, 8
"""Pages that the kernel maps, and that it reads, around a fault."""
LIBRARY_READERS = {"some": "ab", "all": "ab", "around": "b"}
"""The targets that read the library by calls. Where it has one to name all pages, that is the
first one."""


class WarmJobs:
    """Two targets and others that read and write files by turns, for three seconds and pauses.

    `warm`: the share of pages that are in memory before. `takes`: the share of calls before which
    reclaim or a program takes the first pages of a file. `loses`: the share of arrivals that no
    event tells; each call reads one page then. `pause_ns`: time before each stage. `folios`: pages
    that come together are in folios of up to four.

    `library`: the first target maps a file. All of its pages were in memory before ("all"), or
    some of them, and a target has read it, so events have named each of its pages ("some"). With
    "around", a touch of a missing page reads those around it.
    """

    sizes: Mapping[File, int] = SIZES
    folio_sizes: Sequence[int] = (4, 2, 1)

    def __init__(
        self,
        seed: int,
        warm: float = 0.5,
        takes: float = 0.05,
        loses: float = 0,
        library: str | None = None,
        pause_ns: int = 0,
        folios: bool = False,
    ) -> None:
        self.draw, self.now = random.Random(seed), SECOND
        self.takes, self.loses, self.library = takes, loses, library
        self.lengths = (1,) if loses else (1, 1, 2, 4, 11)
        self.pause_ns, self.folios = pause_ns, folios
        self.tables: dict[str, list[Row]] = {
            name: [] for name in ("page_cache", "reclaim", "phases", "processes", "files")
        }
        self.calls: list[JobCall] = []
        self.came: set[Page] = set()
        """Pages that an event brings in."""
        self.recorded: Counter[tuple[str | None, int | None]] = Counter()
        """Pages that events read from the disk, by target and epoch."""
        self.stage: int | None = None
        self._cached = set(self._drawn(warm))
        self.before = frozenset(self._cached)
        self._mapped: set[Page] = set()
        self._folio: dict[Page, tuple[int, int]] = {}
        """The first page of the folio that a cached page is in, and their number."""
        self._openings: Counter[tuple[str, File]] = Counter()
        self._places: Counter[tuple[str, File]] = Counter()
        self._last_calls = LastCalls()
        for (dev, ino), size in SIZES.items():
            row = {"dev": dev, "ino": ino, "path": f"/{dev}/{ino}", "size": 4096 * size}
            self.tables["files"].append(row)
        for actor, pid in PIDS.items():
            target = actor if actor in EPOCHS else None
            row = {"pid": pid, "tid": pid, "comm": "job", "ppid": 1, "target": target}
            self.tables["processes"].append(row | {"role": "target" if target else "other"})
        for file in SIZES:
            self._make_folios(file, sorted(page for its, page in self._cached if its == file))
        if library in ("some", "around"):
            self._read(LIBRARY_READERS[library][0], LIBRARY, 0, SIZES[LIBRARY])
        for self.stage in range(len(EPOCHS["a"])):
            self._run_stage()

    def _drawn(self, warm: float) -> Iterator[Page]:
        """Yields runs of pages; they have this share of all pages."""
        for file, size in SIZES.items():
            share, at = 1 if (file, self.library) == (LIBRARY, "all") else warm, 0
            while at < size:
                end = min(at + self.draw.randint(1, 9), size)
                if self.draw.random() < share:
                    yield from ((file, page) for page in range(at, end))
                at = end

    def _run_stage(self) -> None:
        """Runs a stage. No event has the time of a mark."""
        begun = self.now = self.now + 5 + self.pause_ns
        self.now += 5
        for _ in range(CALLS):
            self.now += self.draw.choice([1, 1000, 35_000_000])
            self._step(self.draw.choices("abx", [4, 4, 2])[0])
        self.now += 5
        for actor, epochs in EPOCHS.items():
            if (epoch := epochs[self.stage]) is not None:
                mark = {"pid": PIDS[actor], "tid": PIDS[actor], "source": "script"}
                mark |= {"name": "epoch", "epoch": epoch, "start": begun, "end": self.now}
                self.tables["phases"].append(mark)

    def _step(self, actor: str) -> None:
        """A call, and perhaps what happens before it."""
        files = READS[actor]
        if self.library and actor in LIBRARY_READERS[self.library]:
            files = (*files, LIBRARY)
        file = self.draw.choice(files)
        if self.draw.random() < self.takes and (file != LIBRARY or self.library != "all"):
            self._take_some(file)
        if self.draw.random() < 0.08 and file != LIBRARY:
            first = self.draw.randrange(SIZES[file])
            self._write(actor, file, range(first, min(first + 2, SIZES[file])))
        if self.library and actor == "a" and self.draw.random() < 0.3:
            self._touch(self.draw.randrange(SIZES[LIBRARY]))
        goes_on, size = self.draw.random() < 0.4, SIZES[file]
        first = self._places[actor, file] % size if goes_on else self.draw.randrange(size)
        pages = min(self.draw.choice(self.lengths), size - first)
        self._places[actor, file] = first + pages
        self._read(actor, file, first, pages)

    # Calls: events, and their truth

    def _read(self, actor: str, file: File, first: int, pages: int) -> None:
        events, asked = len(self.tables["page_cache"]), range(first, first + pages)
        missing = [index for index in asked if (file, index) not in self._cached]
        asked = self._last_calls.other(actor, self.owner(actor), file, asked, missing)
        first, pages = asked.start, len(asked)
        new = [index for index in asked if self._comes(file, index)]
        for folio in self._make_folios(file, new):
            self._event(actor, "sync_read_ahead", file, folio[0], first + pages - folio[0])
            for event in ("read_ahead", "add"):
                self._event(actor, event, file, *folio)
        self._event(actor, "access", file, first, pages, continues=False)
        self._openings[actor, file] += first == 0
        self._call(actor, READ, file, first, pages, self.tables["page_cache"][events]["ts"])
        self.recorded[self.owner(actor)] += len(new)

    def _make_folios(self, file: File, pages: Sequence[int]) -> list[tuple[int, int]]:
        """Puts pages that come together in folios; returns the first page and size of each.

        A folio begins at a multiple of its size.
        """
        made = []
        while pages:
            size = next(
                size
                for size in (self.folio_sizes if self.folios else (1,))
                if pages[0] % size == 0 and [*pages[:size]] == [*range(pages[0], pages[0] + size)]
            )
            made.append((pages[0], size))
            self._folio.update({(file, index): made[-1] for index in pages[:size]})
            pages = pages[size:]
        return made

    def _comes(self, file: File, index: int) -> bool:
        """Brings a page in if it is missing. Tells if events say so."""
        missing = (file, index) not in self._cached
        self._cached.add((file, index))
        if not missing or self.draw.random() < self.loses:
            return False
        self.came.add((file, index))
        return True

    def _write(self, actor: str, file: File, pages: Iterable[int]) -> None:
        for index in pages:
            if (file, index) not in self._cached:
                self._cached.add((file, index))
                self.came.add((file, index))
                self._make_folios(file, [index])
                self._event(actor, "add", file, index)
                self._call(actor, WRITE, file, index, 1, self.now)

    def _touch(self, touched: int) -> None:
        """Touches a mapped page. A read by the same process follows."""
        if self.library == "around":
            if (LIBRARY, touched) in self._mapped:
                return
            if (LIBRARY, touched) not in self._cached:
                self._fault(touched)
        there = self._map(touched)
        if self.library != "around" and there and self._mapped.issuperset(there):
            self._mapped.clear()  # no fault is left in the old mapping
        for page in there:
            if page not in self._mapped:
                self._call("a", FAULT, *page, 1, self.now)
        self._mapped.update(there)

    def _map(self, touched: int) -> list[Page]:
        """Maps pages around a touched one. Returns the cached ones."""
        first = touched - touched % WINDOW
        window = range(first, min(first + WINDOW, SIZES[LIBRARY]))
        there = [(LIBRARY, index) for index in window if (LIBRARY, index) in self._cached]
        if there:
            self._event("a", "map", LIBRARY, window.start, len(window))
        return there

    def _fault(self, touched: int) -> None:
        """Reads around a touched page. The kernel maps those around it before, and again then."""
        self._map(touched)
        self._event("a", "fault", LIBRARY, touched)
        self._call("a", FAULT, LIBRARY, touched, 1, self.now)
        self._mapped.add((LIBRARY, touched))
        first = max(0, touched - AROUND // 2)
        around = range(first, min(first + AROUND, SIZES[LIBRARY]))
        self._event("a", "read_ahead", LIBRARY, first, len(around))
        new = [index for index in around if self._comes(LIBRARY, index)]
        for folio in self._make_folios(LIBRARY, new):
            self._event("a", "add", LIBRARY, *folio)
        self.recorded[self.owner("a")] += len(new)

    def _take_some(self, file: File) -> None:
        """Takes the first cached pages of a file: reclaim does, or a program."""
        actor, most = self.draw.choice("abxr"), self.draw.randrange(SIZES[file])
        taken = sorted(page for page in self._cached if page[0] == file and page[1] <= most)
        reclaims = self.draw.random() < 0.5
        if reclaims and taken:  # whole folios
            first, size = self._folio.get(taken[-1], (taken[-1][1], 1))
            taken = sorted({*taken, *((file, index) for index in range(first, first + size))})
        thread = {"pid": PIDS[actor], "tid": PIDS[actor], "cpu": 0}
        if reclaims:
            self.tables["reclaim"].append({"ts": self.now + 1, "event": "memcg_begin", **thread})
            self.now += 2
        for first, size in self._split(taken):
            self._event(actor, "delete", file, first, size)
            for index in range(first, first + size) if not reclaims else ():
                self.calls.append(removal(file, index, self.now))
        if reclaims:
            self.now += 1
            end = {"ts": self.now, "event": "memcg_end", "nr_reclaimed": len(taken), **thread}
            self.tables["reclaim"].append(end)
            self.now += 1
        self._cached.difference_update(taken)
        self._mapped.difference_update(taken)

    def _split(self, taken: Sequence[Page]) -> list[tuple[int, int]]:
        """Returns the folios in which pages go. A folio of which some stay falls into pages."""
        gone = []
        for folio in sorted({(page[0], *self._folio.pop(page, (page[1], 1))) for page in taken}):
            file, first, size = folio
            parts = [(file, index) for index in range(first, first + size)]
            if set(parts) <= set(taken):
                gone.append((first, size))
                continue
            for page in parts:
                if page in taken:
                    gone.append((page[1], 1))
                else:
                    self._folio[page] = page[1], 1
        return gone

    @property
    def times(self) -> list[int]:
        """The time of each call."""
        return [call.ts for call in self.calls]

    def owner(self, actor: str) -> tuple[str | None, int | None]:
        """Target and epoch of a process."""
        if actor not in EPOCHS:
            return None, None
        return actor, None if self.stage is None else EPOCHS[actor][self.stage]

    def _call(self, actor: str, kind: str, file: File, first: int, pages: int, ts: int) -> None:
        reader = actor, file, self._openings[actor, file]
        self.calls.append(JobCall(*self.owner(actor), reader, file, first, pages, ts, kind))

    def _event(
        self, actor: str, event: str, file: File, index: int, pages: int = 1, **more: Any
    ) -> None:
        """Logs an event, at the time of the last one perhaps."""
        self.now += self.draw.choice([0, 0, 1])
        row = {
            "ts": self.now,
            "pid": PIDS[actor],
            "tid": PIDS[actor],
            "cpu": self.draw.randrange(2),
        }
        row |= {"event": event, "dev": file[0], "ino": file[1], "index": index, "pages": pages}
        self.tables["page_cache"].append(row | more)


def users(calls: Iterable[JobCall]) -> dict[Page, set[str | None]]:
    """The targets that use each page; None: others do."""
    found: dict[Page, set[str | None]] = {}
    for call in calls:
        for index in range(call.first, call.first + call.pages):
            if call.kind in (READ, FAULT):
                found.setdefault((call.file, index), set()).add(call.target)
    return found


def warm_pages(calls: Iterable[JobCall], came: Collection[Page]) -> set[Page]:
    """Pages that targets use, and that never come into the cache during the recording."""
    return {page for page, by in users(calls).items() if by != {None} and page not in came}
