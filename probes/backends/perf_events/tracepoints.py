"""Tracepoints through perf's rings: on each CPU one ring for all events of a scope."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends.backend import all_but
from tracer.probes.backends.chunks import Losses
from tracer.probes.backends.event_format import CommonFields
from tracer.probes.backends.perf_events.attributes import DUMMY, open_tracepoint
from tracer.probes.backends.perf_events.records import little
from tracer.probes.backends.perf_events.ring import Ring
from tracer.probes.backends.timeline import Batch, room_for, rows_of
from tracer.probes.compiled import compiled

SAMPLES = "tracepoints"
"""The name of the rings' content in a manifest."""

_ENABLE, _DISABLE, _SET_OUTPUT, _SET_FILTER = 0x2400, 0x2401, 0x2405, 0x40082406
_SAMPLE_RECORD, _LOST = 9, 2
_RAW_SIZE, _RAW = 32, 36
"""Places in a sample: behind its header are pid and tid, time, cpu, and the event's own bytes."""
_TRAILER = 24
_LEAST_RECORD = 32


class TracepointRing(Ring):
    """The ring of a CPU and scope: that of an event that never happens, which others write to."""

    def __init__(
        self,
        cpu: int,
        path: Path,
        size: int,
        ids: Iterable[int],
        about_others: Collection[int] = (),
    ) -> None:
        """`ids` are the kernel's numbers of the events; `about_others`, of those that may be about
        other threads than the one in whose context they happen."""
        super().__init__(SAMPLES, DUMMY, cpu, path, size)
        self._ids = list(ids)
        self._about_others = about_others
        self._events: list[int] = []

    def open(self) -> None:
        """Open the events, switched off, and the file. PermissionMissing or FeatureMissing."""
        super().open()
        for number in self._ids:
            fd = open_tracepoint(number, self.cpu)
            self._events.append(fd)
            fcntl.ioctl(fd, _SET_OUTPUT, self._fd)

    def start(self) -> None:
        """Starts recording events."""
        super().start()
        for fd in self._events:
            fcntl.ioctl(fd, _ENABLE, 0)

    def stop(self) -> None:
        """Stops recording events."""
        for fd in self._events:
            fcntl.ioctl(fd, _DISABLE, 0)
        super().stop()

    def leave_out(self, tids: Iterable[int]) -> None:
        """Excludes the events of these threads that are not about others."""
        text = all_but(tids).encode() + b"\0"
        for number, fd in zip(self._ids, self._events, strict=True):
            if number not in self._about_others:
                fcntl.ioctl(fd, _SET_FILTER, text)

    def _count_lost(self) -> int:
        return sum(self._lost_of(fd) for fd in self._events)

    def close(self) -> None:
        """Close all; more than once does no harm."""
        events, self._events = self._events, []
        for fd in events:
            os.close(fd)
        super().close()


def decoder(common: CommonFields) -> Any:
    """Returns a decoder for the records of such a ring."""

    def decode(data: NDArray[np.uint8]) -> tuple[Batch, int, Losses]:
        events = room_for(len(data) // _LEAST_RECORD, data)
        lost = np.empty((len(events), 3), np.int64)
        n, damaged, losses = _decode(
            data,
            common.type_shift // 8,
            common.pid_word * 4,
            events.ts,
            events.type,
            events.tid,
            events.cpu,
            events.offset,
            events.length,
            lost,
        )
        events.pid = events.tid
        found = [(a, b, c) for a, b, c in lost[:losses].tolist()]
        return rows_of(events, slice(0, n)), damaged, found

    return decode


@compiled
def _decode(
    data: Any,
    type_at: int,
    pid_at: int,
    ts: Any,
    kind: Any,
    tid: Any,
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
        size = little(data, at + 6, 2)
        if size < 8 or size % 8 != 0 or at + size > len(data):
            return n, 1, losses
        if record == _SAMPLE_RECORD and size >= _RAW + pid_at + 4:
            raw = little(data, at + _RAW_SIZE, 4)
            if raw > size - _RAW or raw < pid_at + 4:
                return n, 1, losses
            last = ts[n] = little(data, at + 16, 8)
            cpu[n] = little(data, at + 24, 4)
            kind[n] = little(data, at + _RAW + type_at, 2)
            tid[n] = little(data, at + _RAW + pid_at, 4)
            offset[n] = at + _RAW
            length[n] = raw
            n += 1
        elif record == _LOST and size >= 24 + _TRAILER:
            now = little(data, at + size - 16, 8)
            lost[losses, 0] = last
            lost[losses, 1] = now
            lost[losses, 2] = little(data, at + 16, 8)
            losses += 1
            last = now
        at += size
    return n, int(at != len(data)), losses
