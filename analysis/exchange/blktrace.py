"""Import of blktrace's files: DEVICE.blktrace.CPU, or one file with all CPUs (blkparse -d).

A record is a struct blk_io_trace and its payload; its times are of CLOCK_MONOTONIC. Notes among
the records give the names of processes and the time of day.
Source: include/uapi/linux/blktrace_api.h; the letters of rwbs as in blkparse_fmt.c.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.exchange.blktrace_names import (
    BLOCK_BYTES,
    HEAD,
    MOST_NAMES,
    NAME_BYTES,
    Names,
    name_at,
    names_in,
    word,
)
from tracer.analysis.exchange.reading import opened
from tracer.probes.compiled import compiled
from tracer.probes.errors import BadTrace
from tracer.probes.limits import CPU_LIMIT
from tracer.probes.loss import Gap
from tracer.store.foreign import (
    COMMON_BYTES,
    RECORD_HEAD,
    ForeignRecording,
    Records,
    record_format,
    record_number,
)
from tracer.store.importing import Source
from tracer.store.manifest import Manifest

FORMAT = "blktrace"
MAGIC = 0x65617400
"""The magic number; its low byte is the version, 7."""

_REMAPPED = 15
_EVENTS = {
    1: "block:block_bio_queue",
    2: "block:block_bio_backmerge",
    3: "block:block_bio_frontmerge",
    6: "block:block_rq_requeue",
    7: "block:block_rq_issue",
    8: "block:block_rq_complete",
    12: "block:block_rq_insert",
    _REMAPPED: "block:block_bio_remap",
}
"""Events by the number of the action; no table has rows for other actions."""
_OTHERS = {4: "getrq", 5: "sleeprq", 9: "plug", 10: "unplug_io", 11: "unplug_timer", 13: "split"}
_OTHERS |= {14: "bounce", 16: "abort", 17: "driver data"}
_NOTE = 255
_VERSION = 7
_MOST_FILES = 1 << 12
_MOST_GAPS = 10_000
_LAYOUT = (
    ("dev", 8, 8, False),
    ("sector", 16, 8, False),
    ("nr_sector", 24, 8, False),
    ("error", 32, 8, False),
    ("rwbs", 40, 8, True),
    ("comm", 48, NAME_BYTES, True),
)
_REMAP = "block:block_bio_remap"
_OF_REMAP = (
    *_LAYOUT[:-1],
    ("old_dev", 48, 8, False),
    ("old_sector", 56, 8, False),
    ("comm", 64, NAME_BYTES, True),
)
_PAYLOAD = 80
_RECORD = RECORD_HEAD - COMMON_BYTES + _PAYLOAD
_PER_CPU = re.compile(r"(.*\.blktrace)\.\d{1,5}$")
_STREAM = "imported-target-machine-sequence"


@dataclass
class _State:
    """The facts read from the files so far."""

    names: Names
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))
    first_ns: int = -1
    realtime_offset_ns: int | None = None
    gaps: list[Gap] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def files_of(path: Path) -> list[Path]:
    """Returns the files of one blktrace: those of all CPUs of the device of `path`."""
    if path.is_file() and (match := _PER_CPU.match(path.name)):
        stem = match[1]
    elif not path.exists():
        stem = f"{path.name.removesuffix('.blktrace')}.blktrace"
    else:
        return [path]
    found = [p for p in path.parent.glob("*.blktrace.*") if (m := _PER_CPU.match(p.name))
             and m[1] == stem and p.is_file()]  # fmt: skip
    return sorted(found, key=lambda p: int(p.suffix[1:]))[:_MOST_FILES] or [path]


def import_blktrace(path: Path, output: Path, force: bool = False) -> Manifest:
    """Makes the trace `output` from the binary files of blktrace.

    `path` is one CPU's file (the other CPUs' files beside it are read, too) or one file with all
    CPUs. Raises BadTrace if it is not a blktrace file, is of a big-endian machine, or has no event
    of our table. A file that is cut off or damaged is read up to the damage.
    """
    source = Source(FORMAT, path.name, clock="mono")
    files = files_of(path)
    state = _State(names_in(files))
    with ForeignRecording(output, source, force) as recording:
        for one in files:
            with opened(one) as file, closing(recording.records()) as records:
                _add_file(one, file, records, state)
        if state.first_ns < 0:
            raise BadTrace(f"{path} has no event of a block device", "record again")
        source.realtime_offset_ns = state.realtime_offset_ns
        _say(source, state)
        return recording.finish(
            {
                name: record_format(name, record_number(n), _fields(name))
                for n, name in enumerate(_EVENTS.values())
            },
            {tid: (0, name) for tid, name in state.names.last().items()},
            state.first_ns,
            gaps=state.gaps,
        )


def _fields(event: str) -> str:
    """Returns an event's field lines: status for completions, thread names for other events."""
    ends = event.endswith(("complete", "requeue"))
    return "".join(
        f"\tfield:char {name}[{size}];\toffset:{at};\tsize:{size};\tsigned:0;\n"
        if chars
        else f"\tfield:long {name};\toffset:{at};\tsize:{size};\tsigned:1;\n"
        for name, at, size, chars in (_OF_REMAP if event == _REMAP else _LAYOUT)
        if name != ("comm" if ends else "error")
    )


