"""Event fields into Arrow columns: gathered by compiled loops, checked against the event's end.

A field that reaches beyond its event (a damaged trace) is null.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat, Field
from tracer.probes.backends.timeline import Batch
from tracer.probes.compiled import compiled
from tracer.probes.schema import (
    Characters,
    Column,
    DeviceNumber,
    Event,
    Named,
    Number,
    Source,
    Type,
    Uuid,
)

_DEV_MINOR_BITS = 20
"""The kernel's own dev_t: major above, minor in the low 20 bits (include/linux/kdev_t.h)."""

_MAX_TEXT = 256


@compiled
def gather_integers(
    payload: Any,
    offset: Any,
    length: Any,
    rows: Any,
    field_offset: int,
    size: int,
    signed: bool,
    out: Any,
    valid: Any,
    places: Any,
) -> None:
    """out[places[i]] = the field of event rows[i], for every i."""
    for i in range(len(rows)):
        row = rows[i]
        if field_offset + size > length[row]:
            continue
        at = offset[row] + field_offset
        value = np.uint64(0)
        for k in range(size):
            value |= np.uint64(payload[at + k]) << np.uint64(8 * k)
        if signed and size < 8 and payload[at + size - 1] & 0x80:
            value |= ~np.uint64(0) << np.uint64(8 * size)
        out[places[i]] = np.int64(value)
        valid[places[i]] = True


@compiled
def _text_lengths(
    payload: Any,
    offset: Any,
    length: Any,
    rows: Any,
    field_offset: int,
    size: int,
    data_loc: bool,
    limit: int,
    begin: Any,
    chars: Any,
    places: Any,
) -> None:
    for i in range(len(rows)):
        row = rows[i]
        if field_offset + (size if data_loc else 1) > length[row]:
            continue
        at = offset[row] + field_offset
        room: Any = min(size, length[row] - field_offset)
        if data_loc:
            where = np.int64(payload[at]) | np.int64(payload[at + 1]) << 8
            room = np.int64(payload[at + 2]) | np.int64(payload[at + 3]) << 8
            if where + room > length[row]:
                continue
            at = offset[row] + where
        room = min(room, limit)
        n = 0
        while n < room and payload[at + n] != 0:
            n += 1
        begin[places[i]] = at
        chars[places[i]] = n


@compiled
def _copy_text(payload: Any, begin: Any, ends: Any, out: Any) -> None:
    written = 0
    for i in range(len(begin)):
        for k in range(ends[i] - written):
            out[written + k] = payload[begin[i] + k]
        written = ends[i]


