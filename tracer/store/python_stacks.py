"""The table `python_stacks`, from the list of looks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tracer.probes.python_stacks import TABLE
from tracer.store import listed
from tracer.store.lists import LookFacts
from tracer.store.manifest import Manifest
from tracer.store.manifest_parts import TableFacts
from tracer.store.tables import write_table

FILE = "python_stacks.jsonl"


def decode(raw: Path, manifest: Manifest, building: Path) -> dict[str, TableFacts]:
    """Writes the table if the recording looked at Python stacks. Raises BadTrace.

    A look whose stack was left out of the list is left out, too.
    """
    if "python_stacks" not in manifest:
        return {}
    numbers: dict[int, int] = {}
    texts: list[str] = []
    rows: list[tuple[int, int, int, int, int]] = []
    for start, end, pid, tid, number, text in listed.read(raw / FILE, LookFacts):
        if text is not None:
            numbers[number] = len(texts)
            texts.append(text)
        if number in numbers:
            rows.append((start, end, pid, tid, numbers[number]))
    rows.sort()
    *values, indices = zip(*rows, strict=True) if rows else [()] * 5
    schema = TABLE.arrow_schema()
    columns = [pa.array(column, field.type) for column, field in zip(values, schema, strict=False)]
    stacks = pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32()), pa.array(texts, pa.string())
    )
    batch = pa.RecordBatch.from_arrays([*columns, stacks], schema=schema)
    written = write_table(TABLE, building, batch)
    size = (building / f"{TABLE.name}.parquet").stat().st_size
    return {TABLE.name: {"rows": written, "bytes": size}}
