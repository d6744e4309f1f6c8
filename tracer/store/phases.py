"""The phases of a trace: marked by scripts, marked by PyTorch, or inferred.

Memory use does not grow with the recording. Marks are read piece by piece, phases are written as
they are found. DuckDB sorts many phases, on disk if they exceed its memory limit.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracer.probes.phases import TABLE
from tracer.store.files import create, open_regular
from tracer.store.interrupt import interruptible
from tracer.store.lists import MarkFacts
from tracer.store.marks import Marked, marked
from tracer.store.numbers import Batches, Epochs
from tracer.store.outside import UPROBE, Calls
from tracer.store.span import Span
from tracer.store.spans import Spans
from tracer.store.tables import TableWriter
from tracer.store.training import AUTOMATIC, NAMES, Loop
from tracer.store.workers import Worker

_NESTED = ("train", "epoch", "step")
"""If a script marks one of these phases, that one and those around it are not inferred."""
_ALIKE = ("eval", "inference")
"""If a script marks one of these phases, none of them is inferred."""
_ROWS = 1 << 16
_MOST_MEMORY = "128MB"
_THREADS = 2
CUT = "phases end too early: they ended after the phase around them, and phases of a thread nest"
_DEPTHS = {name: n for n, name in enumerate(("train", "epoch", "eval", "inference", "step"))}
"""Order of phases that begin and end together: the outer ones come first."""
_FOREVER = 1 << 62
_ABSENT = -(1 << 63)

_UNSORTED = pa.schema(
    [
        *((name, pa.int64()) for name in ("start", "end", "pid", "tid", "epoch", "step", "gpu_ns")),
        *((name, pa.string()) for name in ("name", "source")),
        *((name, pa.int64()) for name in ("loop", "cycle", "depth", "number")),
    ]
)
_SORTED = """
SELECT * FROM read_parquet('{place}', hive_partitioning = false)
ORDER BY start, "end" DESC NULLS FIRST, depth, number
"""


def write_phases(
    folder: Path,
    start_ns: int,
    end_ns: int | None,
    building: Path,
    names: Iterable[MarkFacts] = (),
) -> tuple[int, Counter[str]]:
    """Writes the table of the phases that overlap the recording.

    Returns their number, and counts of faults by a phrase that follows the number. Raises OSError
    if the phases cannot be written or sorted.

    The sources are every marks file in `folder` and, for processes without marks there, the table
    `torch_calls` in `building`. The phases are also written to `building`. `names` are the
    containers' processes.
    """
    asked = {name for group in (_NESTED, _ALIKE, NAMES) for name in group}
    processes, lost = marked(folder, names, asked)
    calls = Calls(building)
    rows = _Rows(building / f".{TABLE.name}", start_ns, end_ns)
    try:
        made = _Made(rows, processes, calls)
        # Workers last: their fetches get their numbers from the processes that use them.
        for process in sorted(processes, key=lambda process: process.found.serves is not None):
            lost += made.add(process)
        made.add_calls(calls)
        return _write_sorted(rows, building, made.epochs), lost
    finally:
        rows.remove()


class _Made:
    """The shared state for making the phases of all processes."""

    def __init__(self, rows: _Rows, processes: list[Marked], calls: Calls) -> None:
        self.rows = rows
        self.epochs = Epochs()
        works = any(process.found.serves is not None for process in processes)
        self.batches = Batches() if works else None
        self._said: dict[int, set[str]] = {}
        """Names of the phases that scripts mark themselves, by pid."""
        for process in processes:
            self._said.setdefault(process.pid, set()).update(_marked_by(process))
        self._marked = {process.pid for process in processes if process.found.automatic}
        self._seen_outside = calls.pids - self._marked
        self.numbered: dict[tuple[int, int], _Numbered] = {}
        """Phases of scripts in processes that uprobes have seen, too."""

    def add(self, process: Marked) -> Counter[str]:
        """Takes the marks of a process. Returns counts of its faults by a phrase as above."""
        taken = _Process(process, self)
        found = process.found
        spans = Spans(process.pid, taken, found.leading, found.measured)
        for records in process.records():
            spans.add(records)
        spans.finish()
        return Counter({CUT: spans.cut} if spans.cut else {})

    def script(self, span: Span) -> None:
        """Takes a phase of a script."""
        self.rows.add(span)
        if span.pid in self._seen_outside and (span.epoch is not None or span.step is not None):
            self.numbered.setdefault((span.pid, span.tid), _Numbered()).add(span)

    def inferred(self, span: Span, said: Collection[str]) -> None:
        """Takes a phase that PyTorch marked or that was inferred, unless its name is in `said`.

        It has the numbers that the script marks around it. If the script marks steps or epochs,
        no inferred number takes the place of one that it does not give.
        """
        if span.name not in said:
            if span.around is not None:
                epoch, step = span.around
                if epoch is not None or "epoch" in said:
                    span.epoch, span.loop = epoch, -1
                if step is not None or "step" in said:
                    span.step = step
            self.rows.add(span)

    def said_by(self, process: Marked) -> set[str]:
        """Returns names that are not inferred. A worker's steps are those of its job's script."""
        said = _marked_by(process)
        if process.found.serves is not None:
            said |= self._said.get(process.found.serves, set()).intersection(_NESTED)
        return said

    def add_calls(self, calls: Calls) -> None:
        """Takes the uprobes' calls of processes in which PyTorch made no marks."""
        loops: dict[tuple[int, int], Loop] = {}

        def take(pid: int, tid: int, spans: list[Span]) -> None:
            loop = loops.get((pid, tid))
            if loop is None:
                trains = pid in calls.learning
                emit = partial(self.inferred, said=self._said.get(pid, ()))
                loop = loops[pid, tid] = Loop(trains, UPROBE, self.epochs, None, emit)
            script = self.numbered.get((pid, tid))
            if script is not None:
                for span in spans:
                    span.around = script.around(span.start)
            loop.add(spans)

        calls.read(take, self._marked)
        for loop in loops.values():
            loop.finish()


