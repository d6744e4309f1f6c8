"""Cgroups below a memory limit, some of them targets that read files, worked out naively.

It is written from docs/predict.md (Targets that share a limit) and docs/samples.md, and from
css_next_descendant_pre of Linux, not from the code of `tracer predict`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.oracles.two_lists import READ, Call, Own, TwoLists

Row = dict[str, Any]
PAGE = 4096
DEV = "8:1"
DISKS = [{"dev": "8:0", "name": "sda"}, {"dev": DEV, "name": "sda1", "partition_of": "8:0"}]
COMMON = 1
"""Inode number of a file that all targets read."""
OWN_PAGES, COMMON_PAGES = 60, 30
NAMES = ("a", "ab", "a-b", "a.b", "B", "z", "0", "a b", "é", "%", "~")
"""Names of folders. Some sort before "a/..." and after "a"."""


@dataclass
class Cgroup:
    """A cgroup, and those below it in the order in which they were made."""

    path: str
    number: int
    below: list[Cgroup] = field(default_factory=list)

    def walk(self) -> Iterable[Cgroup]:
        """Yields all cgroups below this one as reclaim takes them (css_next_descendant_pre)."""
        for one in self.below:
            yield one
            yield from one.walk()


class Tree:
    """A cgroup with a limit, and those below it, drawn at random."""

    def __init__(self, draw: random.Random, count: int, top: str = "/pod") -> None:
        self.top = Cgroup(top, draw.randrange(1, 1000))
        number, places = self.top.number, [self.top]
        while len(places) <= count:
            above = draw.choice(places)
            number += draw.randrange(1, 50)
            free = set(NAMES) - {one.path.rsplit("/", 1)[1] for one in above.below}
            if free:
                made = Cgroup(f"{above.path}/{draw.choice(sorted(free))}", number)
                above.below.append(made)
                places.append(made)

    @property
    def cgroups(self) -> list[Cgroup]:
        """The cgroups below the limit as reclaim takes them."""
        return list(self.top.walk())

    def turns(self, lies_in: Mapping[str, Cgroup]) -> list[tuple[list[str], str]]:
        """The targets and the path of each cgroup that has turns, in the order of reclaim.

        Cgroups below that of a target belong to it, and have no turn.
        """
        inside = tuple(f"{own.path}/" for own in lies_in.values())
        found = []
        for one in self.cgroups:
            targets = [name for name, own in lies_in.items() if own is one]
            if targets or not one.path.startswith(inside):
                found.append((targets, one.path))
        return found


def limit_row(target: str, instance: str | None, pages: int, ts: int = 0) -> Row:
    """A sample of a memory limit."""
    row = {"ts": ts, "target": target, "name": "cgroup_memory_max", "value": float(pages * PAGE)}
    return row | {"instance": instance, "unit": "bytes"}


def number_row(target: str, instance: str | None, number: float, ts: int = 0) -> Row:
    """A sample of the number of a cgroup: the target's own (instance None), or one by its path."""
    row = {"ts": ts, "target": target, "name": "cgroup_number", "value": float(number)}
    return row | {"instance": instance, "unit": ""}


def with_cgroup(target: Row, path: str, version: int) -> Row:
    """The entry of a target with the paths of its cgroup in each hierarchy."""
    paths = {1: [("cpu", "/cpu"), ("memory", path)], 2: [("", path)]}[version]
    listed = [
        {"hierarchy": n + 2 - version, "controllers": controllers, "path": path}
        for n, (controllers, path) in enumerate(paths)
    ]
    return target | {"cgroups": listed}


def samples_of(tree: Tree, lies_in: Mapping[str, Cgroup], pages: int = 500) -> list[Row]:
    """The samples of targets that lie in these cgroups of a tree."""
    rows = []
    for target, own in lies_in.items():
        rows += [limit_row(target, tree.top.path, pages), number_row(target, None, own.number)]
        told = sorted(tree.cgroups, key=lambda one: one.path)
        rows += [number_row(target, one.path, one.number) for one in told]
    return rows


