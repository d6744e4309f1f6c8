"""Small recordings in which programs read and map pages, and take them out of the page cache.

It is written from docs/predict.md and docs/reads.md, not from the code of `tracer predict`.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.oracles.called_jobs import JobCall, removal
from tests.oracles.last_calls import LastCalls
from tests.oracles.two_lists import FAULT, READ, WRITE

Row = dict[str, Any]
File = tuple[str, int]
FILES = (("8:1", 7, 10), ("8:2", 7, 10), ("8:1", 8, 5), ("8:2", 9, 10))
"""Device, inode and pages of files. Page 13 of a story is page 3 of the second file. The last file
is mapped: no page of it was cached before the recording."""
SIZES = {(dev, ino): size for dev, ino, size in FILES}
PIDS = {"a": 100, "b": 200, "x": 300, "r": 400, "k": 50}
"""Two targets, two processes that are none, and the kernel's thread that reclaims."""
COMMANDS = {"r": "rm", "k": "kswapd0"}
LIMIT = 1000
"""Pages of a limit that targets share in the recording."""
STEP = re.compile(r"([abxrk]?)([-=~!*|()^]?)(?:(\d+)(?::(\d+))?)?")


class Story:
    """The recording of a story, a text of steps such as `a0:3` (a reads the pages 0 to 3).

    Other steps: `x!3` writes a page, `r-3` takes a page out if it is cached, `r=3` does so and logs
    it twice, `k~3` reclaims it, `x(` and `x)` begin and end a reclaim, `a|` begins an epoch, `*3`
    is a page that was cached before the recording. `a^30:39` maps the cached ones of ten pages
    around a fault; a read by the same process follows. `folios`: events are about several pages.

    No calls are recorded: `LastCalls` takes the place of reads that would count in another epoch.
    """

    def __init__(self, text: str, folios: bool = False) -> None:
        self.text, self.folios = text, folios
        self.numbers, self.now = random.Random(text), 1000
        self.tables: dict[str, list[Row]] = {
            name: [] for name in ("page_cache", "reclaim", "phases", "processes", "files")
        }
        self.calls: list[JobCall] = []
        self.recorded: Counter[tuple[str | None, int | None]] = Counter()
        """Pages read from the disk by target and epoch."""
        self._cached: set[int] = set()
        self._mapped: set[int] = set()
        self._openings: Counter[tuple[str, File]] = Counter()
        self._epochs: dict[str, tuple[int, int]] = {}
        """The epoch of a target, and the time of its begin."""
        self._reclaiming: set[str] = set()
        self._last_calls = LastCalls()
        for dev, ino, size in FILES:
            row = {"dev": dev, "ino": ino, "path": f"/{dev}/{ino}", "size": 4096 * size}
            self.tables["files"].append(row)
        steps = text.split()
        for actor in sorted({step[0] for step in steps} & PIDS.keys()):
            self._process(actor)
        for step in steps:
            self._step(step)
        for actor in list(self._epochs):
            self._end_epoch(actor)
        self.tables["phases"].sort(key=lambda row: row["start"])

    @property
    def targets(self) -> list[str]:
        """The targets that read."""
        return sorted({call.target for call in self.calls if call.kind == READ and call.target})

    def epochs(self, target: str) -> set[int]:
        """Returns the epochs that a target marks."""
        return {row["epoch"] for row in self.tables["phases"] if row["pid"] == PIDS[target]}

    def _process(self, actor: str) -> None:
        target = actor if actor in "ab" else None
        row = {"pid": PIDS[actor], "tid": PIDS[actor], "comm": COMMANDS.get(actor, "job")}
        row |= {
            "ppid": 2 if actor == "k" else 1,
            "target": target,
            "role": "target" if target else "other",
        }
        self.tables["processes"].append(row)

    def _step(self, step: str) -> None:
        found = STEP.fullmatch(step)
        assert found, step
        actor, kind, first, last = found.groups()
        pages = list(range(int(first), int(last or first) + 1)) if first else []
        cached = [page for page in pages if page in self._cached]
        match kind:
            case "":
                self._read(actor, pages)
            case "^":
                self._map(actor, pages)
            case "!":
                self._write(actor, [page for page in pages if page not in cached])
            case "*":
                self._cached.update(pages)
            case "-" | "=":
                self._take(actor, cached)
                if kind == "=":
                    self._take(actor, cached)
                self.calls += [removal(*place(page), self.now) for page in cached]
            case "~" if actor == "k" or actor in self._reclaiming:
                self._take(actor, cached)
            case "~":
                self._reclaim(actor, "memcg_begin")
                self._take(actor, cached)
                self._reclaim(actor, "memcg_end", nr_reclaimed=len(cached))
            case "(":
                self._reclaiming.add(actor)
                self._reclaim(actor, "memcg_begin")
            case ")":
                self._reclaiming.discard(actor)
                self._reclaim(actor, "memcg_end", nr_reclaimed=1)
            case "|":
                self._begin_epoch(actor)

    # Pages

    def _read(self, actor: str, pages: list[int]) -> None:
        owner, asked = self._owner(actor), range(pages[0], pages[-1] + 1)
        missing = [page for page in asked if page not in self._cached]
        asked = self._last_calls.other(actor, owner, place(asked[0])[0], asked, missing)
        new = [page for page in asked if page not in self._cached]
        self._events(actor, ("sync_read_ahead", "read_ahead", "add"), new, asked.stop)
        self._event(actor, "access", asked[0], len(asked), continues=False)
        self._cached.update(new)
        self._call(actor, READ, asked)
        self.recorded[owner] += len(new)

    def _map(self, actor: str, pages: list[int]) -> None:
        there = [page for page in pages if page in self._cached]
        if not there:
            return
        self._event(actor, "map", pages[0], len(pages))
        if self._mapped.issuperset(there):
            self._mapped.clear()  # no fault is left in the old mapping
        for page in there:
            if page not in self._mapped:
                self._call(actor, FAULT, [page])
        self._mapped.update(there)

    def _write(self, actor: str, pages: list[int]) -> None:
        self._events(actor, ("add",), pages)
        self._cached.update(pages)
        for page in pages:
            self._call(actor, WRITE, [page])

    def _take(self, actor: str, pages: list[int]) -> None:
        self._events(actor, ("delete",), pages)
        self._cached.difference_update(pages)
        self._mapped.difference_update(pages)

    def _call(self, actor: str, kind: str, pages: Sequence[int]) -> None:
        file, first = place(pages[0])
        assert place(pages[-1])[0] == file
        if kind == READ and first == 0:
            self._openings[actor, file] += 1
        reader = actor, file, self._openings[actor, file]
        owner = self._owner(actor)
        self.calls.append(JobCall(*owner, reader, file, first, len(pages), self.now, kind))

    def _owner(self, actor: str) -> tuple[str | None, int | None]:
        """Target and epoch of a process."""
        epoch = self._epochs.get(actor)
        return (actor if actor in "ab" else None), epoch and epoch[0]

    def _events(self, actor: str, events: Sequence[str], pages: list[int], end: int = 0) -> None:
        """Logs these events of each page, or of all pages that are next to each other.

        `end`: that of the call. The kernel is asked to read up to it.
        """
        while pages:
            length = 1
            while self.folios and pages[0] + length in pages:
                length += 1
            for event in events:
                wanted = end - pages[0] if event == "sync_read_ahead" else length
                self._event(actor, event, pages[0], wanted)
            pages = pages[length:]

    def _event(self, actor: str, event: str, page: int, pages: int, **more: Any) -> None:
        """Logs an event, at the time of the last one perhaps."""
        self.now += self.numbers.choice([0, 0, 1])
        (dev, ino), index = place(page)
        row = self._row(actor, self.now, event=event, dev=dev, ino=ino, index=index, pages=pages)
        self.tables["page_cache"].append(row | more)

    def _row(self, actor: str, ts: int, **more: Any) -> Row:
        cpu = self.numbers.choice([0, 1])
        return {"ts": ts, "pid": PIDS[actor], "tid": PIDS[actor], "cpu": cpu, **more}

    # Times that no event of a page has

    def _reclaim(self, actor: str, event: str, **more: Any) -> None:
        self.tables["reclaim"].append(self._row(actor, self.now + 1, event=event, **more))
        self.now += 2

    def _begin_epoch(self, actor: str) -> None:
        epoch = self._epochs[actor][0] + 1 if actor in self._epochs else 0
        if epoch:
            self._end_epoch(actor)
        self._epochs[actor] = epoch, self.now + 1
        self.now += 2

    def _end_epoch(self, actor: str) -> None:
        epoch, start = self._epochs[actor]
        mark = {"pid": PIDS[actor], "tid": PIDS[actor], "source": "script", "name": "epoch"}
        mark |= {"epoch": epoch, "start": start, "end": self.now + 1}
        self.tables["phases"].append(mark)
        self.now += 2


