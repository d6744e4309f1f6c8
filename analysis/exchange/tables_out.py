"""Export of the tables of a trace and of derived tables, as a folder of CSV or Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from tracer.analysis.exchange.drawing import Window
from tracer.analysis.exchange.marks import LATEST_NS, numbers_of, readable
from tracer.analysis.exchange.streaming import query_batches, table_batches
from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.phases.phase_times import make_phase_times
from tracer.analysis.views.waiting.steps import steps_until
from tracer.analysis.views.writing.flushes import flushes
from tracer.store.files import as_invoking_user, create
from tracer.store.trace import ALL_TABLES, Trace

VIEWS: dict[str, tuple[str, Callable[[Trace], str], str, str]] = {
    "requests": (
        "block", requests, "coalesce(queue_ns, issue_ns)", f"coalesce(complete_ns, {LATEST_NS})",
    ),
    "flushes": ("block", flushes, "ts", "ts"),
    "steps": ("phases", steps_until, "start", f"coalesce(until, {LATEST_NS})"),
}  # fmt: skip
"""Views: the table that each needs, a function that makes it, or a table with its columns and more,
and SQL for begin and end."""

_FORMULA = (*"=+-@", *"\uff1d\uff0b\uff0d\uff20", "\t", "\r", "\n")
"""Characters with which a formula begins in a spreadsheet, with their full-width forms."""

PHASES = "phases"
_TS = ("ts", "ts")
TIME = {
    "loss": ("from", "to"), "syscalls": ("ts", "dur_ns"), "off_cpu": ("ts", "dur_ns"),
}  # fmt: skip
"""Time columns of the tables that have more, or others, than `ts`, except phases."""

# Any later row of the thread would show that this one is over.
_UNENDED = f"""
WITH latest AS (
    SELECT tid, max(ts) AS ts FROM "$table" GROUP BY tid
    HAVING max(ts) = max(ts) FILTER (WHERE dur_ns IS NULL)
)
SELECT l.tid, l.ts, coalesce(min(p.end_ns), {LATEST_NS}) AS until
FROM latest l LEFT JOIN processes p ON p.tid = l.tid AND p.end_ns >= l.ts
GROUP BY ALL ORDER BY l.tid
"""


def write_tables(trace: Trace, folder: Path, format: str, window: Window | None) -> dict[str, int]:
    """Writes each table of the trace to FOLDER/TABLE.csv or .parquet; returns their rows.

    Writes rows that overlap the window; tables without times are written whole. In Parquet, texts
    are unchanged except for bytes that are not UTF-8. In CSV, a text that a spreadsheet would take
    for a formula gets an apostrophe before it (OWASP, CSV Injection).
    """
    rows = {}
    for name in trace.tables:
        unended = None
        if window is not None and TIME.get(name, _TS)[1] == "dur_ns":
            unended = _Unended(trace, name)
        if window is not None and name == PHASES:
            batches = _phases(trace, window)
        else:
            batches = (_within(name, one, window, unended) for one in table_batches(trace, name))
        rows[name] = _write(folder, name, format, batches, _schema(name))
    for name, (needs, make, begun, over) in VIEWS.items():
        if needs in trace.tables:
            source = make(trace)
            schema = trace.arrow(f"SELECT * FROM {name} LIMIT 0").schema
            sql = f"SELECT {_listed(schema.names)} FROM {source}"
            if window is not None:
                sql += f" WHERE {begun} <= {window.end} AND {over} >= {window.start}"
            rows[name] = _write(folder, name, format, query_batches(trace, sql), schema)
    return rows


def _schema(name: str) -> pa.Schema:
    return ALL_TABLES[name].arrow_schema()


def _listed(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _phases(trace: Trace, window: Window) -> Iterator[pa.RecordBatch]:
    """Yields the phases of a window. One without an end lasts until its thread ends."""
    make_phase_times(trace)
    yield from query_batches(
        trace,
        f"SELECT {_listed(_schema(PHASES).names)} FROM phase_times WHERE start <= {window.end}"
        f" AND coalesce(until, {LATEST_NS}) >= {window.start} ORDER BY row",
    )


class _Unended:
    """The ends of calls, or of intervals off the CPU, in which their thread or the recording ended.

    Others without a duration count as moments: their ends were lost.
    """

    def __init__(self, trace: Trace, table: str) -> None:
        trace.empty_if_missing("processes")
        found = trace.arrow(_UNENDED.replace("$table", table))
        self._tid, self._ts, self._until = (found[name].to_numpy() for name in found.column_names)

    def ends(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the end of each row, in ns; LATEST_NS if neither has it."""
        ts, tid = batch.column("ts").to_numpy(), batch.column("tid").to_numpy()
        dur, known = numbers_of(batch.column("dur_ns"))
        most = LATEST_NS - 1
        over = np.minimum(ts, most) + np.clip(dur, 0, most)
        if len(self._tid):
            places = np.minimum(np.searchsorted(self._tid, tid), len(self._tid) - 1)
            cut = ~known & (self._tid[places] == tid) & (self._ts[places] == ts)
            over[cut] = self._until[places[cut]]
        return pa.array(over)


def _within(
    name: str, batch: pa.RecordBatch, window: Window | None, unended: _Unended | None
) -> pa.RecordBatch:
    first, last = TIME.get(name, _TS)
    if window is None or first not in batch.schema.names:
        return batch
    start, end = window.start, window.end
    begun = pc.coalesce(batch.column(first), pa.scalar(start, pa.int64()))
    over = begun
    if unended is not None:
        over = unended.ends(batch)
    elif last != first:
        over = pc.coalesce(batch.column(last), pa.scalar(end, pa.int64()))
    return batch.filter(pc.and_(pc.less_equal(begun, end), pc.greater_equal(over, start)))


def _write(
    folder: Path,
    name: str,
    format: str,
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
) -> int:
    rows = 0
    writer: pa.csv.CSVWriter | pq.ParquetWriter | None = None
    with as_invoking_user():
        file = create(folder / f"{name}.{format}")
    with file:
        try:
            for batch in batches:
                plain = _plain(batch, inert if format == "csv" else str)
                if writer is None:
                    writer = _writer(file, format, plain.schema)
                writer.write_batch(plain)
                rows += batch.num_rows
            if writer is None:
                writer = _writer(file, format, _plain_schema(schema))
        finally:
            # It writes the end of the file when it is deleted, if not before.
            if writer is not None:
                writer.close()
    return rows


def _writer(file: object, format: str, schema: pa.Schema) -> pa.csv.CSVWriter | pq.ParquetWriter:
    if format == "csv":
        return pyarrow.csv.CSVWriter(file, schema)
    return pq.ParquetWriter(file, schema, compression="zstd")


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [
            pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type)
            for f in schema
        ]
    )


def _plain(batch: pa.RecordBatch, shown: Callable[[str], str]) -> pa.RecordBatch:
    """Text columns as plain strings, in which every byte is UTF-8, each as it is `shown`."""
    arrays = []
    for column in batch.columns:
        if pa.types.is_string(column.type):
            column = column.dictionary_encode()
        if pa.types.is_dictionary(column.type):
            values = pa.array([shown(value) for value in readable(column.dictionary)], pa.string())
            column = (
                values.take(column.indices) if len(values) else pa.nulls(len(column), pa.string())
            )
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def inert(value: str) -> str:
    """Returns a text that no spreadsheet takes for a formula."""
    return f"'{value}" if value.startswith(_FORMULA) else value
