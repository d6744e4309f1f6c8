"""Compiled loops from lines of text to records of events: a head, then an event's fields.

No line makes a loop read or write beyond the line and its record. A line with a number that does
not fit in 64 bits is not understood.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.exchange.printed.heads import (
    COMM,
    COMM_END,
    CPU,
    DEVICE,
    HEAD_FIELDS,
    NAME_AT,
    NAME_END,
    PID,
    REST,
    TID,
    TS,
    blkparse_head,
    event_head,
)
from analysis.exchange.printed.patterns import (
    DEC,
    DEV,
    HASH_SLOTS,
    HEAD,
    HEX,
    LITERAL,
    MOST_SYMBOLS,
    NAME,
    SYMBOL_BYTES,
    TEXT,
    ZERO,
)
from analysis.exchange.printed.scanning import NONE, device_number, digits, number, spaces
from probes.compiled import compiled
from tracer.store.foreign import COMMON_BYTES, RECORD_HEAD

EVENT_LINES, BLKPARSE_LINES = 0, 1
"""Styles of heads."""

NOT_UNDERSTOOD, OTHER_EVENT, OTHER_PRINT = 0, 1, 2
"""Reasons why a line made no record: no head, an event of no table, fields without a pattern."""

_MINUS = 45


@compiled
def _stands(data: Any, at: int, end: int, arena: Any, where: int, size: int) -> bool:
    """Returns whether the data have a literal at this place."""
    if at + size > end:
        return False
    same = True
    for k in range(size):
        same = same and data[at + k] == arena[where + k]
    return same


@compiled
def _event_of(data: Any, begin: int, end: int, slots: Any, events: Any, arena: Any) -> int:
    value = np.uint64(2166136261)
    for k in range(begin, end):
        value = (value ^ np.uint64(data[k])) * np.uint64(16777619) & np.uint64(0xFFFFFFFF)
    slot = np.int64(value) & (HASH_SLOTS - 1)
    while slots[slot] >= 0:
        event = slots[slot]
        if events[event, 4] == end - begin and _stands(
            data, begin, end, arena, events[event, 3], events[event, 4]
        ):
            return int(event)
        slot = (slot + 1) & (HASH_SLOTS - 1)
    return NONE


@compiled
def _symbol(data: Any, begin: int, end: int, symbols: Any, sizes: Any) -> int:
    """Returns the number for a name; -1 if it is not a name, or there are too many."""
    size = end - begin
    if not 0 < size <= SYMBOL_BYTES:
        return NONE
    for k in range(begin, end):
        c = data[k]
        plain = 48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122 or c == 95 or c == _MINUS
        if not plain:
            return NONE
    count = sizes[MOST_SYMBOLS]
    for n in range(count):
        if sizes[n] == size:
            same = True
            for k in range(size):
                if symbols[n, k] != data[begin + k]:
                    same = False
                    break
            if same:
                return int(n)
    if count >= MOST_SYMBOLS:
        return NONE
    for k in range(size):
        symbols[count, k] = data[begin + k]
    sizes[count] = size
    sizes[MOST_SYMBOLS] = count + 1
    return int(count)


@compiled
def _put(out: Any, at: int, value: int, size: int) -> None:
    for k in range(size):
        out[at + k] = (value >> (8 * k)) & 0xFF


@compiled
def _fields(
    data: Any,
    at: int,
    end: int,
    tokens: Any,
    first: int,
    count: int,
    arena: Any,
    symbols: Any,
    sizes: Any,
    device: int,
    out: Any,
    base: int,
) -> bool:
    """Writes the fields of a line by one pattern into the payload at `base`."""
    for t in range(first, first + count):
        kind = tokens[t, 0]
        where = tokens[t, 1]
        last = tokens[t, 3] == 1
        if kind == LITERAL:
            if not _stands(data, at, end, arena, where, tokens[t, 2]):
                return False
            at += tokens[t, 2]
        elif kind in (DEC, HEX):
            value, at = number(data, at, end, 16 if kind == HEX else 10)
            if at < 0:
                return False
            _put(out, base + where, value, 8)
        elif kind == DEV:
            value, at = device_number(data, at, end)
            if at < 0:
                return False
            _put(out, base + where, value, 8)
        elif kind == HEAD:
            _put(out, base + where, device, 8)
        elif kind == ZERO:
            _put(out, base + where, 0, 8)
        else:  # up to the next literal
            stop = end
            if not last:
                literal, size = tokens[t + 1, 1], tokens[t + 1, 2]
                if tokens[t + 1, 3] == 1:  # this literal must end the line
                    stop = end - size
                    if stop < at or not _stands(data, stop, end, arena, literal, size):
                        return False
                else:
                    stop = at
                    while not _stands(data, stop, end, arena, literal, size):
                        stop += 1
                        if stop + size > end:
                            return False
            if kind == TEXT:
                room = tokens[t, 2]
                for k in range(room):
                    out[base + where + k] = data[at + k] if at + k < stop else 0
            elif kind == NAME:
                symbol = _symbol(data, at, stop, symbols, sizes)
                if symbol < 0:
                    return False
                _put(out, base + where, symbol, 8)
            at = stop
    return True


@compiled
def lines_to_records(
    data: Any,
    ends: Any,
    style: int,
    tokens: Any,
    variants: Any,
    events: Any,
    arena: Any,
    slots: Any,
    symbols: Any,
    sizes: Any,
    names: Any,
    of_cpu: Any,
    out: Any,
    left_out: Any,
    threads: Any,
    totals: Any,
) -> Any:
    """Writes lines of `data`, which end at `ends`, as records into `out`.

    `names` has a hash of each thread's name (by thread id; 0: not met). If the hash differs, the
    line's (tid, pid, begin and end of the name) goes to `threads`. `of_cpu` has the time of each
    CPU's last event, or -1. For a line that makes no record, `left_out` gets (why, begin, end) of
    the line or of the event's name; for a line that begins with CPU:N, also the time of that CPU's
    event before it, and of the next event (or -1). `totals` gets the first and the last time.
    Returns (bytes of records, records, left out, threads).
    """
    head = np.zeros(HEAD_FIELDS, np.int64)
    begin = 0
    written = 0
    records = 0
    n_left = 0
    n_threads = 0
    waiting = NONE
    for i in range(len(ends)):
        end = ends[i]
        line = begin
        begin = end + 1
        if end > line and data[end - 1] == 13:
            end -= 1
        if end == line:
            continue
        if style == BLKPARSE_LINES:
            found = blkparse_head(data, line, end, head)
        else:
            found = event_head(data, line, end, head)
        if not found:
            left_out[n_left, 0] = NOT_UNDERSTOOD
            left_out[n_left, 1] = line
            left_out[n_left, 2] = end
            left_out[n_left, 3] = left_out[n_left, 4] = NONE
            if end - line > 5 and data[line] == 67 and data[line + 1] == 80:  # CPU:N
                cpu, after = digits(data, spaces(data, line + 4, end), end, 10)
                if after > 0 and 0 <= cpu < len(of_cpu):
                    left_out[n_left, 3] = of_cpu[cpu]
                    waiting = n_left
            n_left += 1
            continue
        if waiting >= 0:
            left_out[waiting, 4] = head[TS]
            waiting = NONE
        of_cpu[head[CPU]] = head[TS]
        event = _event_of(data, head[NAME_AT], head[NAME_END], slots, events, arena)
        done = False
        if event >= 0:
            base = written + RECORD_HEAD - COMMON_BYTES
            for v in range(events[event, 0], events[event, 0] + events[event, 1]):
                done = _fields(
                    data, head[REST], end, tokens, variants[v, 0], variants[v, 1], arena,
                    symbols, sizes, head[DEVICE], out, base,
                )  # fmt: skip
                if done:
                    length = variants[v, 2]
                    _put(out, written, RECORD_HEAD - COMMON_BYTES - 8 + length, 8)
                    _put(out, written + 8, head[TS], 8)
                    _put(out, written + 16, head[TID], 4)
                    _put(out, written + 20, head[PID], 4)
                    _put(out, written + 24, events[event, 2], 2)
                    _put(out, written + 26, head[CPU], 2)
                    _put(out, written + 28, head[TID], 4)
                    size = (RECORD_HEAD - COMMON_BYTES + length + 7) // 8 * 8
                    for k in range(RECORD_HEAD - COMMON_BYTES + length, size):
                        out[written + k] = 0
                    written += size
                    records += 1
                    break
        if not done:
            left_out[n_left, 0] = OTHER_PRINT if event >= 0 else OTHER_EVENT
            left_out[n_left, 1] = head[NAME_AT]
            left_out[n_left, 2] = head[NAME_END]
            n_left += 1
            continue
        ts = head[TS]
        if totals[0] < 0 or ts < totals[0]:
            totals[0] = ts
        totals[1] = max(totals[1], ts)
        mark = np.uint64(14695981039346656037) ^ np.uint64(head[PID])
        for k in range(head[COMM], head[COMM_END]):
            mark = (mark ^ np.uint64(data[k])) * np.uint64(1099511628211)
        named = head[COMM] < head[COMM_END]
        if names[head[TID]] != mark and (named or names[head[TID]] == 0):
            names[head[TID]] = mark
            threads[n_threads, 0] = head[TID]
            threads[n_threads, 1] = head[PID]
            threads[n_threads, 2] = head[COMM]
            threads[n_threads, 3] = head[COMM_END]
            n_threads += 1
    return written, records, n_left, n_threads