def together(stories: Sequence[Story], shared: Sequence[bool]) -> dict[str, list[Row]]:
    """Returns the tables of a recording of stories, one after the other.

    Each has its own targets (a0 and b0, a1 and b1), processes and files. `shared`: those whose
    targets are below one limit.
    """
    tables: dict[str, list[Row]] = {name: [] for name in [*stories[0].tables, "samples"]}
    begun = 0
    for number, (story, shares) in enumerate(zip(stories, shared, strict=True)):
        shifts = {"pid": 1000 * number, "tid": 1000 * number, "ino": 100 * number}
        shifts |= dict.fromkeys(("ts", "start", "end"), begun)
        for name, rows in story.tables.items():
            for row in rows:
                moved = row | {key: row[key] + by for key, by in shifts.items() if key in row}
                if row.get("target"):
                    moved["target"] = f"{row['target']}{number}"
                tables[name].append(moved)
        for target in story.targets if shares else []:
            sample = {"ts": begun, "target": f"{target}{number}", "instance": f"/pod{number}"}
            sample |= {"name": "cgroup_memory_max", "value": float(4096 * LIMIT)}
            tables["samples"].append(sample)
        begun += story.now + 10
    return tables


def place(page: int) -> tuple[File, int]:
    """Returns the file of a story's page, and the page of the file."""
    dev, ino, size = FILES[page // 10]
    assert page % 10 < size
    return (dev, ino), page % 10


def drawn_story(seed: int, steps: int, writes: bool = False) -> str:
    """Draws a story of both targets and others."""
    numbers = random.Random(seed)

    def some(most: int, mapped: int = 3) -> str:
        file = numbers.choices(range(len(FILES)), [4, 4, 1, mapped])[0]
        first = numbers.randrange(FILES[file][2])
        last = min(first + numbers.randrange(most), FILES[file][2] - 1)
        return f"{10 * file + first}:{10 * file + last}"

    told = ["x24", "x30", "a0", "b0", "a|", "b|"]
    told += ["*" + some(4, mapped=0) for _ in range(numbers.randrange(3))]
    kinds = {"read": 20, "remove": 4, "twice": 1, "reclaim": 2, "beside": 1, "epoch": 1, "map": 3}
    mapper = numbers.choice("ab")
    if writes:
        kinds["write"] = 3
    for kind in numbers.choices([*kinds], [*kinds.values()], k=steps):
        match kind:
            case "read":
                told.append(numbers.choices("abx", [8, 8, 1])[0] + some(3))
            case "remove":
                told.append(numbers.choice("abxr") + "-" + some(numbers.choice([1, 3, 10])))
            case "twice":
                told.append("r=" + some(3))
            case "reclaim":
                told.append(numbers.choice("abxk") + "~" + some(numbers.choice([1, 10])))
            case "beside":
                told += ["x(", "r-" + some(3), "x~" + some(3), "a" + some(3), "a-" + some(2), "x)"]
            case "epoch":
                told.append(numbers.choice("ab") + "|")
            case "write":
                told.append(numbers.choice("abx") + "!" + some(2))
            case "map":
                first = numbers.randrange(30, 38)
                told += [f"{mapper}^{first}:{numbers.randrange(first, 40)}", mapper + some(3)]
    return " ".join(told)
