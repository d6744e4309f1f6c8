"""Import of page operations: CSV with columns ts_ns,dev,page,pages,op (R, W or F).

The operations become bio_queue rows of the table block, so that views and models can use them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tracer.analysis.exchange.block_rows import MOST_BYTES, block_rows
from tracer.analysis.exchange.reading import whole_lines
from tracer.probes.errors import BadTrace
from tracer.probes.events.block import SECTOR_BYTES, TABLE
from tracer.store.importing import ImportedTrace, Source

PAGE_BYTES = 4096
COLUMNS = {
    "ts_ns": pa.int64(),
    "dev": pa.string(),
    "page": pa.uint64(),
    "pages": pa.int64(),
    "op": pa.string(),
}
_SECTORS = PAGE_BYTES // SECTOR_BYTES
_LAST_PAGE = (1 << 64) // _SECTORS - 1
_MOST_PAGES = MOST_BYTES // PAGE_BYTES
_BLOCK_BYTES = 4 << 20


def import_csv(source: Path, output: Path, force: bool = False) -> int:
    """Makes the trace `output` from the CSV file `source`; returns the number of rows.

    Raises BadTrace, with the row, if the file is not such a CSV, is empty, or has times that are
    negative or go back, or impossible sizes.
    """
    facts = Source("csv", source.name, notes=["only the start of each page operation is known"])
    lines, notes = whole_lines(source, _is_whole)
    facts.notes += notes
    with lines as file, ImportedTrace(output, facts, force) as trace:
        try:
            with pyarrow.csv.open_csv(
                file,
                pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=COLUMNS, include_columns=list(COLUMNS), strings_can_be_null=False
                ),
            ) as reader:
                rows, last, first = 0, -1, 0
                for batch in reader:
                    if batch.num_rows:
                        first = first if rows else batch.column("ts_ns")[0].as_py()
                        last = _check(source, batch, rows, last)
                        rows_of_batch = block_rows(
                            batch.column("ts_ns").to_numpy(),
                            "bio_queue",
                            batch.column("dev"),
                            batch.column("page").to_numpy() * np.uint64(_SECTORS),
                            batch.column("pages").to_numpy() * _SECTORS,
                            batch.column("op"),
                        )
                        trace.add(TABLE, rows_of_batch)
                        rows += batch.num_rows
        except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowTypeError) as error:
            line = " ".join(str(error).split())[:200]
            raise BadTrace(
                f"{source} is not a CSV file with columns {','.join(COLUMNS)}: {line}",
                "mend the file",
            ) from None
        if not rows:
            raise BadTrace(f"{source} has no rows", "give a file with at least one operation")
        trace.finish(first, last)
    return rows


def _is_whole(line: bytes) -> bool:
    """Returns whether a line has all columns: a file made by hand may lack the last line's end."""
    return line.count(b",") >= len(COLUMNS) - 1 and not line.endswith(b",")


def _check(source: Path, batch: pa.RecordBatch, before: int, last: int) -> int:
    """Raises BadTrace for impossible rows; returns the last time."""

    def refuse(bad: pa.BooleanArray, what: str, mend: str) -> None:
        row = pc.index(bad, True).as_py()
        if row >= 0:
            raise BadTrace(f"{source}, row {before + row + 1}: {what}", mend)

    for name in COLUMNS:
        refuse(pc.is_null(batch.column(name)), f"{name} is empty", "fill it")
    ts = batch.column("ts_ns")
    refuse(pc.less(ts, 0), "a negative time", "times are ns, from 0")
    previous = pa.concat_arrays([pa.array([last], pa.int64()), ts[:-1]])
    refuse(pc.less(ts, previous), "time goes back", "sort the file by ts_ns")
    refuse(
        pc.invert(pc.is_in(batch.column("op"), pa.array(["R", "W", "F"]))),
        "an op that is not R, W or F",
        "R reads, W writes, F flushes",
    )
    pages = batch.column("pages")
    needs_pages = pc.not_equal(batch.column("op"), "F")
    refuse(
        pc.or_(pc.less(pages, 0), pc.and_(needs_pages, pc.less(pages, 1))),
        "pages below 1",
        "R and W need at least one page",
    )
    refuse(pc.greater(pages, _MOST_PAGES), f"more than {_MOST_PAGES} pages", "split the operation")
    refuse(
        pc.greater(batch.column("page"), _LAST_PAGE - _MOST_PAGES),
        "a page number beyond any disk",
        "pages are of 4096 bytes",
    )
    final: int = ts[-1].as_py()
    return final
