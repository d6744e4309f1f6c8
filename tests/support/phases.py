"""Marks in, phases out: what is made of a folder of marks, and marks files made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq

from tracer.phases.format import ABSENT, AUTOMATIC, BEGIN, COMMITTED, END, RECORD
from tracer.store.marks import marked
from tracer.store.phases import write_phases
from tracer.store.span import Span
from tracer.store.spans import Spans


def read_phases(
    folder: Path, start_ns: int = 0, end_ns: int | None = None, **more: Any
) -> list[dict[str, Any]]:
    """The rows of the table that is made of a folder of marks."""
    with TemporaryDirectory() as building:
        rows, _ = write_phases(folder, start_ns, end_ns, Path(building), **more)
        found = read_table(Path(building))
        assert len(found) == rows
        assert [path.name for path in Path(building).iterdir()] == ["phases.parquet"]
    return found


def read_table(folder: Path) -> list[dict[str, Any]]:
    """The rows of the table of phases in a folder."""
    found: list[dict[str, Any]] = pq.read_table(folder / "phases.parquet").to_pylist()
    return found


def read_spans(folder: Path) -> tuple[list[Span], list[Span]]:
    """The spans of a folder's marks: those of scripts, and the automatic ones."""
    script: list[Span] = []
    automatic: list[Span] = []
    for process in marked(folder)[0]:
        takes = SimpleNamespace(
            phase=script.append,
            facts=lambda _, spans: automatic.extend(spans),
            ended=lambda _: None,
        )
        spans = Spans(process.pid, takes, process.found.leading, process.found.measured)
        for records in process.records():
            spans.add(records)
        spans.finish()
    return script, automatic


def marks_file(
    folder: Path, *marks: tuple[Any, ...], process: str = "5-1", number: int = 0
) -> None:
    """A marks file made by hand: (ts, kind, pid, tid, name, epoch, step) a record."""
    records = [
        RECORD.pack(ts, pid, tid, epoch, step, kind, name, COMMITTED)
        for ts, kind, pid, tid, name, epoch, step in marks
    ]
    (folder / f"{process}-{number}.marks").write_bytes(b"".join(records))


def write_marks(folder: Path, spans: Iterable[Span], automatic: bool = True) -> None:
    """Marks files that tell of these spans."""
    every: dict[int, list[tuple[Any, ...]]] = {}
    for span in spans:
        every.setdefault(span.pid, []).extend(_marks_of(span, automatic))
    for pid, marks in every.items():
        marks_file(folder, *sorted(marks), process=f"{pid}-{int(automatic)}")


def write_process(folder: Path, script: Iterable[Span], facts: Iterable[Span]) -> None:
    """The marks file of a process that both its script and PyTorch mark."""
    marks = [mark for span in script for mark in _marks_of(span, False)]
    marks += [mark for span in facts for mark in _marks_of(span, True)]
    marks_file(folder, *sorted(marks), process=f"{marks[0][2]}-1")


def _marks_of(span: Span, automatic: bool) -> list[tuple[Any, ...]]:
    of_torch = AUTOMATIC if automatic else 0
    numbers = [ABSENT if number is None else number for number in (span.epoch, span.step)]
    name = span.name.encode()
    marks = [(span.start, BEGIN | of_torch, span.pid, span.tid, name, *numbers)]
    if span.end is not None:
        marks.append((span.end, END | of_torch, span.pid, span.tid, name, ABSENT, ABSENT))
    return marks
