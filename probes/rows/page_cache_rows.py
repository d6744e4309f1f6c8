"""Rows of the page cache.

The number of pages follows from fields that differ by event. Whether two accesses belong to one
call follows from the entries of the thread's calls, if these are recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.timeline import Batch
from tracer.probes.compiled import compiled
from tracer.probes.limits import PID_LIMIT
from tracer.probes.rows import columns
from tracer.probes.rows.event_rows import EventRows
from tracer.probes.schema import AssemblyContext, Column, Event

_CALLED = "raw_syscalls:sys_enter"
_NO, _YES, _UNTOLD = range(3)

_LARGEST_ORDER = 32
"""Orders above are damaged: a folio of 2^32 pages is larger than any memory."""
_MOST_PAGES = 1 << 51
"""No file has more pages: its size in bytes is a positive number of 64 bits."""


class PageCacheRows(EventRows):
    """One row per event, with the pages from `index` to `last_index`, or of the folio's order."""

    def __init__(self, context: AssemblyContext) -> None:
        super().__init__(context)
        self._called = context.formats.get(_CALLED)
        self._access = next((f.id for event, f in self.events if event.label == "access"), None)
        # By thread number; untouched pages cost no memory.
        self._calls = np.zeros(PID_LIMIT, np.uint32)
        self._calls_at_access = np.zeros(PID_LIMIT, np.uint32)

    def rows(self, batch: Batch, of_probe: NDArray[np.int64]) -> pa.RecordBatch | None:
        """One row for each of the events."""
        self._continues = np.full(len(batch), _UNTOLD, np.int8)
        if self._called is not None and self._access is not None:
            _tell(
                batch.type, batch.tid, self._called.id, self._access,
                self._calls, self._calls_at_access, self._continues,
            )  # fmt: skip
        return super().rows(batch, of_probe)

    def _column(
        self,
        column: Column,
        batch: Batch,
        rows: NDArray[np.int64],
        feeds: list[tuple[Event, EventFormat, NDArray[np.int64], NDArray[np.int64]]],
    ) -> pa.Array:
        if column.name == "continues":
            continues = self._continues[rows]
            return pa.array(continues == _YES, mask=continues == _UNTOLD)
        if column.name != "pages":
            return super()._column(column, batch, rows, feeds)
        pages = np.zeros(len(rows), np.int64)
        known = np.zeros(len(rows), np.bool_)
        for event, event_format, of_event, places in feeds:
            pages[places], known[places] = _pages(batch, of_event, event, event_format)
        return pa.array(pages, mask=~known)


def _pages(
    batch: Batch, rows: NDArray[np.int64], event: Event, event_format: EventFormat
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the pages of the events at `rows`, and which of these numbers are known."""
    if not event.reads:
        return np.ones(len(rows), np.int64), np.ones(len(rows), np.bool_)
    name = event.reads[0]
    field = event_format.fields.get(name)
    if field is None:
        # Before orders were logged (kernel 6.10), each event was about one page.
        return np.ones(len(rows), np.int64), np.full(len(rows), name == "order")
    values, known = columns.integers(batch, rows, field)
    if name == "order":
        known &= (values >= 0) & (values <= _LARGEST_ORDER)
        return np.int64(1) << np.where(known, values, 0), known
    if name == "last_index":
        index, there = columns.integers(batch, rows, event_format.field("index"))
        # Indices are unsigned, and wrap.
        values = values - index + 1
        known &= there
    return values, known & (values >= 0) & (values <= _MOST_PAGES)


@compiled
def _tell(
    types: Any, tids: Any, called: int, access: int, calls: Any, at_access: Any, continues: Any
) -> None:
    """Tells for each access whether its thread has called since its access before."""
    for row in range(len(types)):
        tid = tids[row]
        if tid < 0 or tid >= len(calls):
            continue
        if types[row] == called:
            calls[tid] += 1
        elif types[row] == access and calls[tid] > 0:
            continues[row] = _YES if at_access[tid] == calls[tid] else _NO
            at_access[tid] = calls[tid]