class _Process:
    """The receiver of one process's spans (`spans.Takes`)."""

    def __init__(self, process: Marked, made: _Made) -> None:
        self._learns = process.found.learns
        self._helping = process.found.helping
        self._made = made
        self._emit = partial(made.inferred, said=made.said_by(process))
        self._loops: dict[int, Loop] = {}
        self._worker: Worker | None = None
        serves = process.found.serves
        if serves is not None and made.batches is not None:
            self._worker = Worker(serves, made.batches, self._emit)

    def phase(self, span: Span) -> None:
        """Takes a phase of the script."""
        self._made.script(span)

    def facts(self, tid: int, spans: list[Span]) -> None:
        """Takes facts that PyTorch marked."""
        if self._worker is not None:
            self._worker.add(spans)
            return
        if tid in self._helping:
            for span in spans:
                span.epoch = span.step = None
                span.source = AUTOMATIC
                self._emit(span)
            return
        loop = self._loops.get(tid)
        if loop is None:
            made = self._made
            loop = Loop(self._learns, AUTOMATIC, made.epochs, made.batches, self._emit)
            self._loops[tid] = loop
        loop.add(spans)

    def ended(self, tid: int) -> None:
        """Takes the end of a thread."""
        loop = self._loops.pop(tid, None)
        if loop is not None:
            loop.finish()


def _marked_by(process: Marked) -> set[str]:
    """Returns names that are not inferred, because the script of the process marks phases."""
    said = set(process.found.said)
    for number, name in enumerate(_NESTED):
        if name in said:
            said.update(_NESTED[:number])
    return said.union(_ALIKE if said.intersection(_ALIKE) else ())


