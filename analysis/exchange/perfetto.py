"""A trace as Perfetto's protobuf, which ui.perfetto.dev opens.

Packets are appended one by one, so that a trace of any length is written in flat memory. Names go
once and are numbers from then on; after many the numbering begins anew. The clock is
CLOCK_MONOTONIC, Perfetto's builtin clock 3. Field numbers: protos/perfetto/trace in its sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from analysis.exchange import perfetto_events
from analysis.exchange.marks import Kind, Marks, Texts, Track, What
from analysis.exchange.protobuf_bytes import message, number, text

CLOCK_REALTIME, CLOCK_MONOTONIC = 1, 3
"""BuiltinClock in protos/perfetto/common/builtin_clock.proto"""

_PACKET = 1
_CLOCK_SNAPSHOT, _SEQUENCE_ID, _INTERNED, _FLAGS, _DEFAULTS, _DESCRIPTOR = 6, 10, 12, 13, 59, 60
_CLEARED = 1
_CATEGORIES, _NAMES, _NOTE_NAMES, _STRINGS = 1, 2, 3, 29
"""Fields of InternedData."""
_MOST_INTERNED = 1 << 16
_MOST_TEXT = 4096
_KINDS = {
    What.SLICES: perfetto_events.SLICES,
    What.INSTANTS: perfetto_events.INSTANTS,
    What.COUNTERS: perfetto_events.COUNTERS,
}


class PerfettoWriter:
    """Writes tracks and marks as they come."""

    def __init__(self, out: BinaryIO, start_ns: int, realtime_offset_ns: int | None) -> None:
        self._out = out
        self._known: dict[tuple[int, str], int] = {}
        clocks = [message(1, number(1, CLOCK_MONOTONIC), number(2, start_ns))]
        if realtime_offset_ns is not None and start_ns + realtime_offset_ns >= 0:
            real = start_ns + realtime_offset_ns
            clocks.append(message(1, number(1, CLOCK_REALTIME), number(2, real)))
        snapshot = message(_CLOCK_SNAPSHOT, *clocks, number(2, CLOCK_MONOTONIC))
        self._packet(snapshot)
        self._begin()

    def _packet(self, *parts: bytes) -> None:
        self._out.write(message(_PACKET, *parts, number(_SEQUENCE_ID, perfetto_events.SEQUENCE)))

    def _begin(self) -> None:
        """Begin numbering names anew."""
        self._known.clear()
        self._packet(number(_FLAGS, _CLEARED), message(_DEFAULTS, number(58, CLOCK_MONOTONIC)))

    def track(self, track: Track) -> None:
        """Declare a track."""
        parts = [number(1, track.number)]
        name = track.name[:_MOST_TEXT]
        if track.kind is Kind.PROCESS:
            shown = text(6, name) if name else b""
            parts.append(message(3, number(1, track.pid or 0), shown))
        elif track.kind is Kind.THREAD:
            shown = text(5, name) if name else b""
            parts.append(message(4, number(1, track.pid or 0), number(2, track.tid or 0), shown))
        else:
            parts.append(text(2, name))
        if track.kind is Kind.COUNTER:
            parts.append(message(8, text(6, track.unit[:_MOST_TEXT])))
        if track.parent is not None:
            parts.append(number(5, track.parent))
        self._packet(message(_DESCRIPTOR, *parts))

    def marks(self, marks: Marks) -> None:
        """Add marks."""
        count = len(marks)
        if not count:
            return
        if len(self._known) > _MOST_INTERNED:
            self._begin()
        declared: list[bytes] = []
        names = self._numbers(_NAMES, marks.name, declared)
        category = self._number(_CATEGORIES, marks.category, declared)
        texts = [self._numbers(_STRINGS, t, declared) for t in marks.texts.values()]
        number_names = [self._number(_NOTE_NAMES, n, declared) for n in marks.numbers]
        text_names = [self._number(_NOTE_NAMES, n, declared) for n in marks.texts]
        if declared:
            self._packet(message(_INTERNED, *declared), number(_FLAGS, perfetto_events.NEEDS_STATE))
        zero = np.zeros(count, np.int64)
        self._out.write(
            perfetto_events.events(
                _KINDS[marks.what],
                np.ascontiguousarray(marks.ts, np.int64),
                zero if marks.dur is None else np.ascontiguousarray(marks.dur, np.int64),
                np.ascontiguousarray(marks.track, np.int64),
                names,
                category,
                np.zeros(count) if marks.value is None else np.ascontiguousarray(marks.value),
                np.array(number_names, np.int64),
                _stacked([values for values, _ in marks.numbers.values()], count, np.int64),
                _stacked([there for _, there in marks.numbers.values()], count, np.bool_),
                np.array(text_names, np.int64),
                _stacked(texts, count, np.int64),
            )
        )

    def _numbers(self, field: int, texts: Texts, declared: list[bytes]) -> NDArray[np.int64]:
        """The number of each mark's text, 0 where it has none; only texts in use are declared."""
        of_code = np.zeros(len(texts.values) + 1, np.int64)
        for code in np.unique(texts.codes).tolist():
            if code >= 0 and texts.values[code]:
                of_code[code] = self._number(field, texts.values[code], declared)
        return of_code[texts.codes]  # -1: the last, which is 0

    def _number(self, field: int, value: str, declared: list[bytes]) -> int:
        key = (field, value)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self._known) + 1
            declared.append(message(field, number(1, found), text(2, value[:_MOST_TEXT])))
        return found

    def close(self) -> None:
        """Nothing is left to write."""


def _stacked(rows: Sequence[NDArray[Any]], count: int, kind: type) -> NDArray[Any]:
    """Rows of notes as one array, also where there are none."""
    if not rows:
        return np.zeros((0, count), kind)
    return np.ascontiguousarray(np.stack(rows).astype(kind))
