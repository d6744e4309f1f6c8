"""One table's Parquet file, written in row groups in parallel to the code that makes the rows."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracer.probes.schema import Table
from tracer.store.files import create

_ROW_GROUP = 512 * 1024
"""Rows held before they are written: about 30 MB of the widest table."""
_MOST_BATCHES = 256
"""Most batches held separately: a batch of a few rows takes about 10 KB."""


class TableWriter:
    """Collects batches of rows and writes them in row groups of about half a million rows."""

    def __init__(self, table: Table, folder: Path, row_group: int = _ROW_GROUP) -> None:
        """`row_group` is the number of rows per row group; use fewer for rows with long text."""
        self.table = table
        self._row_group = row_group
        self.path = folder / f"{table.name}.parquet"
        self.rows = 0
        self._schema = table.arrow_schema()
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._merged = 0
        """Number of held batches that were merged from others."""
        self._worker: ThreadPoolExecutor | None = None
        self._written: Future[None] | None = None
        self._file = create(self.path)
        self._writer = pq.ParquetWriter(
            self._file,
            self._schema,
            compression="zstd",
            use_dictionary=[c.name for c in table.columns if c.type.value == "text"],
            column_encoding={
                c.name: "DELTA_BINARY_PACKED"
                for c in table.columns
                if c.name in ("ts", "start", "sector", "address")
            },
            write_statistics=True,
        )

    def add(self, batch: pa.RecordBatch | None) -> None:
        """Takes rows, in the order in which they are to lie in the file.

        An error in writing a row group is raised by a later call.
        """
        if batch is None or not batch.num_rows:
            return
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self.rows += batch.num_rows
        if len(self._held) - self._merged >= _MOST_BATCHES:
            self._merge()
        if self._held_rows >= self._row_group:
            group = self._row_groups()
            self._await_written()
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1)
            self._written = self._worker.submit(self._write, group)

    def _merge(self) -> None:
        """Merges the batches that have come since the last merge into one."""
        late = pa.Table.from_batches(self._held[self._merged :], self._schema)
        self._held[self._merged :] = late.unify_dictionaries().combine_chunks().to_batches()
        self._merged = len(self._held)

    def _row_groups(self) -> pa.Table:
        held, self._held, self._held_rows, self._merged = self._held, [], 0, 0
        return pa.Table.from_batches(held, self._schema).unify_dictionaries()

    def _write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=_ROW_GROUP)

    def _await_written(self) -> None:
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def close(self) -> None:
        """Writes the held rows and the footer."""
        self._end_worker()
        self._await_written()
        if self._held:
            self._write(self._row_groups())
        self._writer.close()
        self._file.close()

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None

    def discard(self) -> None:
        """Closes an unfinished file. Harmless after `close`."""
        self._end_worker()
        if not self._file.closed:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
            with contextlib.suppress(OSError):
                self._file.close()


def write_table(table: Table, folder: Path, rows: pa.RecordBatch | None) -> int:
    """Writes a whole table at once. Returns its number of rows."""
    writer = TableWriter(table, folder)
    writer.add(rows)
    writer.close()
    return writer.rows


def write_rows(table: Table, folder: Path, rows: Sequence[Sequence[Any]]) -> int:
    """Writes a whole table from rows with one value per column. Returns the number of rows."""
    return write_table(table, folder, batch_of(table, rows))


def batch_of(table: Table, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Returns a batch made from rows with one value per column."""
    schema = table.arrow_schema()
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [
        pa.array(values, pa.string()).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(values, field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