class _Numbered:
    """The phases with numbers in one thread's script."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._by_start = np.empty((0, 5), np.int64)
        self._at = 0
        self._open: list[list[int]] = []

    def add(self, span: Span) -> None:
        """Takes a phase that has ended or never ends."""
        end = _FOREVER if span.end is None else span.end
        numbers = (_ABSENT if number is None else number for number in (span.epoch, span.step))
        self._rows.extend((span.start, end, *numbers, span.number))

    def around(self, at: int) -> tuple[int | None, int | None] | None:
        """Returns epoch and step of the innermost phase at time `at`. Times must not decrease."""
        if self._rows:
            rows = np.frombuffer(self._rows, np.int64).reshape(-1, 5)
            self._by_start = rows[np.lexsort((rows[:, 4], rows[:, 0]))]
            self._rows = array("q")
        while self._at < len(self._by_start) and self._by_start[self._at, 0] <= at:
            self._open.append(self._by_start[self._at].tolist())
            self._at += 1
        # A phase ends no earlier than the phases inside it.
        while self._open and self._open[-1][1] <= at:
            self._open.pop()
        if not self._open:
            return None
        _, _, epoch, step, _ = self._open[-1]
        return None if epoch == _ABSENT else epoch, None if step == _ABSENT else step


class _Rows:
    """Phases in the order in which they are found: in memory, or in a file if there are many."""

    def __init__(self, path: Path, start_ns: int, end_ns: int | None) -> None:
        """Keeps phases that overlap the time span; an end of None means no limit."""
        self.path = path
        self._start, self._end = start_ns, _FOREVER if end_ns is None else end_ns
        self._held: list[tuple[Any, ...]] = []
        self._number = 0
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, span: Span) -> None:
        """Takes a phase, if it overlaps."""
        end = span.end
        if end is not None:
            # Times in a hostile file may decrease.
            end = max(end, span.start)
        if span.start > self._end or (end is not None and end < self._start):
            return
        self._number += 1
        # Other tables do not contain a container's own pids.
        self._held.append(
            (
                span.start,
                end,
                span.pid if span.pid > 0 else None,
                span.tid if span.tid > 0 else None,
                span.epoch,
                span.step,
                span.gpu_ns,
                span.name,
                span.source,
                span.loop,
                span.cycle,
                _DEPTHS.get(span.name, len(_DEPTHS)),
                self._number,
            )
        )
        if len(self._held) >= _ROWS:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            self._file = create(self.path)
            self._writer = pq.ParquetWriter(self._file, _UNSORTED, compression="zstd")
        held, self._held = self._held, []
        self._writer.write_batch(_batch(held))

    def in_order(self, building: Path) -> Iterator[pa.RecordBatch]:
        """Yields the sorted rows; no more can be added. Raises OSError as `_in_order` does."""
        if self._writer is not None:
            if self._held:
                self._write()
            self._close()
            yield from _in_order(self.path, building)
        elif self._held:
            yield _batch(sorted(self._held, key=_place))

    def _close(self) -> None:
        if self._writer is not None and self._file is not None and not self._file.closed:
            self._writer.close()
            self._file.close()

    def remove(self) -> None:
        """Removes the file."""
        self._close()
        self.path.unlink(missing_ok=True)


def _place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the place of a row among others, as `_SORTED` orders them."""
    start, end, *_, depth, number = row
    return start, -math.inf if end is None else -end, depth, number


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), _UNSORTED, strict=True)
    ]
    return pa.record_batch(columns, _UNSORTED)


def _write_sorted(rows: _Rows, building: Path, epochs: Epochs) -> int:
    """Writes the table. Returns its number of rows."""
    writer = TableWriter(TABLE, building)
    try:
        for found in rows.in_order(building):
            writer.add(_rows_of_table(found, epochs))
        writer.close()
    finally:
        writer.discard()
    return writer.rows


def _in_order(unsorted: Path, building: Path) -> Iterator[pa.RecordBatch]:
    """Yields the sorted rows. Raises OSError if memory or disk space does not suffice."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "memory_limit": _MOST_MEMORY,
        "temp_directory": str(building / f".{TABLE.name}.spilled"),
        "threads": _THREADS,
    }
    try:
        with open_regular(unsorted) as file, duckdb.connect(config=config) as connection:
            connection.execute("SET enable_progress_bar=false")  # it prints to standard output
            query = _SORTED.format(place=f"/proc/self/fd/{file.fileno()}")
            reader: pa.RecordBatchReader = interruptible(
                connection, lambda db: db.sql(query).to_arrow_reader(_ROWS)
            )
            while (batch := interruptible(connection, lambda _: next(reader, None))) is not None:
                yield batch
    except duckdb.Error as error:
        raise OSError(f"the phases cannot be sorted: {error}") from None


def _rows_of_table(found: pa.RecordBatch, epochs: Epochs) -> pa.RecordBatch:
    """Returns rows of the table, with the epochs of their cycles."""
    numbers, known = epochs.find(*(found.column(name).to_numpy() for name in ("loop", "cycle")))
    own = found.column("epoch")
    epoch = pc.if_else(pa.array(known), pa.array(numbers), own)
    arrays = []
    for field in TABLE.arrow_schema():
        column = epoch if field.name == "epoch" else found.column(field.name)
        if pa.types.is_dictionary(field.type):
            arrays.append(column.dictionary_encode())
        else:
            arrays.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=TABLE.arrow_schema())
