"""Marks files of the traced processes into spans: what began and ended on which thread."""

from __future__ import annotations

import contextlib
import itertools
from bisect import bisect_right
from collections.abc import Iterable
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
    by_thread: dict[tuple[int, int], list[np.ndarray[Any, Any]]] = {}
    for path in _files(folder, SUFFIX, _MAX_FILES):
        records = _read(path)
        if (process := path.name.rpartition("-")[0]) in here:
            _rename(records, here[process], parents)
        for pid, tid in np.unique(records[["pid", "tid"]]).tolist():
            mine = records[(records["pid"] == pid) & (records["tid"] == tid)]
            by_thread.setdefault((pid, tid), []).append(mine)
    script: list[Span] = []
    automatic: list[Span] = []
    for (pid, tid), parts in sorted(by_thread.items()):
        records = np.concatenate(parts)
        records = records[np.argsort(records["ts"], kind="stable")]
        measured = np.isin(records["kind"], (MEASURED, MEASURED | AUTOMATIC))
        of_torch = (records["kind"] & AUTOMATIC) != 0
        for found, mine, inherit in (
            (script, records[~of_torch & ~measured], True),
            (automatic, records[of_torch & ~measured], False),
        ):
            spans = _of_thread(pid, tid, mine, inherit)
            _measure(spans, records[measured])
            found += spans
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


def _of_thread(pid: int, tid: int, records: np.ndarray[Any, Any], inherit: bool) -> list[Span]:
    """Spans of one thread, as they began: an end closes the innermost open one of its name."""
    begun: list[Span] = []
    stack: list[Span] = []
    names: dict[bytes, str] = {}
    for ts, epoch, step, kind, raw in zip(
        *(records[column].tolist() for column in ("ts", "epoch", "step", "kind", "name")),
        strict=True,
    ):
        name = names.get(raw)
        if name is None:
            name = names[raw] = _text(raw)
        if kind & ~AUTOMATIC == BEGIN:
            if len(stack) >= _MAX_OPEN:
                del stack[0]
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
            continue
        at = next((i for i in reversed(range(len(stack))) if stack[i].name == name), None)
        if at is None:
            continue  # began before the marks were kept
        # What was still open inside it was left by an exception that skipped its end mark.
        for inner in stack[at:]:
            inner.end = ts
        del stack[at:]
    return begun


def _text(name: bytes) -> str:
    return name.rstrip(b"\0").decode("utf-8", "backslashreplace")


def _measure(spans: list[Span], records: np.ndarray[Any, Any]) -> None:
    """Add to spans of one thread what the GPU took for each part of them, by name and time."""
    by_name: dict[str, list[Span]] = {}
    for span in spans if len(records) else ():
        by_name.setdefault(span.name, []).append(span)
    for at, took, raw in zip(
        *(records[column].tolist() for column in ("epoch", "step", "name")), strict=True
    ):
        own = by_name.get(_text(raw), [])
        before = bisect_right(own, at, key=lambda s: s.start)
        if before and 0 <= took < _MAX_GPU_NS:
            around = own[before - 1]
            if around.end is None or at <= around.end:
                around.gpu_ns = (around.gpu_ns or 0) + took
