"""Encoder of marks as Perfetto's track events, in a compiled loop.

A packet has time, sequence, flags and a TrackEvent (protos/perfetto/trace/track_event/
track_event.proto, trace_packet.proto). Names are numbers that were declared before. Lengths of
packets and events always take two bytes: an overlong varint, which every reader accepts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled

SLICES, INSTANTS, COUNTERS = 0, 1, 2
SEQUENCE = 1
NEEDS_STATE = 2
"""SEQ_NEEDS_INCREMENTAL_STATE: earlier packets declare the numbers of names."""

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_FIXED_BYTES = 80
_NOTE_BYTES = 32


def most_bytes(marks: int, notes: int) -> int:
    """Returns the most bytes that this many marks need, each with this many notes."""
    return marks * (2 * _FIXED_BYTES + notes * _NOTE_BYTES)


def encode(
    what: int,
    ts: NDArray[np.int64],
    dur: NDArray[np.int64],
    track: NDArray[np.int64],
    name: NDArray[np.int64],
    category: int,
    value: NDArray[np.float64],
    number_names: NDArray[np.int64],
    numbers: NDArray[np.int64],
    unsigned: NDArray[np.bool_],
    there: NDArray[np.bool_],
    text_names: NDArray[np.int64],
    texts: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> int:
    """Writes packets of marks into `out`, which has `most_bytes` of room; returns their bytes.

    `name` and `texts` (notes x marks; 0: none) are numbers of declared strings, `number_names` and
    `text_names` those of declared names of notes; `numbers` and `there` are notes x marks.
    `unsigned` tells for each note whether the bits in `numbers` are those of an uint64.
    """
    size: int = _encode(
        what, ts, dur, track, name, category, value, number_names, numbers, unsigned, there,
        text_names,
        texts, out,
    )  # fmt: skip
    return size


@compiled
def _varint(out: Any, at: int, value: int) -> int:
    left = np.uint64(value)
    while left > np.uint64(127):
        out[at] = (left & np.uint64(127)) | np.uint64(128)
        left >>= np.uint64(7)
        at += 1
    out[at] = left
    return at + 1


@compiled
def _length(out: Any, at: int, value: int) -> None:
    out[at] = value & 127 | 128
    out[at + 1] = value >> 7


@compiled
def _encode(
    what: int,
    ts: Any,
    dur: Any,
    track: Any,
    name: Any,
    category: int,
    value: Any,
    number_names: Any,
    numbers: Any,
    unsigned: Any,
    there: Any,
    text_names: Any,
    texts: Any,
    out: Any,
) -> int:
    at = 0
    bits = value.view(np.int64)
    for i in range(len(ts)):
        for half in range(2 if what == SLICES else 1):
            ends = half == 1
            packet = at
            out[at] = 0x0A  # Trace.packet
            at += 3
            out[at] = 0x40  # TracePacket.timestamp
            at = _varint(out, at + 1, ts[i] + dur[i] if ends else ts[i])
            out[at] = 0x50  # trusted_packet_sequence_id
            out[at + 1] = SEQUENCE
            out[at + 2] = 0x68  # sequence_flags
            out[at + 3] = NEEDS_STATE
            out[at + 4] = 0x5A  # track_event
            event = at + 5
            at = event + 2
            kind = _END if ends else _BEGIN
            if what == INSTANTS:
                kind = _INSTANT
            elif what == COUNTERS:
                kind = _COUNTER
            out[at] = 0x48  # TrackEvent.type
            out[at + 1] = kind
            out[at + 2] = 0x58  # track_uuid
            at = _varint(out, at + 3, track[i])
            if what == COUNTERS:
                out[at] = 0xE1  # double_counter_value
                out[at + 1] = 0x02
                for k in range(8):
                    out[at + 2 + k] = (bits[i] >> (8 * k)) & 0xFF
                at += 10
            elif not ends:
                out[at] = 0x18  # category_iids
                at = _varint(out, at + 1, category)
                if name[i] > 0:
                    out[at] = 0x50  # name_iid
                    at = _varint(out, at + 1, name[i])
                for k in range(len(number_names)):
                    if not there[k, i]:
                        continue
                    out[at] = 0x22  # debug_annotations
                    note = at + 1
                    out[note + 1] = 0x08  # name_iid
                    at = _varint(out, note + 2, number_names[k])
                    out[at] = 0x18 if unsigned[k] else 0x20  # uint_value, int_value
                    at = _varint(out, at + 1, numbers[k, i])
                    out[note] = at - note - 1
                for k in range(len(text_names)):
                    if texts[k, i] <= 0:
                        continue
                    out[at] = 0x22
                    note = at + 1
                    out[note + 1] = 0x08
                    at = _varint(out, note + 2, text_names[k])
                    out[at] = 0x88  # string_value_iid
                    out[at + 1] = 0x01
                    at = _varint(out, at + 2, texts[k, i])
                    out[note] = at - note - 1
            _length(out, event, at - event - 2)
            _length(out, packet + 1, at - packet - 3)
    return at
