"""Import of fio's log of I/O (write_iolog), versions 2 and 3.

Version 3 has lines TIME FILE ACTION [OFFSET LENGTH], time in us since the job began; version 2
has no times, only waits. Each file becomes a device, 0:1 and so on; the manifest names them.
Source: fio's HOWTO, "Trace file format"; the unit of time: log_io_u in iolog.c.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from tracer.analysis.exchange.block_rows import MOST_BYTES, Devices, block_rows, sectors_of
from tracer.analysis.exchange.reading import text, whole_lines
from tracer.probes.errors import BadTrace
from tracer.probes.events.block import TABLE
from tracer.store.importing import ImportedTrace, Source

FORMAT = "fio-iolog"
VERSIONS = {b"fio version 2 iolog": 2, b"fio version 3 iolog": 3}

_RWBS = {b"read": "R", b"write": "W", b"sync": "FF", b"datasync": "FF", b"trim": "D"}
_FLUSHES = (b"sync", b"datasync")
_SILENT = (b"add", b"open", b"close")
_US = 1000
_AT_ONCE = 1 << 16
_LONGEST = 4096
_MOST_TRIM = 1 << 60
_MOST_TIME = (1 << 62) // _US

_Row = tuple[int, str, int, int, str]
"""Time in ns, file, offset, length, rwbs."""


def import_fio(path: Path, output: Path, force: bool = False) -> int:
    """Makes the trace `output` from an iolog; returns the number of operations.

    Raises BadTrace, with the line, for an invalid line, and for a file that is not an iolog.
    Unknown actions are counted in the manifest.
    """
    source = Source(FORMAT, path.name, clock="us since the job began")
    source.notes.append("each operation of fio becomes a bio, and each file a device")
    devices = Devices()
    rows, first, last = 0, 0, 0
    lines, notes = whole_lines(path)
    source.notes += notes
    with lines as file, ImportedTrace(output, source, force) as trace:
        version = VERSIONS.get(file.readline(_LONGEST).strip())
        if version is None:
            raise BadTrace(
                f"{path} is not an iolog of fio",
                "give a file whose first line is: fio version 3 iolog",
            )
        if version == 2:
            source.clock = "none: version 2 has only waits, operations between waits have no time"
        for batch in _batches(path, file, version, source):
            ts = np.array([row[0] for row in batch], np.int64)
            if int(np.diff(ts, prepend=last if rows else ts[0]).min()) < 0:
                raise BadTrace(f"{path}: time goes back", "sort the file by its first column")
            offset = np.array([row[2] for row in batch], np.uint64)
            length = np.array([row[3] for row in batch], np.uint64)
            sector, count = sectors_of(offset, length)
            dev = devices.column(pa.array([row[1] for row in batch], pa.string()))
            rwbs = pa.array([row[4] for row in batch], pa.string())
            trace.add(TABLE, block_rows(ts, "bio_queue", dev, sector, count, rwbs))
            first = first if rows else int(ts[0])
            last = int(ts[-1])
            rows += len(batch)
        if not rows:
            raise BadTrace(f"{path} has no operation", "give a log with at least one")
        trace.finish(first, last, disks=devices.facts())
    return rows


def _batches(path: Path, file: BinaryIO, version: int, source: Source) -> Iterator[list[_Row]]:
    rows: list[_Row] = []
    now = 0
    number = 1
    while line := file.readline(_LONGEST):
        number += 1
        if len(line) == _LONGEST:
            raise BadTrace(f"{path}, line {number}: longer than {_LONGEST} bytes", "mend the file")
        words = line.split()
        if not words:
            continue
        if version == 3:
            now = _number(path, number, words.pop(0), _MOST_TIME)
        if len(words) < 2:
            raise BadTrace(f"{path}, line {number}: no action", "mend the file")
        name, action = words[0], words[1]
        if action == b"wait" and len(words) > 2:
            now = min(now + _number(path, number, words[2], _MOST_TIME), _MOST_TIME)
        elif action in _RWBS:
            offset = length = 0
            if action not in _FLUSHES:
                if len(words) < 4:
                    raise BadTrace(f"{path}, line {number}: no offset and length", "mend the file")
                offset = _number(path, number, words[2], 1 << 63)
                most = _MOST_TRIM if action == b"trim" else MOST_BYTES
                length = _number(path, number, words[3], most)
            rows.append((now * _US, text(name), offset, length, _RWBS[action]))
            if len(rows) >= _AT_ONCE:
                yield rows
                rows = []
        elif action not in _SILENT:
            known = text(action[:40])
            if known in source.not_understood or len(source.not_understood) < 100:
                kinds = source.not_understood
                kinds[known] = kinds.get(known, 0) + 1
    if rows:
        yield rows


def _number(path: Path, line: int, word: bytes, limit: int) -> int:
    if not word.isdigit() or len(word) > 20 or int(word) > limit:
        raise BadTrace(
            f"{path}, line {line}: {text(word[:40])} is not a valid number", "mend the file"
        )
    return int(word)