def integers(
    batch: Batch,
    rows: NDArray[np.int64],
    field: Field,
    out: NDArray[np.int64] | None = None,
    valid: NDArray[np.bool_] | None = None,
    places: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The values of an integer field (bits of an unsigned 64-bit one), and which are there."""
    out = np.zeros(len(rows), np.int64) if out is None else out
    valid = np.zeros(len(rows), np.bool_) if valid is None else valid
    places = np.arange(len(rows)) if places is None else places
    if field.size in (1, 2, 4, 8):
        gather_integers(
            batch.payload,
            batch.offset,
            batch.length,
            rows,
            field.offset,
            field.size,
            field.signed,
            out,
            valid,
            places,
        )
    return out, valid


def text(
    batch: Batch,
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], Field]],
    size: int,
    limit: int = _MAX_TEXT,
) -> pa.DictionaryArray:
    """A text column of `size` rows from (rows, places, field) of each event that feeds it.

    Texts are cut at `limit` bytes.
    """
    begin = np.zeros(size, np.int64)
    chars = np.full(size, -1, np.int64)
    for rows, places, field in parts:
        _text_lengths(
            batch.payload,
            batch.offset,
            batch.length,
            rows,
            field.offset,
            field.size,
            field.data_loc,
            limit,
            begin,
            chars,
            places,
        )
    ends = np.cumsum(np.maximum(chars, 0))
    data = np.empty(int(ends[-1]) if size else 0, np.uint8)
    _copy_text(batch.payload, begin, ends, data)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    missing = chars < 0
    array = pa.Array.from_buffers(
        pa.binary(),
        size,
        [_bitmap(~missing), pa.py_buffer(offsets), pa.py_buffer(data)],
    ).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        array.indices,
        pa.array([readable(value.as_py()) for value in array.dictionary], pa.string()),
    )


def readable(raw: bytes) -> str:
    """Kernel bytes as text: what is no UTF-8 is shown as \\xNN."""
    return raw.decode("utf-8", "backslashreplace")


def _bitmap(valid: NDArray[np.bool_]) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def devices(numbers: NDArray[np.int64], valid: NDArray[np.bool_]) -> pa.DictionaryArray:
    """dev_t values as MAJOR:MINOR."""
    unique, codes = np.unique(numbers, return_inverse=True)
    names = [f"{n >> _DEV_MINOR_BITS}:{n & ((1 << _DEV_MINOR_BITS) - 1)}" for n in unique.tolist()]
    return encoded(codes, valid, names)


def encoded(codes: NDArray[Any], valid: NDArray[np.bool_], names: list[str]) -> pa.DictionaryArray:
    """A text column from codes into `names`."""
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32), mask=None if valid.all() else ~valid),
        pa.array(names, pa.string()),
    )


def uuids(
    high: NDArray[np.int64], low: NDArray[np.int64], valid: NDArray[np.bool_]
) -> pa.DictionaryArray:
    """UUIDs from their first and last eight bytes, each as it lies in memory."""
    unique, codes = np.unique(np.stack([high, low], axis=1), axis=0, return_inverse=True)
    names = [str(uuid.UUID(bytes=pair.astype("<i8").tobytes())) for pair in unique]
    return encoded(codes.reshape(-1), valid, names)


def named(
    numbers: NDArray[np.int64],
    valid: NDArray[np.bool_],
    symbols: dict[int, str],
) -> pa.DictionaryArray:
    """Numbers by the names that the event's format gives; a number without one stays digits."""
    unique, codes = np.unique(numbers, return_inverse=True)
    return encoded(codes, valid, [symbols.get(n, str(n)) for n in unique.tolist()])


def column(
    batch: Batch,
    column: Column,
    feeds: list[tuple[Event, EventFormat, NDArray[np.int64], NDArray[np.int64]]],
    size: int,
) -> pa.Array:
    """One column of `size` rows.

    `feeds` gives, for each event of the probe: its declaration, its format, the rows of the
    batch that are such events, and their places in the column.
    """
    text_parts = []
    numbers = np.zeros(size, np.int64)
    rest = np.zeros(size, np.int64)
    valid = np.zeros(size, np.bool_)
    kind: Source | None = None
    symbols: dict[int, str] = {}
    for event, event_format, rows, places in feeds:
        source = event.columns.get(column.name)
        field = event_format.first(source.fields) if source else None
        if source is None or field is None:
            continue
        kind = source
        if isinstance(source, Characters):
            text_parts.append((rows, places, field))
            continue
        if isinstance(source, Uuid):
            if field.size == 16:
                half = replace(field, size=8, signed=False)
                integers(batch, rows, half, numbers, np.zeros(size, np.bool_), places)
                half = replace(half, offset=field.offset + 8)
                integers(batch, rows, half, rest, valid, places)
            continue
        integers(batch, rows, field, numbers, valid, places)
        if source.scale != 1:
            numbers[places] *= source.scale
        if isinstance(source, Named):
            symbols |= event_format.symbols.get(field.name, {})
        if isinstance(source, Number) and source.mask:
            numbers[places] = (numbers[places] & source.mask) != 0
    if isinstance(kind, Characters):
        return text(batch, text_parts, size, kind.most)
    if isinstance(kind, DeviceNumber):
        return devices(numbers, valid)
    if isinstance(kind, Uuid):
        return uuids(numbers, rest, valid)
    if isinstance(kind, Named):
        return named(numbers, valid, symbols)
    return typed(numbers, valid, column.type)


_NUMPY = {
    Type.INT16: np.int16,
    Type.INT32: np.int32,
    Type.INT64: np.int64,
    Type.BOOL: np.bool_,
}


def typed(numbers: NDArray[np.int64], valid: NDArray[np.bool_], kind: Type) -> pa.Array:
    """Integers as a column of the declared type; text columns nothing feeds are all null."""
    mask = None if valid.all() else ~valid
    if kind is Type.TEXT:
        return encoded(np.zeros(len(numbers), np.int32), np.zeros(len(numbers), np.bool_), [""])
    if kind is Type.UINT64:
        return pa.array(numbers.view(np.uint64), mask=mask)
    return pa.array(numbers.astype(_NUMPY[kind]), mask=mask)
