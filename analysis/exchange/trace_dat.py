"""Import of trace.dat, the file of `trace-cmd record`: ring-buffer pages and event formats.

Formats: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5). A file has a header (event formats, names of
threads) and the pages of each CPU, which version 7 may compress in chunks. The decoder of our own
recordings reads the pages unchanged.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tracer.analysis.exchange.reading import Reader, text
from tracer.analysis.exchange.trace_dat_head import (
    LOST,
    CpuPages,
    DatHead,
    Decompress,
    c_string,
    version6,
    version7,
)
from tracer.probes.errors import BadTrace
from tracer.store.foreign import ForeignRecording, page_bytes
from tracer.store.importing import Source
from tracer.store.manifest import Manifest

MAGIC = b"\x17\x08\x44tracing"
FORMAT = "trace-cmd"

_MOST_CHUNK = 64 << 20
_COPY = 4 << 20
_MOST_RATIO, _SMALL = 200, 64 << 20
"""Limits of decompressed pages: a multiple of the file's size, and a number of bytes."""
_NANOSECONDS = ("local", "global", "mono", "mono_raw", "boot", "tai", "perf")


def import_trace_dat(path: Path, output: Path, force: bool = False) -> Manifest:
    """Makes the trace `output` from a trace.dat of version 6 or 7.

    Raises BadTrace if it is not a trace.dat, is of a big-endian machine, has an unknown
    compression, or has no event of our tables. A file that is cut off within its pages is read as
    far as it goes.
    """
    source = Source(FORMAT, path.name)
    with Reader(path) as reader, ForeignRecording(output, source, force) as recording:
        if reader.file.read(len(MAGIC)) != MAGIC:
            raise BadTrace(
                f"{path} is not a trace.dat", "give the file that trace-cmd record wrote"
            )
        version = c_string(reader)
        order, longs, _ = struct.unpack("<BBI", reader.take(6, "its head"))
        if order != 0 or longs not in (4, 8):
            raise BadTrace(
                f"{path} comes from a big-endian machine", "convert it there: trace-cmd report"
            )
        if version == b"6":
            found = version6(reader)
            decompress = None
        elif version == b"7":
            found, decompress = version7(reader)
        else:
            raise BadTrace(
                f"{path} is a trace.dat of version {text(version[:20])}; 6 and 7 are supported",
                "convert it: trace-cmd convert --file-version 7",
            )
        return _pages(reader, found, decompress, recording, source)


def _pages(
    reader: Reader,
    found: DatHead,
    decompress: Decompress | None,
    recording: ForeignRecording,
    source: Source,
) -> Manifest:
    page_bytes(found.header_page)  # its error names the invalid part
    first: int | None = None
    stats: dict[str, dict[str, int]] = {}
    budget = _Budget(max(_SMALL, _MOST_RATIO * reader.size) if decompress else reader.size)
    for place in found.cpus:
        if not place.size:
            continue
        file, stream = recording.pages(place.cpu)
        with file:
            stamp = _copy(reader, place, decompress, file, source, budget)
        if stamp is not None:
            first = stamp if first is None else min(first, stamp)
        counters = found.stats.get((place.buffer, place.cpu), {})
        stats[stream] = {k: counters[k] for k in LOST if k in counters}
    if first is None or first < 0:
        raise BadTrace(f"{reader.path} has no pages of events", "record again")
    source.clock = found.clock or "not named by the source"
    if found.clock == "mono":
        source.clock = "mono"
    elif found.clock not in _NANOSECONDS:
        source.notes.append(f"times come from the clock {source.clock}, whose unit need not be ns")
    if found.shift_ns:
        source.notes.append(
            f"trace-cmd report adds {found.shift_ns} ns to the times; this import does not"
        )
    source.notes.append(
        "processes are known only for threads created during the recording; for other threads"
        " the number of the process is the thread's"
    )
    return recording.finish(
        found.formats,
        found.threads,
        first,
        header_page=found.header_page,
        stats=stats,
        machine=found.machine,
    )


@dataclass
class _Budget:
    """The bytes of pages that may still be read."""

    left: int


def _copy(
    reader: Reader,
    place: CpuPages,
    decompress: Decompress | None,
    file: BinaryIO,
    source: Source,
    budget: _Budget,
) -> int | None:
    """Copies one CPU's pages to a raw stream; returns the time of the first (None: no page)."""
    first: int | None = None

    def write(data: bytes) -> None:
        nonlocal first
        if first is None and len(data) >= 8:
            first = struct.unpack("<q", data[:8])[0]
        budget.left -= len(data)
        if budget.left < 0:
            raise reader.cut("it declares more pages than is possible")
        file.write(data)

    def cut_off() -> None:
        source.notes.append(f"the file is cut off within the pages of CPU {place.cpu}")
        reader.file.seek(0)

    if place.offset > reader.size:
        cut_off()
        return None
    reader.file.seek(place.offset)
    if not place.compressed:
        left = place.size
        while left:
            data = reader.file.read(min(left, _COPY))
            if not data:
                cut_off()
                break
            left -= len(data)
            write(data)
        return first
    head = reader.file.read(4)
    for _ in range(int.from_bytes(head, "little")):
        sizes = reader.file.read(8)
        if len(sizes) < 8:
            cut_off()
            break
        packed, plain = struct.unpack("<II", sizes)
        if packed > _MOST_CHUNK or plain > _MOST_CHUNK or decompress is None:
            raise reader.cut("a compressed chunk")
        data = reader.file.read(packed)
        if len(data) < packed:
            cut_off()
            break
        write(decompress(data, plain))
    return first
