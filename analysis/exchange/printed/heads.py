"""Parsers of the heads of lines: time, CPU, thread and event.

FLAGS may be absent; TID may also be PID/TID or -TID:

    perf script, trace-cmd report:  COMM TID [CPU] [FLAGS] S.FRACTION: EVENT: FIELDS
    blkparse:                       MAJOR,MINOR CPU SEQUENCE S.FRACTION PID ACTION FIELDS
"""

from __future__ import annotations

from typing import Any

from analysis.exchange.printed.scanning import (
    device_number,
    digits,
    number_before,
    seconds,
    spaces,
)
from probes.compiled import compiled
from probes.limits import CPU_LIMIT, PID_LIMIT

TS, CPU, TID, PID, COMM, COMM_END, NAME_AT, NAME_END, REST, DEVICE = range(10)
"""The parts of a head; texts are given by their begin and end in the data."""
HEAD_FIELDS = 10

_SPACE, _MINUS, _SLASH, _COLON = 32, 45, 47, 58
_MOST_HEAD = 512
_MOST_NAME = 128


@compiled
def event_head(data: Any, begin: int, end: int, head: Any) -> bool:
    """Parses the head of a line of perf script or trace-cmd report."""
    limit = min(end, begin + _MOST_HEAD)
    at = begin
    while at < limit:
        if data[at] != 91:  # [
            at += 1
            continue
        bracket = at
        at += 1
        cpu, after = digits(data, at, limit, 10)
        if after < 0 or after >= limit or data[after] != 93 or not 0 <= cpu < CPU_LIMIT:
            continue
        if not _context(data, bracket, begin, head):
            continue
        after = spaces(data, after + 1, limit)
        ts, next_at = seconds(data, after, limit)
        if next_at < 0:  # flags of the context come first
            flags = after
            while after < limit and after - flags < 8 and data[after] != _SPACE:
                after += 1
            after = spaces(data, after, limit)
            ts, next_at = seconds(data, after, limit)
            if next_at < 0:
                continue
        if next_at >= limit or data[next_at] != _COLON:
            continue
        name = spaces(data, next_at + 1, end)
        _, period = digits(data, name, end, 10)
        if period > 0 and period < end and data[period] == _SPACE:
            name = spaces(data, period, end)
        stop = name
        while stop < end and stop - name < _MOST_NAME:
            c = data[stop]
            if c == _COLON and (stop + 1 >= end or data[stop + 1] == _SPACE):
                break
            if c <= _SPACE:
                stop = end
                break
            stop += 1
        if stop >= end or data[stop] != _COLON or stop == name:
            continue
        bare = name
        for k in range(name, stop):
            if data[k] == _COLON:
                bare = k + 1
        head[TS] = ts
        head[CPU] = cpu
        head[NAME_AT] = bare
        head[NAME_END] = stop
        head[REST] = spaces(data, stop + 1, end)
        return True
    return False


@compiled
def _context(data: Any, bracket: int, begin: int, head: Any) -> bool:
    """Parses thread, process and name before the [ of the CPU."""
    at = bracket
    while at > begin and data[at - 1] == _SPACE:
        at -= 1
    head[PID] = 0
    if at > begin and data[at - 1] == 41:  # (TGID)
        pid, first = number_before(data, at - 1, begin)
        at = first if first >= 0 else at - 1
        while at > begin and (data[at - 1] == _SPACE or data[at - 1] == _MINUS):
            at -= 1
        if at <= begin or data[at - 1] != 40:
            return False
        at -= 1
        while at > begin and data[at - 1] == _SPACE:
            at -= 1
        if first >= 0:
            head[PID] = pid
    tid, first = number_before(data, at, begin)
    if first <= begin or tid >= PID_LIMIT:
        return False
    if data[first - 1] == _SLASH:
        pid, first = number_before(data, first - 1, begin)
        if first <= begin or pid >= PID_LIMIT:
            return False
        head[PID] = pid
    if data[first - 1] == _MINUS:
        stop = first - 1
    elif data[first - 1] == _SPACE:
        stop = first
        while stop > begin and data[stop - 1] == _SPACE:
            stop -= 1
    else:
        return False
    name = spaces(data, begin, stop)
    if (
        data[first - 1] == _MINUS
    ):  # trace-cmd puts a buffer's name before the thread's: "NAME:   COMM"
        for k in range(name, stop - 2):
            if data[k] == _COLON and data[k + 1] == _SPACE and data[k + 2] == _SPACE:
                name = spaces(data, k + 1, stop)
                break
    head[TID] = tid
    head[COMM] = name
    head[COMM_END] = stop
    named: bool = stop > begin
    return named


@compiled
def blkparse_head(data: Any, begin: int, end: int, head: Any) -> bool:
    """Parses the head of a line of blkparse."""
    at = spaces(data, begin, end)
    device, at = device_number(data, at, end)
    if at < 0:
        return False
    head[DEVICE] = device
    cpu, at = digits(data, spaces(data, at, end), end, 10)
    if at < 0 or not 0 <= cpu < CPU_LIMIT:
        return False
    _, at = digits(data, spaces(data, at, end), end, 10)
    if at < 0:
        return False
    ts, at = seconds(data, spaces(data, at, end), end)
    if at < 0:
        return False
    tid, at = digits(data, spaces(data, at, end), end, 10)
    if at < 0 or not 0 <= tid < PID_LIMIT:
        return False
    name = spaces(data, at, end)
    stop = name
    while stop < end and data[stop] != _SPACE:
        stop += 1
    if stop == name or stop - name > 2:
        return False
    head[TS] = ts
    head[CPU] = cpu
    head[TID] = tid
    head[PID] = 0
    head[COMM] = head[COMM_END] = begin
    if data[end - 1] == 93 and data[name] != 67:  # [NAME] at the end; for action C it is a status
        at = end - 1
        while at > stop and data[at - 1] != 91:
            at -= 1
        if at > stop:
            head[COMM] = at
            head[COMM_END] = end - 1
    head[NAME_AT] = name
    head[NAME_END] = stop
    head[REST] = spaces(data, stop, end)
    return True
