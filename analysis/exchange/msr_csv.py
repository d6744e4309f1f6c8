"""Import of block traces as Microsoft Research Cambridge published them (SNIA IOTTA).

CSV: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime. The published files have no line
with these names; a file may have one, which is skipped and not counted as a row. Timestamp is a
Windows filetime (units of 100 ns since 1601) of the request's issue, ResponseTime is in
the same units, Offset and Size are bytes. A row becomes bio_queue and issue at its timestamp and
complete at the time of its response.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tracer.analysis.exchange.block_rows import MOST_BYTES, Devices, InOrder, block_rows, sectors_of
from tracer.analysis.exchange.reading import opened, whole_lines
from tracer.probes.errors import BadTrace
from tracer.probes.events.block import TABLE
from tracer.store.importing import ImportedTrace, Source

FORMAT = "msr-csv"
COLUMNS = {
    "Timestamp": pa.int64(),
    "Hostname": pa.string(),
    "DiskNumber": pa.int64(),
    "Type": pa.string(),
    "Offset": pa.uint64(),
    "Size": pa.uint64(),
    "ResponseTime": pa.int64(),
}
_TICK_NS = 100
_EPOCH_TICKS = 116_444_736_000_000_000
"""1970 as a filetime."""
_MOST_TICKS = 1 << 62
_MOST_RESPONSE = 10**12
_BLOCK_BYTES = 4 << 20


def import_msr(path: Path, output: Path, force: bool = False) -> int:
    """Makes the trace `output` from such a CSV; returns its rows. Times are ns from the first.

    Raises BadTrace, with the row, for invalid values. Rows may be out of order within a block of
    4 MiB.
    """
    source = Source(FORMAT, path.name, clock="wall clock of the source, from its first row")
    source.notes.append("bios, queueing and processes are not in this format: a request is a bio")
    devices, order = Devices(), InOrder()
    rows, origin, last = 0, 0, 0
    lines, notes = whole_lines(path)
    source.notes += notes
    with lines as file, ImportedTrace(output, source, force) as trace:
        try:
            with pyarrow.csv.open_csv(
                file,
                pyarrow.csv.ReadOptions(
                    block_size=_BLOCK_BYTES,
                    column_names=list(COLUMNS),
                    skip_rows=int(_has_header(path)),
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=COLUMNS, strings_can_be_null=False
                ),
            ) as reader:
                for batch in reader:
                    if not batch.num_rows:
                        continue
                    _check(path, batch, rows)
                    ticks = batch.column("Timestamp").to_numpy()
                    if not rows:
                        origin = int(ticks.min())
                        source.realtime_offset_ns = (origin - _EPOCH_TICKS) * _TICK_NS
                    made = _rows(path, batch, rows, ticks - origin, devices)
                    rows += batch.num_rows
                    last = max(last, *(int(part.column("ts").to_numpy().max()) for part in made))
                    until = int(ticks.max() - origin) * _TICK_NS
                    for part in order.ready(made, until):
                        trace.add(TABLE, part)
        except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowTypeError) as error:
            line = " ".join(str(error).split())[:200]
            raise BadTrace(
                f"{path} is not a CSV file with columns {','.join(COLUMNS)}: {line}",
                "mend the file",
            ) from None
        if not rows:
            raise BadTrace(f"{path} has no rows", "give a file with at least one request")
        for part in order.ready([], None):
            trace.add(TABLE, part)
        trace.finish(0, last, disks=devices.facts())
    return rows


def _has_header(path: Path) -> bool:
    names = ",".join(COLUMNS).lower().encode()
    with opened(path) as file:
        return file.readline(len(names) + 2).strip().lower() == names


def _check(path: Path, batch: pa.RecordBatch, before: int) -> None:
    """Raises BadTrace for impossible rows."""

    def refuse(bad: pa.Array, what: str) -> None:
        row = pc.index(bad, True).as_py()
        if row >= 0:
            raise BadTrace(f"{path}, row {before + row + 1}: {what}", "mend the file")

    for name in COLUMNS:
        refuse(pc.is_null(batch.column(name)), f"{name} is empty")
    ticks, response = batch.column("Timestamp"), batch.column("ResponseTime")
    refuse(pc.or_(pc.less(ticks, 0), pc.greater(ticks, _MOST_TICKS)), "an invalid time")
    refuse(
        pc.or_(pc.less(response, 0), pc.greater(response, _MOST_RESPONSE)),
        "an invalid response time",
    )
    kind = pc.utf8_lower(batch.column("Type"))
    refuse(
        pc.invert(pc.is_in(kind, pa.array(["read", "write"]))), "a Type other than Read or Write"
    )
    refuse(pc.greater(batch.column("Size"), _unsigned(MOST_BYTES)), "a request of more than 4 GiB")
    refuse(pc.greater(batch.column("Offset"), _unsigned(1 << 63)), "an offset beyond any disk")


def _unsigned(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


def _rows(
    path: Path, batch: pa.RecordBatch, before: int, ticks: np.ndarray, devices: Devices
) -> list[pa.RecordBatch]:
    if int(ticks.min()) < 0 or int(ticks.max()) > (1 << 62) // _TICK_NS:
        row = int(np.flatnonzero((ticks < 0) | (ticks > (1 << 62) // _TICK_NS))[0])
        raise BadTrace(
            f"{path}, row {before + row + 1}: a time long before the first or 1000 years after",
            "sort the file by Timestamp",
        )
    ts = ticks.astype(np.int64) * _TICK_NS
    done = ts + batch.column("ResponseTime").to_numpy() * _TICK_NS
    sector, count = sectors_of(batch.column("Offset").to_numpy(), batch.column("Size").to_numpy())
    number = batch.column("DiskNumber").cast(pa.string())
    dev = devices.column(pc.binary_join_element_wise(batch.column("Hostname"), number, "."))
    written = pc.equal(pc.utf8_lower(batch.column("Type")), "write")
    rwbs = pc.if_else(written, "W", "R")
    return [
        block_rows(times, event, dev, sector, count, rwbs)
        for times, event in ((ts, "bio_queue"), (ts, "issue"), (done, "complete"))
    ]
