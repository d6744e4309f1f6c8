"""Marks files of the traced processes into spans: what began and ended on which thread."""

from __future__ import annotations

import contextlib
import itertools
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
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
    SUFFIX,
)
from tracer.store.files import read_bounded
from tracer.store.lists import MarkFacts
from tracer.store.names import escaped

_MAX_FILES = 100_000
_MAX_BYTES = 16 << 20
"""Of one file: a writer begins another after 256 KiB."""
_MAX_NOTES = 100
_MAX_NOTE_BYTES = 1 << 12
_MAX_OPEN = 1000
"""Deepest nesting of spans on one thread; deeper is a marks file gone wild."""
_MAX_GPU_NS = 1 << 50
"""Thirteen days; more is no time that was measured."""

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
_AT_ONCE = 1 << 16
_COLUMNS = ["ts", "pid", "tid", "epoch", "step", "kind", "name"]


NAMES = "names.jsonl"
"""Beside the marks: what this machine calls the processes of a container (`MarkFacts`)."""

LIVE = ".live"
"""At the end of the name of the folder that a command marks into."""

UNKNOWN_PID = 0
"""There: a process that was gone before it was looked for."""


@dataclass(slots=True)
class Span:
    """Something that a thread did for a time. An end of None: it had not ended it.

    Negative pids and tids are those of a container, whose names here are not known.
    """

    start: int
    pid: int
    tid: int
    name: str
    epoch: int | None = None
    step: int | None = None
    end: int | None = None
    source: str = "script"
    gpu_ns: int | None = None
    """What the GPU took for it, where that was measured."""

    def but(self, **changes: Any) -> Span:
        """A copy with changes."""
        return replace(self, **changes)


def read_spans(folder: Path, names: Iterable[MarkFacts] = ()) -> tuple[list[Span], list[Span]]:
    """Spans of every marks file in `folder`: those of the scripts, and the automatic ones.

    An inner span of a script inherits epoch and step; what they are in an automatic one,
    `tracer.phases.automatic` says. Each list is in order of threads, then of time. `names` are
    those of containers' processes.
    """
    here: dict[str, _Names] = {}
    parents: dict[int, int] = {}
    for process, own, pid, threads in names:
        known = here.setdefault(process, _Names(own))
        if pid != UNKNOWN_PID:
            known.threads.update({own: pid, **dict(threads)})
            # Two containers may count alike: then it is not known which is meant.
            parents[own] = pid if parents.get(own, pid) == pid else -own
    parts = [np.empty(0, _RECORD)]
    for path in _files(folder, SUFFIX, _MAX_FILES):
        records = _read(path)
        if (process := escaped(path.name.rpartition("-")[0])) in here:
            _rename(records, here[process], parents)
        parts.append(records)
    records = np.concatenate(parts)
    # By threads, then by time; of one time as they lie.
    records = records[np.lexsort((records["ts"], records["tid"], records["pid"]))]
    measured = np.isin(records["kind"], (MEASURED, MEASURED | AUTOMATIC))
    of_torch = (records["kind"] & AUTOMATIC) != 0
    script = _spans(records[~of_torch & ~measured], True)
    automatic = _spans(records[of_torch & ~measured], False)
    for found in (script, automatic):
        _measure(found, records[measured])
    return script, automatic


def read_notes(folder: Path) -> list[str]:
    """What the processes left word of that PyTorch could not be made to mark, each text once."""
    found: dict[str, None] = {}
    for path in _files(folder, NOTE_SUFFIX, _MAX_NOTES):
        with contextlib.suppress(OSError, ValueError):
            found[read_bounded(path, _MAX_NOTE_BYTES).decode("utf-8", "replace")] = None
    return list(found)


def _files(folder: Path, suffix: str, most: int) -> list[Path]:
    """Files of this suffix, in a folder of marks and in that of a command being recorded.

    The recorder or its guardian empties the second one. It is there if both were killed.
    """
    found: list[Path] = []
    for place in (folder, folder.with_name(folder.name + LIVE)):
        if place.is_dir() and not place.is_symlink():
            paths = (path for path in place.iterdir() if path.suffix == suffix)
            found += sorted(itertools.islice(paths, most))
    return found[:most]