def _add_file(path: Path, file: BinaryIO, records: Records, state: _State) -> None:
    numbers = np.full(256, -1, np.int64)
    for n, action in enumerate(_EVENTS):
        numbers[action] = record_number(n)
    sequence = np.full(CPU_LIMIT, -1, np.int64)
    seen = np.full(CPU_LIMIT, -1, np.int64)
    devices = np.full(2, -1, np.int64)
    gaps: list[tuple[int, int, int, int]] = []
    rest, begun = b"", False
    while True:
        more = file.read(BLOCK_BYTES)
        data = rest + more
        if not begun and data:
            _check_head(path, data)
            begun = True
        room = len(data) // HEAD + 1
        out = np.zeros(room * _RECORD, np.uint8)
        notes = np.empty((room, 2), np.int64)
        missed = np.empty((room, 4), np.int64)
        times = np.array([-1, 0], np.int64)
        used, written, n_notes, n_missed, sane = _convert(
            np.frombuffer(data, np.uint8), numbers, state.names.tids, state.names.times,
            state.names.names, state.counts, sequence, seen, devices, out, notes, missed, times,
        )  # fmt: skip
        if written:
            first, last = times.tolist()
            records.add(out[:written], first, last)
            state.first_ns = first if state.first_ns < 0 else min(state.first_ns, first)
        for at, kind in notes[:n_notes].tolist():
            _note(data, at, kind, state)
        gaps += missed[:n_missed].tolist()[: _MOST_GAPS - len(gaps)]
        rest = data[used:]
        if not sane:
            state.damaged.append(path.name)
            break
        if not more:
            break
    if rest and path.name not in state.damaged:
        state.torn.append(path.name)
    if devices[1] < 0:  # each device has its own sequence
        state.gaps += [
            Gap(_STREAM, cpu, start, end, count, "missing in the file")
            for cpu, start, end, count in gaps
        ]


def _check_head(path: Path, data: bytes) -> None:
    magic = int.from_bytes(data[:4], "little")
    if len(data) < 4 or magic & 0xFFFFFF00 != MAGIC:
        if int.from_bytes(data[:4], "big") & 0xFFFFFF00 == MAGIC:
            raise BadTrace(f"{path} comes from a big-endian machine", "import its blkparse text")
        raise BadTrace(f"{path} is not a file of blktrace", "give DEVICE.blktrace.0")
    if magic & 0xFF != _VERSION:
        raise BadTrace(
            f"{path} has version {magic & 0xFF} of blktrace; only {_VERSION} is supported",
            "import its blkparse text",
        )


def _note(data: bytes, at: int, kind: int, state: _State) -> None:
    """Reads the time of day, if it is this kind of note."""
    if kind == 1 and at + HEAD + 8 <= len(data):
        seconds = int.from_bytes(data[at + 48 : at + 52], "little")
        nanoseconds = int.from_bytes(data[at + 52 : at + 56], "little")
        stamp = int.from_bytes(data[at + 8 : at + 16], "little")
        if stamp < 1 << 62 and state.realtime_offset_ns is None:
            state.realtime_offset_ns = seconds * 1_000_000_000 + nanoseconds - stamp


def _say(source: Source, state: _State) -> None:
    for action, count in enumerate(state.counts.tolist()):
        if count and action not in _EVENTS and action != _NOTE:
            source.not_understood[f"event {_OTHERS.get(action, action)}"] = count
    source.notes.append("blktrace gives only thread numbers, not the processes of the threads")
    if len(state.names.tids) == MOST_NAMES:
        source.notes.append(f"only the first {MOST_NAMES:,} names of threads are read")
    for name in state.torn:
        source.notes.append(f"{name} is cut off within a record")
    for name in state.damaged:
        source.notes.append(f"{name} is damaged: the rest of the file is left out")


