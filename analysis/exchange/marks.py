"""The elements of a trace viewer: tracks, and slices, instants and counters on them.

They connect the trace (`drawing.py`) with the formats of viewers (`perfetto.py`, `chrome.py`).
Marks come in batches of arrays, so that memory does not grow with the length of a trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

LATEST_NS = 1 << 62
"""The latest valid time in ns: rows with later times are damaged."""


Integers = NDArray[np.int64] | NDArray[np.uint64]


class Kind(Enum):
    """The kind of a track."""

    PROCESS = "process"
    THREAD = "thread"
    GROUP = "group"
    """A group: it has no marks itself, only tracks below it."""
    SLICES = "slices"
    COUNTER = "counter"


@dataclass(frozen=True)
class Track:
    """A line of a viewer. Some viewers merge tracks with the same name and parent."""

    number: int
    """Number of the track, from 1, in order of creation."""
    kind: Kind
    name: str
    parent: int | None = None
    pid: int | None = None
    tid: int | None = None
    unit: str = ""


@dataclass
class Texts:
    """A text for each mark: codes into `values`, -1 for none."""

    codes: NDArray[np.int32]
    values: list[str]


class What(Enum):
    """The kind of a batch of marks."""

    SLICES = "slices"
    INSTANTS = "instants"
    COUNTERS = "counters"


@dataclass
class Marks:
    """A batch of marks of one kind. Arrays are aligned with each other."""

    what: What
    category: str
    track: NDArray[np.int64]
    ts: NDArray[np.int64]
    name: Texts
    dur: NDArray[np.int64] | None = None
    """Durations of slices, in ns."""
    value: NDArray[np.float64] | None = None
    """Values of counters."""
    numbers: dict[str, tuple[Integers, NDArray[np.bool_]]] = field(default_factory=dict)
    """Named numbers of each mark: values, and a mask of those present."""
    texts: dict[str, Texts] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ts)

    def possible(self) -> Marks:
        """Returns the marks with valid times and finite values."""
        kept = (self.ts >= 0) & (self.ts < LATEST_NS)
        if self.dur is not None:
            kept &= (self.dur >= 0) & (self.dur < LATEST_NS)
        if self.value is not None:
            kept &= np.isfinite(self.value)
        return self if kept.all() else self.where(kept)

    def within(self, start: int, end: int) -> Marks:
        """Returns possible marks without what lies before `start` or after `end`, in ns.

        `dur_ns` of a slice that is cut has its whole duration. Instants and counters move to the
        nearer of both times.
        """
        ts = np.clip(self.ts, start, end)
        if self.dur is None:
            return replace(self, ts=ts)
        dur = np.clip(self.ts + self.dur, start, end) - ts
        cut = dur < self.dur
        if not cut.any():
            return self
        numbers = {**self.numbers, "dur_ns": (self.dur, cut)}
        return replace(self, ts=ts, dur=dur, numbers=numbers)

    def instants(self) -> Marks:
        """Returns the slices as instants at their begin."""
        return replace(self, what=What.INSTANTS, dur=None)

    def where(self, kept: NDArray[Any] | slice) -> Marks:
        """Returns some of the marks, by a mask, indexes or a slice."""

        def some(texts: Texts) -> Texts:
            return Texts(texts.codes[kept], texts.values)

        return Marks(
            self.what,
            self.category,
            self.track[kept],
            self.ts[kept],
            some(self.name),
            None if self.dur is None else self.dur[kept],
            None if self.value is None else self.value[kept],
            {name: (values[kept], there[kept]) for name, (values, there) in self.numbers.items()},
            {name: some(texts) for name, texts in self.texts.items()},
        )


def same(name: str, count: int) -> Texts:
    """Returns the same text for all marks."""
    return Texts(np.zeros(count, np.int32), [name])


def texts_of(column: pa.Array) -> Texts:
    """Returns a text column as codes and values; bytes that are not UTF-8 are replaced."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return Texts(codes, readable(encoded.dictionary))


def readable(values: pa.Array) -> list[str]:
    """Returns texts as str; bytes that are not UTF-8 are replaced, nulls become empty."""
    raw = values.cast(pa.binary()) if not pa.types.is_null(values.type) else values
    return [(value or b"").decode("utf-8", "replace") for value in raw.to_pylist()]


def numbers_of(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns an integer column without uint64 as values (null: 0) and a mask of non-nulls."""
    there = column.is_valid().to_numpy(zero_copy_only=False)
    return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), there


def notes_of(column: pa.Array) -> tuple[Integers, NDArray[np.bool_]]:
    """Returns an integer column as values (uint64 stays uint64) and a mask of non-nulls."""
    if not pa.types.is_uint64(column.type):
        return numbers_of(column)
    there = column.is_valid().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False), there
