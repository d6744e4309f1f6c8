"""Rows of the table block from storage traces: time, device, sector and size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.errors import BadTrace
from tracer.probes.events.block import SECTOR_BYTES, TABLE

NO_CPU = -1
NO_THREAD = -1
"""Value of an unknown in a column that cannot be null."""

MOST_BYTES = 1 << 32
"""Limit of a bio's bytes, counted in 32 bits (bi_size, include/linux/blk_types.h)."""
_MOST_DEVICES = 1 << 16


def block_rows(
    ts: NDArray[np.int64],
    event: str | pa.Array,
    dev: pa.Array,
    sector: NDArray[np.uint64],
    nr_sector: NDArray[np.int64],
    rwbs: pa.Array,
) -> pa.RecordBatch:
    """Returns rows with these columns; process, name and CPU are unknown.

    `event`: one event for all rows, or a text column; `dev`, `rwbs`: text columns.
    """
    n = len(ts)
    text = pa.dictionary(pa.int32(), pa.string())
    events = pa.array([event] * n, pa.string()) if isinstance(event, str) else event
    columns: dict[str, Any] = {
        "ts": pa.array(ts, pa.int64()),
        "cpu": pa.array(np.full(n, NO_CPU, np.int16)),
        "pid": pa.nulls(n, pa.int32()),
        "tid": pa.array(np.full(n, NO_THREAD, np.int32)),
        "comm": pa.nulls(n, pa.string()),
        "event": events,
        "dev": dev,
        "sector": pa.array(sector, pa.uint64()),
        "nr_sector": pa.array(nr_sector, pa.int64()),
        "rwbs": rwbs,
        "error": pa.nulls(n, pa.int32()),
        "from_dev": pa.nulls(n, pa.string()),
        "from_sector": pa.nulls(n, pa.uint64()),
    }
    schema = TABLE.arrow_schema()
    arrays = []
    for column in schema:
        array = columns[column.name]
        if pa.types.is_dictionary(column.type):
            if not pa.types.is_dictionary(array.type):
                array = array.dictionary_encode()
            array = array.cast(text)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def sectors_of(
    offset: NDArray[np.uint64], size: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Returns first sector and sector count of byte ranges, which need not begin at a sector."""
    unit = np.uint64(SECTOR_BYTES)
    first = offset // unit
    after = (offset + size + (unit - np.uint64(1))) // unit
    return first, (after - first).astype(np.int64)


class Devices:
    """Device numbers, 0:1, 0:2, ..., for disks or files that have only names in the source."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}

    def number(self, name: str) -> str:
        """Returns the number of a name. Raises BadTrace if there are too many names."""
        if name not in self._numbers:
            if len(self._numbers) >= _MOST_DEVICES:
                raise BadTrace(f"more than {_MOST_DEVICES} devices", "split the file")
            self._numbers[name] = f"0:{len(self._numbers) + 1}"
        return self._numbers[name]

    def column(self, names: pa.Array) -> pa.Array:
        """Returns the numbers of a column of names."""
        encoded = names.dictionary_encode()
        numbers = [self.number(str(name)) for name in encoded.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(numbers, pa.string()))

    def facts(self) -> list[dict[str, str]]:
        """Returns the names of the numbers, for the manifest."""
        return [{"name": name, "dev": number} for name, number in self._numbers.items()]


class InOrder:
    """A buffer that sorts rows by time: it holds back rows later than rows still to come."""

    def __init__(self, most: int = 1 << 20) -> None:
        """Sets `most`, the number of rows held back at most; beyond it, the oldest are released."""
        self._most = most
        self._held: pa.Table | None = None

    def ready(self, rows: Sequence[pa.RecordBatch], until: int | None) -> list[pa.RecordBatch]:
        """Returns, in order of time, all rows before `until`, of those held back and `rows`."""
        tables = [] if self._held is None else [self._held]
        tables += [pa.Table.from_batches([batch]) for batch in rows]
        every = pa.concat_tables(tables).unify_dictionaries()
        ts = every.column("ts").to_numpy()
        order = np.argsort(ts, kind="stable")
        count = len(ts) if until is None else int(np.searchsorted(ts[order], until))
        count = max(count, len(ts) - self._most)
        self._held = every.take(order[count:]) if count < len(ts) else None
        batches: list[pa.RecordBatch] = every.take(order[:count]).combine_chunks().to_batches()
        return batches
