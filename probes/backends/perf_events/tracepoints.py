"""Tracepoints through perf's rings: on each CPU one ring for all events of a scope.

perf can tell processes apart only one by one and CPU by CPU, so that every process is recorded,
and who belongs to no target is left out when tables are made. Needs no place to write to but its
rings: tracefs is read for ids and formats alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.backends import event_format
from probes.backends.chunks import Losses
from probes.backends.event_format import CommonFields
from probes.backends.perf_events.attributes import DUMMY, open_tracepoint
from probes.backends.perf_events.records import little
from probes.backends.perf_events.ring import Ring
from probes.backends.timeline import Batch
from probes.compiled import compiled
from probes.errors import FeatureMissing
from probes.kernel import tracefs
from probes.schema import Feed, Probe, Scope

SAMPLES = "tracepoints"
"""What the rings hold, as a manifest says it."""

_ENABLE, _DISABLE, _SET_OUTPUT, _SET_FILTER = 0x2400, 0x2401, 0x2405, 0x40082406
_SAMPLE_RECORD, _LOST = 9, 2
_RAW_SIZE, _RAW = 32, 36
"""Places in a sample: behind its header are pid and tid, time, cpu, and the event's own bytes."""
_TRAILER = 24
_LEAST_RECORD = 32


class TracepointRing(Ring):
    """The ring of a CPU and scope: that of an event that never happens, which others write to."""

    def __init__(self, scope: Scope, cpu: int, path: Path, size: int, ids: Iterable[int]) -> None:
        """`ids` are the kernel's numbers of the events."""
        super().__init__(SAMPLES, DUMMY, cpu, path, size)
        self.scope = scope
        self._ids = list(ids)
        self._events: list[int] = []

    def open(self) -> None:
        """Open the events, switched off, and the file. PermissionMissing or FeatureMissing."""
        super().open()
        for number in self._ids:
            fd = open_tracepoint(number, self.cpu)
            self._events.append(fd)
            fcntl.ioctl(fd, _SET_OUTPUT, self._fd)

    def start(self) -> None:
        """Let events in."""
        super().start()
        for fd in self._events:
            fcntl.ioctl(fd, _ENABLE, 0)

    def stop(self) -> None:
        """Let no more events in."""
        for fd in self._events:
            fcntl.ioctl(fd, _DISABLE, 0)
        super().stop()

    def leave_out(self, tids: Iterable[int]) -> None:
        """Let in no events of these threads."""
        text = " && ".join(f"common_pid != {tid}" for tid in tids).encode() + b"\0"
        for fd in self._events:
            fcntl.ioctl(fd, _SET_FILTER, text)

    def _count_lost(self) -> int:
        return sum(self._lost_of(fd) for fd in self._events)

    def close(self) -> None:
        """Close all; more than once does no harm."""
        events, self._events = self._events, []
        for fd in events:
            os.close(fd)
        super().close()


class Tracepoints:
    """The rings of all scopes and CPUs, and the formats of what they hold."""

    def __init__(
        self,
        raw: Path,
        probes: list[Probe],
        kib: dict[Scope, int],
        cpus: list[int],
        give_to_user: Callable[[int], None],
    ) -> None:
        """Open them, switched off; `kib` for each CPU. PermissionMissing or FeatureMissing."""
        self.formats: dict[str, str] = {}
        self.missing: dict[str, list[str]] = {}
        self.rings: list[TracepointRing] = []
        self._folder = tracefs(writable=False) / "events"
        ids: dict[Scope, list[int]] = {scope: [] for scope in Scope}
        for probe in probes:
            ids[probe.scope] += self._declare(probe)
        try:
            for scope in Scope:
                size = 1 << ((kib[scope] << 10).bit_length() - 1)
                for cpu in cpus if ids[scope] else ():
                    path = raw / f"perf-{scope.value}-cpu{cpu}.raw"
                    ring = TracepointRing(scope, cpu, path, max(size, 4096), ids[scope])
                    self.rings.append(ring)
                    ring.open()
                    give_to_user(ring.sink)
        except BaseException:
            for ring in self.rings:
                ring.close()
            raise

    def _declare(self, probe: Probe) -> list[int]:
        """The ids of the events of a probe that this kernel has."""
        wanted = [event for event in probe.events if event.feed is Feed.TRACEPOINT]
        present = []
        ids = []
        for event in wanted:
            path = self._folder / event.name.replace(":", "/") / "format"
            if path.exists():
                present.append(event)
                self.formats[event.name] = path.read_text()
                ids.append(event_format.parse(event.name, self.formats[event.name]).id)
        if not present and not probe.optional:
            raise FeatureMissing(
                f"this kernel has none of the events of probe {probe.name}",
                "leave it out with -e, or see `tracer doctor`",
            )
        served = {event.label for event in present}
        if absent := [event.name for event in wanted if event.label not in served]:
            self.missing[probe.name] = absent
        return ids


class WideFilter:
    """One scope of the rings, as a tracefs instance is treated: it lets everybody in."""

    def __init__(self, rings: list[TracepointRing]) -> None:
        self._rings = rings

    def set_option(self, option: str, on: bool) -> bool:
        """Children are always followed."""
        return option == "event-fork" and on

    def set_pids(self, tids: Iterable[int], exclude: bool = False) -> None:
        """Leave these threads out; everybody else is let in from the start."""
        if exclude:
            listed = list(tids)
            for ring in self._rings:
                ring.leave_out(listed)

    def add_pids(self, tids: Iterable[int], exclude: bool = False) -> None:
        """Everybody is let in."""

    def without(self, tids: Iterable[int]) -> set[int]:
        """Nobody is left out but the recorder."""
        return set()

    def start(self) -> None:
        """Let events in."""
        for ring in self._rings:
            ring.start()

    def stop(self) -> None:
        """Let no more events in."""
        for ring in self._rings:
            ring.stop()

    def close(self) -> None:
        """The rings are closed as streams."""


def decoder(common: CommonFields) -> Any:
    """What decodes the records of such a ring."""

    def decode(data: NDArray[np.uint8]) -> tuple[Batch, int, Losses]:
        room = len(data) // _LEAST_RECORD
        ts = np.empty(room, np.int64)
        kind = np.empty(room, np.uint16)
        tid = np.empty(room, np.int32)
        cpu = np.empty(room, np.int16)
        offset = np.empty(room, np.int64)
        length = np.empty(room, np.int32)
        lost = np.empty((room, 3), np.int64)
        n, damaged, losses = _decode(
            data, common.type_shift // 8, common.pid_word * 4,
            ts, kind, tid, cpu, offset, length, lost,
        )  # fmt: skip
        whole = Batch(ts[:n], kind[:n], tid[:n], tid[:n], cpu[:n], offset[:n], length[:n], data)
        return whole, damaged, [(a, b, c) for a, b, c in lost[:losses].tolist()]

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
