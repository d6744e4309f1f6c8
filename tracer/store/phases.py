"""Marks of the traced processes into phases."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from probes.phases import TABLE
from tracer.phases.format import ABSENT, BEGIN, COMMITTED, END, NAME_BYTES, RECORD_BYTES, SUFFIX

_MAX_FILES = 100_000
_MAX_OPEN = 1000
"""Deepest nesting of phases on one thread; deeper is a marks file gone wild."""

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


@dataclass
class _Phase:
    start: int
    pid: int
    tid: int
    name: str
    epoch: int | None
    step: int | None
    end: int | None = None


def read_phases(folder: Path, start_ns: int, end_ns: int | None) -> pa.RecordBatch | None:
    """The phases of every marks file in `folder` that overlap the recording; None without any."""
    found: list[_Phase] = []
    if not folder.is_dir() or folder.is_symlink():
        return None
    by_thread: dict[tuple[int, int], list[np.ndarray[Any, Any]]] = {}
    for path in sorted(folder.iterdir())[:_MAX_FILES]:
        if path.suffix != SUFFIX:
            continue
        records = _read(path)
        for pid, tid in np.unique(records[["pid", "tid"]]).tolist():
            mine = records[(records["pid"] == pid) & (records["tid"] == tid)]
            by_thread.setdefault((pid, tid), []).append(mine)
    for (pid, tid), parts in sorted(by_thread.items()):
        records = np.concatenate(parts)
        found += _of_thread(pid, tid, records[np.argsort(records["ts"], kind="stable")])
    found = [
        p
        for p in found
        if (end_ns is None or p.start <= end_ns) and (p.end is None or p.end >= start_ns)
    ]
    if not found:
        return None
    found.sort(key=lambda p: (p.start, -(p.end or (1 << 62))))
    schema = TABLE.arrow_schema()
    names = pa.array([p.name for p in found], pa.string()).dictionary_encode()
    return pa.RecordBatch.from_arrays(
        [
            names if f.name == "name" else pa.array([getattr(p, f.name) for p in found], f.type)
            for f in schema
        ],
        schema=schema,
    )


def _read(path: Path) -> np.ndarray[Any, Any]:
    """The committed records of one marks file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return np.empty(0, _RECORD)
    with os.fdopen(fd, "rb") as file:
        size = os.fstat(fd).st_size
        records = np.fromfile(file, _RECORD, count=size // RECORD_BYTES)
    sane = (records["committed"] == COMMITTED) & np.isin(records["kind"], (BEGIN, END))
    kept: np.ndarray[Any, Any] = records[sane]
    return kept


def _of_thread(pid: int, tid: int, records: np.ndarray[Any, Any]) -> list[_Phase]:
    """Phases of one thread: an end closes the innermost open phase of its name."""
    done: list[_Phase] = []
    stack: list[_Phase] = []
    for record in records:
        name = bytes(record["name"]).rstrip(b"\0").decode("utf-8", "backslashreplace")
        ts = int(record["ts"])
        if record["kind"] == BEGIN:
            if len(stack) >= _MAX_OPEN:
                done.append(stack.pop(0))
            around = stack[-1] if stack else None
            epoch, step = int(record["epoch"]), int(record["step"])
            stack.append(
                _Phase(
                    ts,
                    pid,
                    tid,
                    name,
                    epoch if epoch != ABSENT else (around.epoch if around else None),
                    step if step != ABSENT else (around.step if around else None),
                )
            )
            continue
        at = next((i for i in reversed(range(len(stack))) if stack[i].name == name), None)
        if at is None:
            continue  # began before the marks were kept
        stack[at].end = ts
        # What was still open inside it was left by an exception that skipped its end mark.
        for inner in stack[at + 1 :]:
            inner.end = ts
        done += stack[at:]
        del stack[at:]
    return done + stack