def _read(path: Path) -> np.ndarray[Any, Any]:
    """The committed records of one marks file."""
    try:
        data = read_bounded(path, _MAX_BYTES)
    except (OSError, ValueError):
        return np.empty(0, _RECORD)
    records = np.frombuffer(data, _RECORD, count=len(data) // RECORD_BYTES)
    kinds = [kind | of_torch for kind in (BEGIN, END, MEASURED) for of_torch in (0, AUTOMATIC)]
    sane = (records["committed"] == COMMITTED) & np.isin(records["kind"], kinds)
    sane &= (records["pid"] > 0) & (records["tid"] > 0)
    kept: np.ndarray[Any, Any] = records[sane]
    return kept


@dataclass
class _Names:
    """Of a container's process that marks."""

    own: int
    """Its pid there."""
    threads: dict[int, int] = field(default_factory=dict)
    """What they are called here, by what they are called there; its first one among them."""


def _rename(records: np.ndarray[Any, Any], names: _Names, parents: dict[int, int]) -> None:
    """Put this machine's pids and tids in the place of a container's; negative: not known."""
    known = names.threads
    records["tid"] = [known.get(tid, -tid) for tid in records["tid"].tolist()]
    records["pid"] = [
        known.get(pid, -pid) if pid == names.own else -pid for pid in records["pid"].tolist()
    ]
    worker = (records["name"] == b"worker") & (records["step"] > 0)
    records["step"][worker] = [parents.get(pid, -pid) for pid in records["step"][worker].tolist()]


def _spans(records: np.ndarray[Any, Any], inherit: bool) -> list[Span]:
    """Spans of each thread, as they began: an end closes the innermost open one of its name."""
    begun: list[Span] = []
    stack: deque[Span] = deque()
    names: dict[bytes, str] = {}
    often: Counter[str] = Counter()
    """The number of open ones of a name: a thread may end what it never began."""
    thread = None
    for ts, pid, tid, epoch, step, kind, raw in _rows(records[_COLUMNS]):
        if (pid, tid) != thread:
            thread = pid, tid
            stack.clear()
            often.clear()
        name = names.get(raw)
        if name is None:
            name = names[raw] = _text(raw)
        if kind & ~AUTOMATIC == BEGIN:
            if len(stack) >= _MAX_OPEN:
                often[stack.popleft().name] -= 1
            around = stack[-1] if stack and inherit else None
            span = Span(
                ts,
                pid,
                tid,
                name,
                epoch if epoch != ABSENT else (around.epoch if around else None),
                step if step != ABSENT else (around.step if around else None),
            )
            begun.append(span)
            stack.append(span)
            often[name] += 1
        elif often[name]:
            # What is still open inside it was left by an exception that skipped its end mark.
            ended = None
            while ended != name:
                span = stack.pop()
                span.end, ended = ts, span.name
                often[ended] -= 1
    return begun


def _rows(records: np.ndarray[Any, Any]) -> Iterator[tuple[Any, ...]]:
    """Records as tuples of Python's numbers, made some at a time."""
    for first in range(0, len(records), _AT_ONCE):
        yield from records[first : first + _AT_ONCE].tolist()


def _text(name: bytes) -> str:
    return name.rstrip(b"\0").decode("utf-8", "backslashreplace")


def _measure(spans: list[Span], records: np.ndarray[Any, Any]) -> None:
    """Add to spans what the GPU took for each part of them, by thread, name and time."""
    by_name: dict[tuple[int, int, str], list[Span]] = {}
    for span in spans if len(records) else ():
        by_name.setdefault((span.pid, span.tid, span.name), []).append(span)
    for _, pid, tid, at, took, _, raw in _rows(records[_COLUMNS]):
        own = by_name.get((pid, tid, _text(raw)), [])
        before = bisect_right(own, at, key=lambda s: s.start)
        if before and 0 <= took < _MAX_GPU_NS:
            around = own[before - 1]
            if around.end is None or at <= around.end:
                around.gpu_ns = (around.gpu_ns or 0) + took
