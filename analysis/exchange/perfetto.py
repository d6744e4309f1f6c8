"""A trace as Perfetto's protobuf, which ui.perfetto.dev opens.

Each TracePacket is independent, so a trace of any length is written in pieces, and memory does not
grow: it has the packets of one piece, and the numbered names. A name is written once; later packets
use its number. If the names take too many bytes, the numbering starts again (Perfetto calls this
clearing a sequence's incremental state). The clock is CLOCK_MONOTONIC, Perfetto's builtin clock 3.
Field numbers: protos/perfetto/trace in its sources.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.exchange import perfetto_events
from tracer.analysis.exchange.marks import Kind, Marks, Texts, Track, What
from tracer.analysis.exchange.protobuf_bytes import message, number, text

CLOCK_REALTIME, CLOCK_MONOTONIC = 1, 3
"""BuiltinClock in protos/perfetto/common/builtin_clock.proto"""

_PACKET = 1
_CLOCK_SNAPSHOT, _SEQUENCE_ID, _INTERNED, _FLAGS, _DEFAULTS, _DESCRIPTOR = 6, 10, 12, 13, 59, 60
_CLEARED = 1
_CATEGORIES, _NAMES, _NOTE_NAMES, _STRINGS = 1, 2, 3, 29
"""Fields of InternedData."""
MOST_MARKS = 1 << 13
"""Number of marks in a piece, encoded at a time."""
MOST_NAMES, MOST_NAMES_BYTES = 1 << 16, 4 << 20
"""The most numbered names, and their bytes; beyond, the next piece starts the numbering again."""
MOST_DECLARED_BYTES = 1 << 20
"""Bytes of names in one packet; the last name may exceed it."""
_MOST_TEXT = 4096
_KINDS = {
    What.SLICES: perfetto_events.SLICES,
    What.INSTANTS: perfetto_events.INSTANTS,
    What.COUNTERS: perfetto_events.COUNTERS,
}


class PerfettoWriter:
    """A writer of tracks and marks, in the order in which they arrive."""

    def __init__(self, out: BinaryIO, start_ns: int, realtime_offset_ns: int | None) -> None:
        self._out = out
        self._known: dict[tuple[int, str], int] = {}
        self._known_bytes = 0
        self._declared: list[bytes] = []
        self._declared_bytes = 0
        self._room = np.empty(0, np.uint8)
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
        """Starts the numbering of names again."""
        self._known.clear()
        self._known_bytes = 0
        self._packet(number(_FLAGS, _CLEARED), message(_DEFAULTS, number(58, CLOCK_MONOTONIC)))

    def track(self, track: Track) -> None:
        """Declares a track."""
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
        """Adds marks."""
        for begin in range(0, len(marks), MOST_MARKS):
            self._piece(marks.where(slice(begin, begin + MOST_MARKS)))

    def _piece(self, marks: Marks) -> None:
        if len(self._known) > MOST_NAMES or self._known_bytes > MOST_NAMES_BYTES:
            self._begin()
        count = len(marks)
        names = self._numbers(_NAMES, marks.name)
        category = self._number(_CATEGORIES, marks.category)
        texts = [self._numbers(_STRINGS, t) for t in marks.texts.values()]
        number_names = [self._number(_NOTE_NAMES, n) for n in marks.numbers]
        text_names = [self._number(_NOTE_NAMES, n) for n in marks.texts]
        self._declare()
        room = perfetto_events.most_bytes(count, len(marks.numbers) + len(texts))
        if room > len(self._room):
            self._room = np.empty(room, np.uint8)
        zero = np.zeros(count, np.int64)
        numbers = [(np.ascontiguousarray(v), there) for v, there in marks.numbers.values()]
        size = perfetto_events.encode(
            _KINDS[marks.what],
            np.ascontiguousarray(marks.ts, np.int64),
            zero if marks.dur is None else np.ascontiguousarray(marks.dur, np.int64),
            np.ascontiguousarray(marks.track, np.int64),
            names,
            category,
            np.zeros(count) if marks.value is None else np.ascontiguousarray(marks.value),
            np.array(number_names, np.int64),
            _stacked([values.view(np.int64) for values, _ in numbers], count, np.int64),
            np.array([values.dtype == np.uint64 for values, _ in numbers], np.bool_),
            _stacked([there for _, there in numbers], count, np.bool_),
            np.array(text_names, np.int64),
            _stacked(texts, count, np.int64),
            self._room,
        )
        self._out.write(self._room[:size].data)

    def _numbers(self, field: int, texts: Texts) -> NDArray[np.int64]:
        """Returns the number of each mark's text, 0 for none; declares only texts in use."""
        of_code = np.zeros(len(texts.values) + 1, np.int64)
        for code in np.unique(texts.codes).tolist():
            if code >= 0 and texts.values[code]:
                of_code[code] = self._number(field, texts.values[code])
        return of_code[texts.codes]  # -1: the last, which is 0

    def _number(self, field: int, value: str) -> int:
        value = value[:_MOST_TEXT]
        found = self._known.get((field, value))
        if found is None:
            found = self._known[(field, value)] = len(self._known) + 1
            told = message(field, number(1, found), text(2, value))
            self._declared.append(told)
            self._known_bytes += len(told)
            self._declared_bytes += len(told)
            if self._declared_bytes > MOST_DECLARED_BYTES:
                self._declare()
        return found

    def _declare(self) -> None:
        """Writes the newly numbered names, before the marks that use them."""
        if self._declared:
            names = message(_INTERNED, *self._declared)
            self._packet(names, number(_FLAGS, perfetto_events.NEEDS_STATE))
        self._declared.clear()
        self._declared_bytes = 0

    def lines(self, tracks: Set[int]) -> int:
        """Returns the number of lines on which the marks of some tracks lie."""
        return len(tracks)

    def close(self) -> None:
        """Writes nothing: all packets are already written."""


def _stacked(rows: Sequence[NDArray[Any]], count: int, kind: type) -> NDArray[Any]:
    """Returns rows of notes as one array, also if there are no rows."""
    if not rows:
        return np.zeros((0, count), kind)
    return np.ascontiguousarray(np.stack(rows).astype(kind))
