"""Rows of tables and queries of a trace, batch by batch: memory does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tracer.store.trace import ALL_TABLES, Trace

BATCH_ROWS = 1 << 16


def table_batches(
    trace: Trace, table: str, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table in the file's order; a column that the trace lacks is null."""
    names = [c.name for c in ALL_TABLES[table].columns if columns is None or c.name in columns]
    chosen = ", ".join(f'"{name}"' for name in names)
    yield from trace.batches(f'SELECT {chosen} FROM "{table}"', BATCH_ROWS)


def query_batches(trace: Trace, sql: str) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a trusted query."""
    yield from trace.batches(sql, BATCH_ROWS)
