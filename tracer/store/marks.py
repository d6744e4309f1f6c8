"""Reads the marks files of the traced processes, piece by piece."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tracer.phases.format import (
    ABSENT,
    AUTOMATIC,
    BEGIN,
    COMMITTED,
    END,
    MEASURED,
    NAME_BYTES,
    NOTE_SUFFIX,
    RECORD_BYTES,
    STOPPED,
    SUFFIX,
)
from tracer.store.files import read_bounded
from tracer.store.lists import MarkFacts

_NAME = re.compile(rf"([1-9][0-9]{{0,9}}-[0-9]{{1,20}})-([0-9]{{1,10}}){re.escape(SUFFIX)}")
"""Groups: a process (pid and time), and the number of the file."""
_MAX_FILES = 100_000
_MAX_BYTES = 16 << 20
"""Most bytes of one file: a writer begins another after 256 KiB."""
_MOST_SERIES = 16
"""Most series of a process at once; usually there are two."""
_MOST_MEASURED = 64
"""Most names of phases with GPU times in one process; usually there are three."""
_MAX_NOTES = 100
_MAX_NOTE_BYTES = 1 << 12
_PIECE = 4096
"""Marks passed on at once."""
_MOST_HELD = 4096
"""Most marks of a file that are held because they may be younger than those of the next file."""

_RECORD = np.dtype(
    [
        ("ts", "<i8"),
        ("pid", "<i4"),
        ("tid", "<i4"),
        ("epoch", "<i8"),
        ("step", "<i8"),
        ("kind", "u1"),
        ("name", f"S{NAME_BYTES}"),
        ("committed", "u1"),
    ]
)
assert _RECORD.itemsize == RECORD_BYTES
_KINDS = [kind | of_torch for kind in (BEGIN, END, MEASURED) for of_torch in (0, AUTOMATIC)]
_KINDS.append(STOPPED)

Records = np.ndarray[Any, Any]
"""Marks, as fields of `_RECORD`."""

NAMES = "names.jsonl"
"""List beside the marks: this machine's pids of a container's processes (`MarkFacts`)."""

LIVE = ".live"
"""Suffix of the name of the folder that a command marks into."""

UNKNOWN_PID = 0
"""The pid in the list of a process that was gone before it was searched for."""


@dataclass
class Found:
    """Facts about the marks of a process."""

    begun: int
    """Time in ns at which it began to write, from the names of its files."""
    last: int = 0
    """Time in ns of its last mark."""
    automatic: bool = False
    """True if PyTorch marked in it."""
    serves: int | None = None
    """The process that it works for, if it is a DataLoader worker."""
    learns: bool = False
    measured: set[bytes] = field(default_factory=set)
    """Names of phases with measured GPU times."""
    working: set[int] = field(default_factory=set)
    """Threads that fetch, or begin a backward while no other thread runs one."""
    learning: set[int] = field(default_factory=set)
    """Threads that run backwards or steps of optimizers."""
    said: set[str] = field(default_factory=set)
    """Names that its script marks, among the names asked for."""
    _backwards: Counter[int] = field(default_factory=Counter)
    """Number of open backwards by thread."""

    @property
    def leading(self) -> set[int]:
        """Threads that train or infer. Other threads may help them.

        PyTorch's own threads help a backward on GPUs: they call hooks, which may make steps of
        optimizers, and compute checkpointed parts of the model again. So threads that only make
        steps of optimizers lead if there are no others.
        """
        return self.working or self.learning

    @property
    def helping(self) -> set[int]:
        """Threads that learn, but only to help others."""
        return self.learning - self.leading

    def note(self, records: Records, asked: Collection[str]) -> None:
        """Adds the facts about some marks in order of time."""
        if not len(records):
            return
        self.last = max(self.last, int(records["ts"][-1]))
        kinds = records["kind"]
        self._note_backwards(records[records["name"] == b"backward"])
        measured = np.isin(kinds, (MEASURED, MEASURED | AUTOMATIC))
        if measured.any() and len(self.measured) < _MOST_MEASURED:
            self.measured.update(np.unique(records["name"][measured])[:_MOST_MEASURED].tolist())
        script = records["name"][kinds == BEGIN]
        if len(script):
            self.said |= {name for name in asked if (script == name.encode()).any()}
        facts = records[kinds == BEGIN | AUTOMATIC]
        if len(facts):
            self.automatic = True
            learns = np.isin(facts["name"], [b"backward", b"optimizer"])
            self.learns |= bool(learns.any())
            works = facts["step"][facts["name"] == b"worker"]
            if len(works):
                self.serves = 0 if works[-1] == ABSENT else int(works[-1])
            self.learning |= set(np.unique(facts["tid"][learns]).tolist())
            self.working |= set(np.unique(facts["tid"][facts["name"] == b"fetch"]).tolist())

    def _note_backwards(self, records: Records) -> None:
        for tid, kind in zip(records["tid"].tolist(), records["kind"].tolist(), strict=True):
            if kind == BEGIN | AUTOMATIC:
                self._backwards[tid] += 1
                if len(self._backwards) == 1:
                    self.working.add(tid)
            elif kind == END | AUTOMATIC and tid in self._backwards:
                self._backwards[tid] -= 1
                if not self._backwards[tid]:
                    del self._backwards[tid]

    def add(self, other: Found) -> None:
        """Adds the facts about other marks."""
        self.last = max(self.last, other.last)
        self.automatic |= other.automatic
        self.serves = self.serves if other.serves is None else other.serves
        self.learns |= other.learns
        self.measured |= other.measured
        self.working |= other.working
        self.learning |= other.learning
        self.said |= other.said


@dataclass
class _Series:
    """The files that one writer of a process wrote, in order.

    A process has two writers if both PyTorch and the script mark: they do not know each other.
    """

    pid: int
    """The pid here; negative: the pid in a container, if the pid here is unknown."""
    paths: list[Path]
    own: int
    """The pid as the process writes it."""
    begun: int
    """ns of CLOCK_MONOTONIC."""
    threads: dict[int, int] | None
    """The ids of its threads here, by their ids in the container."""
    parents: dict[int, int]

    def records(self, lost: Counter[str] | None = None) -> Iterator[Records]:
        """Yields its marks in order of time, about one file at once; counts omissions in `lost`.

        The epoch of the mark STOPPED is 1 if the script made marks before it, else 0. Its step
        is 1 if PyTorch did, else 0.
        """
        held = np.empty(0, _RECORD)
        wrote: set[int] = set()
        for path in self.paths:
            records = self._read(path, lost)
            stopped = records["kind"] == STOPPED
            wrote.update(np.unique(records["kind"][~stopped] & AUTOMATIC).tolist())
            records["epoch"][stopped] = 0 in wrote
            records["step"][stopped] = AUTOMATIC in wrote
            if len(held) and len(records):
                # Threads mark concurrently: a file's first mark may be older than the previous one.
                ready = int(np.searchsorted(held["ts"], records["ts"].min(), side="right"))
                ready = max(ready, len(held) - _MOST_HELD)
                yield held[:ready]
                records = np.concatenate([held[ready:], records])
            if len(records):
                held = records[np.argsort(records["ts"], kind="stable")]
        yield held

    def _read(self, path: Path, lost: Counter[str] | None) -> Records:
        """Returns the committed marks of one file that name the file's own process."""
        lost = Counter() if lost is None else lost
        try:
            data = read_bounded(path, _MAX_BYTES)
        except (OSError, ValueError):
            lost["files of marks left out: not readable"] += 1
            return np.empty(0, _RECORD)
        records = np.frombuffer(data, _RECORD, count=len(data) // RECORD_BYTES)
        sane = (records["committed"] == COMMITTED) & np.isin(records["kind"], _KINDS)
        sane &= (records["pid"] > 0) & (records["tid"] > 0)
        own = records["pid"] == self.own
        if others := int(np.count_nonzero(sane & ~own)):
            lost["marks left out: they name another process than the file does"] += others
        kept: Records = records[sane & own]
        if stops := int(np.count_nonzero(kept["kind"] == STOPPED)):
            lost["processes stopped to make marks: their next file could not be made"] += stops
        if self.threads is not None:
            self._rename(kept, self.threads)
        return kept

    def _rename(self, records: Records, known: dict[int, int]) -> None:
        """Replaces a container's tids and pids by this machine's, or by negatives if unknown."""
        records["tid"] = [known.get(tid, -tid) for tid in records["tid"].tolist()]
        worker = (records["name"] == b"worker") & (records["step"] > 0)
        steps = records["step"][worker].tolist()
        records["step"][worker] = [self.parents.get(pid, -pid) for pid in steps]


@dataclass
class Marked:
    """A process that has made marks."""

    pid: int
    """The pid here; negative: the pid in a container, if the pid here is unknown."""
    found: Found
    _series: list[_Series]

    def records(self) -> Iterator[Records]:
        """Yields its marks in order of time, up to `_PIECE` at once."""
        for records in _merged([series.records() for series in self._series]):
            for first in range(0, len(records), _PIECE):
                yield records[first : first + _PIECE]


def _merged(series: list[Iterator[Records]]) -> Iterator[Records]:
    """Yields the marks of several series, in order of time."""
    if len(series) == 1:
        yield from series[0]
        return
    held: dict[int, Records] = {}
    left = dict(enumerate(series))
    while left or held:
        for number in [number for number in left if number not in held]:
            more = next((part for part in left[number] if len(part)), None)
            if more is None:
                del left[number]
            else:
                held[number] = more
        if held:
            until = min(records["ts"][-1] for records in held.values())
            ready = []
            for number, records in sorted(held.items()):
                count = int(np.searchsorted(records["ts"], until, side="right"))
                ready.append(records[:count])
                held[number] = records[count:]
                if not len(held[number]):
                    del held[number]
            whole = np.concatenate(ready)
            yield whole[np.argsort(whole["ts"], kind="stable")]


def marked(
    folder: Path, names: Iterable[MarkFacts] = (), asked: Collection[str] = ()
) -> tuple[list[Marked], Counter[str]]:
    """Returns the processes that have marks in `folder`, with facts about the marks.

    `names` are the containers' processes; `asked` are names that a script may mark. The second
    result counts omissions by a phrase that follows the number.
    """
    known: dict[int, list[tuple[Found, _Series]]] = {}
    lost: Counter[str] = Counter()
    for series in _all_series(folder, names, lost):
        found = Found(series.begun)
        for records in series.records(lost):
            found.note(records, asked)
        known.setdefault(series.pid, []).append((found, series))
    processes: list[Marked] = []
    for pid, its in sorted(known.items()):
        before: Marked | None = None
        for found, series in sorted(its, key=lambda one: (one[0].begun, one[1].paths)):
            at_once = before is not None and found.begun <= before.found.last
            if before is not None and at_once and len(before._series) < _MOST_SERIES:
                before.found.add(found)
                before._series.append(series)
            else:  # a later process with the same pid
                before = Marked(pid, found, [series])
                processes.append(before)
    return processes, lost


def _all_series(folder: Path, names: Iterable[MarkFacts], lost: Counter[str]) -> Iterator[_Series]:
    here: dict[str, tuple[int, dict[int, int]]] = {}
    """Pid in the container, and the ids here of its threads, by process as in file names."""
    parents: dict[int, int] = {}
    for process, own, pid, threads in names:
        _, known = here.setdefault(process, (own, {}))
        if pid != UNKNOWN_PID:
            known.update({own: pid, **dict(threads)})
            # If two containers use the same pid, it is unknown which of them is meant.
            parents[own] = pid if parents.get(own, pid) == pid else -own
    files: dict[str, list[tuple[int, Path]]] = {}
    for path in _files(folder, SUFFIX, _MAX_FILES):
        if match := _NAME.fullmatch(path.name):
            files.setdefault(match[1], []).append((int(match[2]), path))
        else:
            lost["files of marks left out: not named after a process"] += 1
    for process, numbered in files.items():
        own, begun = map(int, process.split("-"))
        its_own, threads_here = here.get(process, (own, None))
        pid = own
        if threads_here is not None:
            pid = threads_here.get(own, -own) if own == its_own else -own
        paths = [path for _, path in sorted(numbered)]
        yield _Series(pid, paths, own, begun, threads_here, parents)


def last_ns(data: bytes) -> int:
    """Returns the latest time in ns of the committed marks in a file; 0 if it has none."""
    records = np.frombuffer(data, _RECORD, count=len(data) // RECORD_BYTES)
    return int(records["ts"][records["committed"] == COMMITTED].max(initial=0))


def read_notes(folder: Path) -> list[str]:
    """Returns the processes' notes about parts of PyTorch that could not be marked, each once."""
    found: dict[str, None] = {}
    for path in _files(folder, NOTE_SUFFIX, _MAX_NOTES):
        with contextlib.suppress(OSError, ValueError):
            found[read_bounded(path, _MAX_NOTE_BYTES).decode("utf-8", "replace")] = None
    return list(found)


def _files(folder: Path, suffix: str, most: int) -> list[Path]:
    """Returns files of this suffix, in a folder of marks and in the folder of a live command.

    The recorder or its guardian empties the second folder. It has files if both were killed.
    """
    found: list[Path] = []
    for place in (folder, folder.with_name(folder.name + LIVE)):
        if place.is_dir() and not place.is_symlink():
            paths = (path for path in place.iterdir() if path.suffix == suffix)
            found += sorted(itertools.islice(paths, most))
    return found[:most]
