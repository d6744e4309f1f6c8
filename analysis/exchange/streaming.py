"""Rows of tables and queries of a trace, batch by batch: memory does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tracer.probes.schema import Type
from tracer.store.trace import ALL_TABLES, Trace

BATCH_ROWS = 1 << 16
_BATCH_BYTES = 64 << 20
"""Bytes that the texts of a batch may have. Few traces have texts so long that it matters."""


def table_batches(
    trace: Trace, table: str, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table in the file's order; a column that the trace lacks is null."""
    names = [c.name for c in ALL_TABLES[table].columns if columns is None or c.name in columns]
    chosen = ", ".join(f'"{name}"' for name in names)
    yield from query_batches(trace, f'SELECT {chosen} FROM "{table}"')


def query_batches(trace: Trace, sql: str) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a trusted query."""
    kinds = trace.arrow(f"FROM ({sql}) LIMIT 0").schema.types
    texts = sum(pa.types.is_string(kind) for kind in kinds)
    longest = max(1, texts * trace.once("longest text", lambda: _longest(trace)))
    yield from trace.batches(sql, max(1, min(BATCH_ROWS, _BATCH_BYTES // longest)))


def _longest(trace: Trace) -> int:
    """Returns the bytes of the longest text of a trace's tables."""
    found = 0
    for table in trace.tables:
        names = [c.name for c in ALL_TABLES[table].columns if c.type is Type.TEXT]
        if names:
            lengths = ", ".join(f'coalesce(max(strlen("{name}")), 0)' for name in names)
            found = max(found, *trace.rows(f'SELECT {lengths} FROM "{table}"')[0])
    return found
