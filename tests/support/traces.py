"""Traces from rows written out in a test: trace, query and expected table side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracer.probes.catalogue import TABLES
from tracer.probes.loss import TABLE as LOSS
from tracer.probes.schema import Table
from tracer.store import manifest as manifests
from tracer.store.files import make_folder
from tracer.store.tables import write_table
from tracer.store.trace import Trace


def rows_of(table: Table, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as the table's columns; what a row leaves out is null, or 0 where it may not be."""
    names = {column.name for column in table.columns}
    assert all(row.keys() <= names for row in rows)
    arrays = []
    for column, field in zip(table.columns, table.arrow_schema(), strict=True):
        default = None if column.nullable else ("" if column.type.value == "text" else 0)
        values = [row.get(column.name, default) for row in rows]
        if pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema())


def make_trace(folder: Path, tables: dict[str, list[dict[str, Any]]], **manifest: Any) -> Trace:
    """A finalized trace with these tables."""
    make_folder(folder)
    make_folder(folder / "events")
    counts = {}
    for name, rows in tables.items():
        if name == LOSS.name:
            continue
        written = write_table(TABLES[name], folder / "events", rows_of(TABLES[name], rows))
        counts[name] = {"rows": written}
    write_table(LOSS, folder, rows_of(LOSS, tables.get("loss", [])))
    made: dict[str, Any] = {
        "schema": manifests.SCHEMA,
        "state": "finalized",
        "complete": True,
        "ended_by": "command",
        "recorder": {},
        "host": {"machine": "x86_64", "cpus": 2, "memory_bytes": 1 << 30},
        "kernel": {},
        "clock": {"name": "mono", "start_ns": 0, "end_ns": 10**9},
        "duration_s": 1.0,
        "targets": [],
        "probes": list(tables),
        "backend": "ftrace",
        "capture": {},
        "vm": {},
        "disks": [],
        "own_files": {},
        "own_cost": {},
        "tables": counts,
        "loss": {"events": 0, "windows": 0, "unknown": 0, "others": 0},
    }
    made.update(manifest)
    manifests.write(folder, made)
    return Trace(folder)


def split_table(folder: Path, name: str, rows: int) -> None:
    """Writes a table of a closed trace again, in row groups of so many rows.

    Several threads of DuckDB read a table of several groups, as that of a long recording.
    """
    path = folder / "events" / f"{name}.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=rows)
