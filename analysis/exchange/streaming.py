"""Tables and queries of a trace, batch by batch: memory does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from probes.errors import BadTrace
from probes.loss import TABLE as LOSS
from tracer.store.trace import ALL_TABLES, Trace

BATCH_ROWS = 1 << 16


def table_batches(
    trace: Trace, table: str, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a table in the order of the file; a column that the trace lacks is null."""
    path = trace.folder / "events" / f"{table}.parquet"
    if table == LOSS.name:
        path = trace.folder / "loss.parquet"
    declared = ALL_TABLES[table]
    schema = declared.arrow_schema()
    wanted = [c.name for c in declared.columns if columns is None or c.name in columns]
    try:
        with pq.ParquetFile(path) as file:
            there = set(file.schema_arrow.names)
            reading = [name for name in wanted if name in there]
            for batch in file.iter_batches(BATCH_ROWS, columns=reading):
                arrays = [
                    batch.column(name)
                    if name in there
                    else pa.nulls(batch.num_rows, schema.field(name).type)
                    for name in wanted
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=wanted)
    except (pa.ArrowException, OSError, ValueError) as error:
        line = " ".join(str(error).split())[:200]
        raise BadTrace(f"{path} is damaged: {line}", "restore it from a copy") from None


def query_batches(trace: Trace, sql: str) -> Iterator[pa.RecordBatch]:
    """The rows of a query of our own."""
    try:
        trace.sql("SELECT 1")  # ends a result that somebody has not read to its end
        relation = trace.connection.sql(sql)
        # The name that it has in DuckDB 2; the one of 1.x after it.
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        yield from read(BATCH_ROWS)
    except (duckdb.Error, pa.ArrowException, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())[:200]
        raise BadTrace(
            f"the tables of {trace.folder} are damaged: {line}", "restore them from a copy"
        ) from None