class Readers:
    """Targets that read pages of files by turns: each has a file, and all have another one."""

    def __init__(self, seed: int, names: Sequence[str], reads: int = 400) -> None:
        draw = random.Random(seed)
        self.names, self.draw, self.now = list(names), draw, 1000
        self.rows: list[Row] = []
        self.sizes = {COMMON: COMMON_PAGES}
        self._uses: list[tuple[str, Any, int, int, int, int]] = []
        self._cached: set[tuple[int, int]] = set()
        self._openings: Counter[tuple[str, int]] = Counter()
        for name in self.names:
            self.sizes[self.pid(name)] = OWN_PAGES
        for count in range(reads):
            name = self.names[count] if count < len(names) else draw.choice(self.names)
            ino = draw.choice([self.pid(name)] * 3 + [COMMON])
            first = draw.randrange(draw.choice([10, self.sizes[ino]]))
            self.read(name, ino, first, min(draw.choice([1, 1, 2, 4]), self.sizes[ino] - first))

    def pid(self, name: str) -> int:
        """The process of a target, and the inode number of its file."""
        return 100 + self.names.index(name)

    def targets(self, *kinds: str) -> list[Row]:
        """Their entries in the manifest; `kinds`: one for all, or that of each."""
        each = kinds * len(self.names) if len(kinds) == 1 else kinds
        return [
            {"name": name, "role": "target", "kind": kind, "pid": self.pid(name)}
            for name, kind in zip(self.names, each, strict=True)
        ]

    def tables(self, cgroups: Mapping[str, str] = {}, **more: list[Row]) -> dict[str, list[Row]]:
        """The tables of their recording; `cgroups`: the cgroup of each process, by target."""
        processes = [
            {"pid": self.pid(name), "tid": self.pid(name), "comm": "job", "ppid": 1}
            | {"target": name, "role": "target", "cgroup": cgroups.get(name)}
            for name in self.names
        ]
        files = [
            {"dev": DEV, "ino": ino, "path": f"/{ino}", "size": PAGE * pages}
            for ino, pages in self.sizes.items()
        ]
        return {"page_cache": self.rows, "processes": processes, "files": files, **more}

    def reads(
        self, turns: Sequence[Sequence[str]], pages: int, clock_ns: int | None
    ) -> dict[str, int]:
        """Pages that a naive kernel reads for each target with a limit of so many pages.

        `turns`: the targets in each cgroup below the limit, in the order of reclaim. `clock_ns`:
        time of the first update of the statistics; None: they are always up to date.
        """
        return self.reads_below([pages], [0] * len(turns), turns, clock_ns)

    def reads_below(
        self,
        pages: Sequence[int],
        limits: Sequence[int],
        turns: Sequence[Sequence[str]],
        clock_ns: int | None,
        own: Sequence[Own] = (),
    ) -> dict[str, int]:
        """Pages that a naive kernel reads for each target with several limits.

        `limits`: the limit of each of the `turns`. `own`: changes of the own memory.
        """
        turn = {name: at for at, names in enumerate(turns) for name in names}
        known = {"exact": True} if clock_ns is None else {"exact": False, "clock": clock_ns}
        cache = TwoLists(pages, limits, self.sizes, **known)  # type: ignore[arg-type]
        calls = [
            Call(turn[name], name, reader, READ, ino, first, count, ts)
            for name, reader, ino, first, count, ts in self._uses
        ]
        return cache.run(calls, own)[1]

    @property
    def times(self) -> list[int]:
        """The time of each read."""
        return [use[-1] for use in self._uses]

    def read(self, name: str, ino: int, first: int, pages: int) -> None:
        """Makes a target read pages of a file."""
        thread = {"pid": self.pid(name), "tid": self.pid(name), "cpu": 0}
        events = len(self.rows)
        for index in range(first, first + pages):
            if (ino, index) not in self._cached:
                self._cached.add((ino, index))
                for event in ("sync_read_ahead", "read_ahead", "add"):
                    self._event(thread, ino, event, index, 1)
        self._event(thread, ino, "access", first, pages, continues=False)
        self._openings[name, ino] += first == 0
        reader = name, ino, self._openings[name, ino]
        self._uses.append((name, reader, ino, first, pages, self.rows[events]["ts"]))

    def _event(
        self, thread: Row, ino: int, event: str, first: int, pages: int, **more: Any
    ) -> None:
        self.now += self.draw.choice([0, 0, 1])
        row = {"ts": self.now, "event": event, "dev": DEV, "ino": ino, **thread, **more}
        self.rows.append(row | {"index": first, "pages": pages})


def pages_read(found: Any) -> dict[tuple[int, str], list[int]]:
    """Pages that the kernel's model reads by memory and target of an answer, for each clock."""
    return {
        (row["memory_bytes"] // PAGE, row["target"]): row["two-lists_pages_by_clock"]
        for row in found.reads.to_dict("records")
    }
