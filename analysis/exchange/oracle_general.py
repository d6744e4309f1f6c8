"""Import of libCacheSim's oracleGeneral: accesses of a cache, 24 bytes each.

A record is time (uint32, seconds), object (uint64), size (uint32, bytes) and the number of the
object's next access (int64, -1: none), little-endian, without a header. An object is a unit of the
cache: it becomes one page, whose number is the object's.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from tracer.analysis.exchange.block_rows import block_rows
from tracer.analysis.exchange.reading import opened
from tracer.probes.errors import BadTrace
from tracer.probes.events.block import SECTOR_BYTES, TABLE
from tracer.store.importing import ImportedTrace, Source

FORMAT = "oracle-general"
RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
DEVICE = "0:1"
_SECTORS = 4096 // SECTOR_BYTES
_MOST_PAGE = np.uint64((1 << 61) - 1)
"""Limit of object numbers: sectors of later pages do not fit in 64 bits; low bits are used."""
_AT_ONCE = 1 << 17


def import_oracle_general(path: Path, output: Path, force: bool = False) -> int:
    """Makes the trace `output` from such a file; returns the number of accesses.

    The format does not distinguish reads from writes. Every access becomes a write, as simulations
    of a write buffer need. Raises BadTrace for a file that is empty, has invalid values, or whose
    times go back.
    """
    source = Source(FORMAT, path.name, clock="seconds of the source")
    source.notes += [
        "the format does not distinguish reads from writes: every access becomes a write",
        "an object becomes one page of any size; its number is the page's number",
    ]
    rows, first, last = 0, 0, 0
    with opened(path) as file, ImportedTrace(output, source, force) as trace:
        torn = os.fstat(file.fileno()).st_size % RECORD.itemsize
        while data := file.read(_AT_ONCE * RECORD.itemsize):
            whole = len(data) // RECORD.itemsize
            found = np.frombuffer(data, RECORD, whole)
            if not whole:
                break
            times = found["time"].astype(np.int64)
            back = np.flatnonzero(np.diff(times, prepend=last // 10**9 if rows else times[0]) < 0)
            if len(back) or (found["next"] < -1).any():
                row = int(back[0]) if len(back) else int(np.flatnonzero(found["next"] < -1)[0])
                what = "time goes back" if len(back) else "an invalid next access"
                raise BadTrace(f"{path}, access {rows + row + 1}: {what}", "is it oracleGeneral?")
            pages = found["object"] & _MOST_PAGE
            if (found["object"] > _MOST_PAGE).any():
                wide = int((found["object"] > _MOST_PAGE).sum())
                known = source.not_understood.get("bits above 2^61 of an object", 0)
                source.not_understood["bits above 2^61 of an object"] = known + wide
            ts = times * 10**9
            first = first if rows else int(ts[0])
            last = int(ts[-1])
            n = len(ts)
            code = pa.array(np.zeros(n, np.int32))
            trace.add(
                TABLE,
                block_rows(
                    ts,
                    "bio_queue",
                    pa.DictionaryArray.from_arrays(code, pa.array([DEVICE])),
                    pages * np.uint64(_SECTORS),
                    np.full(n, _SECTORS, np.int64),
                    pa.DictionaryArray.from_arrays(code, pa.array(["W"])),
                ),
            )
            rows += n
        if not rows:
            raise BadTrace(f"{path} has no access", "is it oracleGeneral, and not compressed?")
        if torn:
            source.notes.append(f"the file is cut off within a record: {torn} bytes are left out")
        trace.finish(first, last)
    return rows