@compiled
def _put(out: Any, at: int, value: int, size: int) -> None:
    for k in range(size):
        out[at + k] = (value >> (8 * k)) & 0xFF


@compiled
def _big(data: Any, at: int, size: int) -> Any:
    """Returns a big-endian number of `size` bytes."""
    value = np.uint64(0)
    for k in range(size):
        value = value << np.uint64(8) | np.uint64(data[at + k])
    return np.int64(value)


@compiled
def _convert(
    data: Any,
    numbers: Any,
    tids: Any,
    named_at: Any,
    names: Any,
    counts: Any,
    sequence: Any,
    seen: Any,
    devices: Any,
    out: Any,
    notes: Any,
    missed: Any,
    times: Any,
) -> Any:
    """Converts records of blktrace to our records.

    Returns (bytes used, bytes written, notes, gaps, whether the records are consistent).
    """
    at = 0
    written = 0
    n_notes = 0
    n_missed = 0
    while at + 48 <= len(data):
        if word(data, at, 4) != 0x65617407:
            return at, written, n_notes, n_missed, False
        after = at + 48 + word(data, at + 46, 2)
        if after > len(data):
            break
        stamp = word(data, at + 8, 8)
        size = word(data, at + 24, 4)
        action = word(data, at + 28, 4)
        tid = word(data, at + 32, 4)
        device = word(data, at + 36, 4)
        cpu = word(data, at + 40, 4)
        classes = action >> 16
        kind = action & 0xFF
        if classes & 1 << 10:  # a note: of a process, or of the time
            counts[255] += 1
            notes[n_notes, 0] = at
            notes[n_notes, 1] = kind
            n_notes += 1
            at = after
            continue
        counts[kind] += 1
        if 0 <= cpu < len(sequence):
            number = word(data, at + 4, 4)
            before = sequence[cpu]
            if before >= 0 and number > before + 1:
                missed[n_missed, 0] = cpu
                missed[n_missed, 1] = seen[cpu]
                missed[n_missed, 2] = stamp
                missed[n_missed, 3] = number - before - 1
                n_missed += 1
            sequence[cpu] = number
            seen[cpu] = stamp
        if devices[0] < 0:
            devices[0] = device
        elif devices[0] != device:
            devices[1] = device
        if numbers[kind] < 0:
            at = after
            continue
        base = written + 24
        payload = 48
        name = name_at(tids, named_at, tid, stamp)
        if (
            kind == _REMAPPED
        ):  # a struct blk_io_trace_remap follows, after the cgroup if there is one
            more = at + 48 + (8 if action & 1 << 8 else 0)
            if more + 16 <= after:
                _put(out, base + 48, _big(data, more, 4), 8)
                _put(out, base + 56, _big(data, more + 8, 8), 8)
                payload = 64
            else:
                name = -1  # its place is after the struct
        place = payload
        if name >= 0:
            payload += 16
        _put(out, written, payload + 16, 8)
        _put(out, written + 8, stamp, 8)
        _put(out, written + 16, tid, 4)
        _put(out, written + 20, 0, 4)
        _put(out, written + 24, numbers[kind], 2)
        _put(out, written + 26, min(cpu, 0xFFFF), 2)
        _put(out, written + 28, tid, 4)
        _put(out, base + 8, device, 8)
        _put(out, base + 16, word(data, at + 16, 8), 8)
        _put(out, base + 24, size // 512, 8)
        error = word(data, at + 44, 2)
        _put(out, base + 32, error - 65536 if error > 32767 else error, 8)
        _letters(out, base + 40, classes, size)
        if name >= 0:
            for k in range(16):
                out[base + place + k] = names[name, k]
        if stamp >= 0 and (times[0] < 0 or stamp < times[0]):
            times[0] = stamp
        times[1] = max(times[1], stamp)
        written += 24 + payload
        at = after
    return at, written, n_notes, n_missed, True


@compiled
def _letters(out: Any, at: int, classes: int, size: int) -> None:
    """Writes the letters of rwbs for the classes of an action."""
    n = 0
    if classes & 1 << 2:  # flush
        out[at + n] = 70
        n += 1
    if classes & 1 << 13:
        out[at + n] = 68  # D
    elif classes & 1 << 1:
        out[at + n] = 87  # W
    elif size > 0:
        out[at + n] = 82  # R
    else:
        out[at + n] = 78  # N
    n += 1
    for bit, letter in ((15, 70), (11, 65), (3, 83), (12, 77)):  # F A S M
        if classes & 1 << bit:
            out[at + n] = letter
            n += 1
    for k in range(n, 8):
        out[at + k] = 0
