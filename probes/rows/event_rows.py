"""Rows of a table from a batch: one an event, by the probe's declaration."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.timeline import Batch
from tracer.probes.rows import columns
from tracer.probes.schema import AssemblyContext, Column, Event


class Assembler(Protocol):
    """An assembler turns the events of one probe into rows of its table."""

    sees_others: bool
    """Wants events that are not the targets', too: of other processes (`Batch.wanted`), of a
    command from before its exec (`Batch.launching`)."""

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Rows from the batch's events at `of_probe` (time order); None where there are none."""
        ...

    def finish(self) -> pa.RecordBatch | None:
        """Rows that were waiting for what never came."""
        ...


class EventRows:
    """One row an event: the common columns, and the fields that the probe names."""

    sees_others = False

    def __init__(self, context: AssemblyContext) -> None:
        self.probe = context.probe
        self.schema = self.probe.table.arrow_schema()
        self.events: list[tuple[Event, EventFormat]] = [
            (event, context.formats[event.name])
            for event in self.probe.events
            if event.name in context.formats
        ]

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """One row for each of the events."""
        if not len(of_probe):
            return None
        types = batch.type[of_probe]
        feeds = []
        for event, event_format in self.events:
            places = np.flatnonzero(types == event_format.id)
            if len(places):
                feeds.append((event, event_format, of_probe[places], places))
        arrays = [self._column(column, batch, of_probe, feeds) for column in self.schema_columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @property
    def schema_columns(self) -> tuple[Column, ...]:
        """The table's columns."""
        return self.probe.table.columns

    def _column(
        self,
        column: Column,
        batch: Batch,
        rows: NDArray[np.int64],
        feeds: list[tuple[Event, EventFormat, NDArray[np.int64], NDArray[np.int64]]],
    ) -> pa.Array:
        if column.name == "event":
            labels = list(dict.fromkeys(event.label for event, *_ in feeds))
            codes = np.zeros(len(rows), np.int32)
            for event, _, _, places in feeds:
                codes[places] = labels.index(event.label)
            return columns.encoded(codes, np.ones(len(rows), np.bool_), labels)
        common = common_column(column.name, batch, rows)
        if common is not None:
            return common
        return columns.column(batch, column, feeds, len(rows))

    def finish(self) -> pa.RecordBatch | None:
        """Nothing waits."""
        return None


def common_column(name: str, batch: Batch, rows: NDArray[np.int64]) -> pa.Array | None:
    """A column that every event has, or None."""
    match name:
        case "ts":
            return pa.array(batch.ts[rows])
        case "cpu":
            return pa.array(batch.cpu[rows])
        case "pid":
            return pa.array(batch.pid[rows])
        case "tid":
            return pa.array(batch.tid[rows])
    return None


class WritebackRows(EventRows):
    """Write-back events; whoever starts write-back work is a flusher."""

    def __init__(self, context: AssemblyContext) -> None:
        super().__init__(context)
        self._flushers = context.flushers
        self._started = [f.id for event, f in self.events if event.label == "start"]

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """One row for each of the events."""
        started = np.isin(batch.type[of_probe], self._started)
        self._flushers.update(np.unique(batch.tid[of_probe[started]]).tolist())
        return super().rows(batch, of_probe)


class InodeRows(EventRows):
    """Inode events, with the inode's dirty age: jiffies of the event less `dirtied_when`."""

    def __init__(self, context: AssemblyContext) -> None:
        super().__init__(context)
        self._hz = next((f.jiffies_hz for _, f in self.events if f.jiffies_hz), None)
        self._known: tuple[int, int] | None = context.manifest["clock"].get("jiffies")

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """Rows with `age` filled where the kernel's jiffies are known."""
        rows = super().rows(batch, of_probe)
        if rows is None or self._hz is None or self._known is None:
            return rows
        jiffies, at = self._known
        tick = 1_000_000_000 // self._hz
        dirtied = rows.column("dirtied_when")
        # jiffies of the event = jiffies + (ts - at) / tick
        dirtied_ts = pc.add(pc.multiply(pc.subtract(dirtied, jiffies), tick), at)
        age = pc.max_element_wise(pc.subtract(rows.column("ts"), dirtied_ts), 0, skip_nulls=False)
        return rows.set_column(rows.schema.get_field_index("age"), self.schema.field("age"), age)
