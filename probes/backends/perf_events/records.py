"""Records of a perf ring into events. Layout: include/uapi/linux/perf_event.h.

Records have no format file, so their formats stand here, in the shape of one: they go into the
trace like those of tracepoints and are decoded by the same code. Their ids lie above all that
the kernel gives to tracepoints.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends.chunks import Losses
from tracer.probes.backends.timeline import Batch, room_for, rows_of
from tracer.probes.compiled import compiled

MINOR, MAJOR = "perf:minor-faults", "perf:major-faults"
MAPPING, EXEC, FORK, EXIT = "perf:mmap", "perf:exec", "perf:fork", "perf:exit"
FIRST_ID = 0xFF00
NAMES = (MINOR, MAJOR, MAPPING, EXEC, FORK, EXIT)
"""The records of the rings for faults."""
STACK = "perf:kernel_stack"
"""The call chain of a tracepoint's sample."""
_IDS = {name: FIRST_ID + n for n, name in enumerate((*NAMES, STACK))}
STACK_ID = _IDS[STACK]

_HEADER = [("unsigned int", "record", 0, 4), ("unsigned short", "misc", 4, 2)]
_SAMPLE = [
    *_HEADER,
    ("u64", "ip", 8, 8),
    ("int", "pid", 16, 4),
    ("int", "tid", 20, 4),
    ("u64", "time", 24, 8),
    ("u64", "address", 32, 8),
    ("unsigned int", "cpu", 40, 4),
]
_TASK = [
    ("int", "pid", 8, 4),
    ("int", "ppid", 12, 4),
    ("int", "tid", 16, 4),
    ("int", "ptid", 20, 4),
]
_FIELDS = {
    MINOR: _SAMPLE,
    MAJOR: _SAMPLE,
    MAPPING: [
        *_HEADER,
        ("int", "pid", 8, 4),
        ("int", "tid", 12, 4),
        ("u64", "address", 16, 8),
        ("u64", "bytes", 24, 8),
        ("u64", "file_offset", 32, 8),
        ("unsigned int", "major", 40, 4),
        ("unsigned int", "minor", 44, 4),
        ("u64", "ino", 48, 8),
        ("unsigned int", "protection", 64, 4),
        ("char", "path[4096]", 72, 4096),
    ],
    EXEC: [*_HEADER, ("int", "pid", 8, 4), ("int", "tid", 12, 4)],
    FORK: [*_HEADER, *_TASK],
    EXIT: [*_HEADER, *_TASK],
    # `size` counts the mark of the kernel's part too, which lies before the callers.
    STACK: [("int", "size", 8, 4), ("u64", "mark", 16, 8), ("u64", "caller[8]", 24, 64)],
}

MODE, IN_USER_MODE = 7, 2
"""`misc & MODE` is the mode of a sample's instruction."""

_LOST, _COMM, _EXIT, _FORK, _SAMPLE_RECORD, _MMAP2 = 2, 3, 4, 7, 9, 10
_MISC_EXEC = 1 << 13
_LEAST_RECORD = 32
_TRAILER = 24
"""Bytes of the sample id at the end of a record that is no sample: pid and tid, time, cpu."""


def format_text(name: str) -> str:
    """The format of a record, as tracefs would give it."""
    lines = [
        f"\tfield:{kind} {field};\toffset:{at};\tsize:{size};\tsigned:{int(kind == 'int')};"
        for kind, field, at, size in _FIELDS[name]
    ]
    return "\n".join([f"name: {name}", f"ID: {_IDS[name]}", "format:", *lines, ""])


def decoder(samples: str) -> Any:
    """Returns a decoder for the records of a ring whose samples are all of event `samples`."""
    sample_id = _IDS[samples]

    def decode(data: NDArray[np.uint8]) -> tuple[Batch, int, Losses]:
        events = room_for(len(data) // _LEAST_RECORD, data)
        lost = np.empty((len(events), 3), np.int64)
        n, damaged, losses = _decode(
            data,
            sample_id,
            _IDS[MAPPING],
            _IDS[EXEC],
            _IDS[FORK],
            _IDS[EXIT],
            events.ts,
            events.type,
            events.tid,
            events.pid,
            events.cpu,
            events.offset,
            events.length,
            lost,
        )
        found = [(a, b, c) for a, b, c in lost[:losses].tolist()]
        return rows_of(events, slice(0, n)), damaged, found

    return decode


@compiled
def little(data: Any, at: int, size: int) -> Any:
    """An integer of `size` bytes at `at`."""
    value = np.uint64(0)
    for k in range(size):
        value |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return np.int64(value)


@compiled
def _decode(
    data: Any,
    sample_id: int,
    mapping_id: int,
    exec_id: int,
    fork_id: int,
    exit_id: int,
    ts: Any,
    kind: Any,
    tid: Any,
    pid: Any,
    cpu: Any,
    offset: Any,
    length: Any,
    lost: Any,
) -> Any:
    n = 0
    at = 0
    losses = 0
    last = np.int64(0)
    while at + 8 <= len(data):
        record = little(data, at, 4)
        misc = little(data, at + 4, 2)
        size = little(data, at + 6, 2)
        if size < 8 or size % 8 != 0 or at + size > len(data):
            return n, 1, losses
        event = 0
        when = at + size - 16
        if record == _SAMPLE_RECORD and size >= 48:
            event = sample_id
            who, when, where = at + 16, at + 24, at + 40
        elif size >= _LEAST_RECORD:
            who, where = at + size - 24, at + size - 8
            if record == _MMAP2 and size >= 72 + _TRAILER:
                event = mapping_id
            elif record == _COMM and misc & _MISC_EXEC:
                event = exec_id
            elif record == _FORK and size >= 32 + _TRAILER:
                event = fork_id
            elif record == _EXIT and size >= 32 + _TRAILER:
                event = exit_id
            elif record == _LOST and size >= 24 + _TRAILER:
                lost[losses, 0] = last
                lost[losses, 1] = little(data, when, 8)
                lost[losses, 2] = little(data, at + 16, 8)
                losses += 1
        if size >= _LEAST_RECORD:
            last = little(data, when, 8)
        if event != 0:
            ts[n] = little(data, when, 8)
            kind[n] = event
            pid[n] = little(data, who, 4)
            tid[n] = little(data, who + 4, 4)
            cpu[n] = little(data, where, 4)
            offset[n] = at
            # The path of a mapping ends where the sample id begins.
            length[n] = size - (_TRAILER if record != _SAMPLE_RECORD else 0)
            n += 1
        at += size
    return n, int(at != len(data)), losses
