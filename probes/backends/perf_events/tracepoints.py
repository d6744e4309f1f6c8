"""Tracepoints through perf's rings: on each CPU one ring for all events of a scope."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracer.probes.backends.backend import all_but
from tracer.probes.backends.chunks import Losses
from tracer.probes.backends.event_format import CommonFields
from tracer.probes.backends.perf_events.attributes import (
    DISABLE,
    DUMMY,
    ENABLE,
    Chain,
    open_tracepoint,
)
from tracer.probes.backends.perf_events.records import STACK_ID, little
from tracer.probes.backends.perf_events.ring import Ring
from tracer.probes.backends.timeline import Batch, room_for, rows_of
from tracer.probes.compiled import compiled

SAMPLES, SAMPLES_WITH_STACKS = "tracepoints", "tracepoints-with-stacks"
"""The names of the rings' content in a manifest: samples without or with a call chain."""

_SET_OUTPUT, _SET_FILTER = 0x2405, 0x40082406
_SAMPLE_RECORD, _LOST = 9, 2
_TIME_AT, _CPU_AT, _CHAIN_AT = 16, 24, 32
"""Places in a sample. Its call chain, if it has one, and the event's own bytes follow: a count of
entries and the entries; a count of bytes (`_RAW_SIZE` long) and the bytes."""
_CHAIN_SIZE, _RAW_SIZE, _ENTRY = 8, 4, 8
_KERNEL_PART, _LAST_MARK = -128, -4095
"""PERF_CONTEXT_KERNEL begins the kernel's part of a chain. All marks are between PERF_CONTEXT_MAX
and -1, and no function of a kernel lies there."""
_TRAILER = 24
_LEAST_RECORD = 32


class Sampled(NamedTuple):
    """A tracepoint, or those of its events for which a condition holds."""

    number: int
    """The kernel's number of the event."""
    about_others: bool = False
    """True if it may be about other threads than the one in whose context it happens."""
    condition: str = ""
    """The kernel's filter; "": all events."""
    stack: bool = False
    """True if its samples have the kernel stack."""


def split(number: int, condition: str, about_others: bool) -> tuple[Sampled, Sampled]:
    """Returns a tracepoint in two parts: one with the kernel stack if the condition holds."""
    return (
        Sampled(number, about_others, condition, stack=True),
        Sampled(number, about_others, f"!({condition})"),
    )


def open_sampled(sampled: Sampled, cpu: int, chains: bool) -> int:
    """Opens a tracepoint on a CPU, switched off; returns its fd.

    With `chains`, all samples have a place for a call chain. Raises PermissionMissing,
    FeatureMissing, or OSError if the kernel refuses the condition.
    """
    empty = Chain.EMPTY if chains else Chain.NONE
    fd = open_tracepoint(sampled.number, cpu, Chain.KERNEL if sampled.stack else empty)
    try:
        if sampled.condition:
            fcntl.ioctl(fd, _SET_FILTER, sampled.condition.encode() + b"\0")
    except OSError:
        os.close(fd)
        raise
    return fd


class TracepointRing(Ring):
    """The ring of a CPU and scope: that of an event that never happens, which others write to."""

    def __init__(self, cpu: int, path: Path, size: int, sampled: Iterable[Sampled]) -> None:
        """`sampled` are the events. If one has stacks, all samples have a place for a chain."""
        self._sampled = list(sampled)
        self._chains = any(one.stack for one in self._sampled)
        samples = SAMPLES_WITH_STACKS if self._chains else SAMPLES
        super().__init__(samples, DUMMY, cpu, path, size)
        self._events: list[int] = []

    def open(self) -> None:
        """Open the events, switched off, and the file. PermissionMissing or FeatureMissing."""
        super().open()
        for sampled in self._sampled:
            fd = open_sampled(sampled, self.cpu, self._chains)
            self._events.append(fd)
            fcntl.ioctl(fd, _SET_OUTPUT, self._fd)

    def start(self) -> None:
        """Starts recording events."""
        super().start()
        for fd in self._events:
            fcntl.ioctl(fd, ENABLE, 0)

    def stop(self) -> None:
        """Stops recording events."""
        for fd in self._events:
            fcntl.ioctl(fd, DISABLE, 0)
        super().stop()

    def leave_out(self, tids: Iterable[int]) -> None:
        """Excludes the events of these threads that are not about others."""
        text = all_but(tids).encode() + b"\0"
        for sampled, fd in zip(self._sampled, self._events, strict=True):
            if not sampled.about_others:
                fcntl.ioctl(fd, _SET_FILTER, text)

    def _count_lost(self) -> int:
        return sum(self._lost_of(fd) for fd in self._events)

    def close(self) -> None:
        """Close all; more than once does no harm."""
        events, self._events = self._events, []
        for fd in events:
            os.close(fd)
        super().close()


def decoder(common: CommonFields, chains: bool = False) -> Any:
    """Returns a decoder for the records of such a ring.

    With `chains`, samples have call chains. The kernel's part of one is an event of its own, which
    follows the sample's (`records.STACK`).
    """

    def decode(data: NDArray[np.uint8]) -> tuple[Batch, int, Losses]:
        events = room_for(len(data) // _LEAST_RECORD, data)
        lost = np.empty((len(events), 3), np.int64)
        n, damaged, losses = _decode(
            data,
            chains,
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
def _frames(data: Any, at: int, entries: Any) -> Any:
    """Returns the number of addresses in the kernel's part of a chain, behind its mark."""
    if entries == 0 or little(data, at, 8) != _KERNEL_PART:
        return 0
    for frame in range(1, entries):
        if _LAST_MARK <= little(data, at + frame * _ENTRY, 8) < 0:
            return frame - 1
    return entries - 1


@compiled
def _decode(
    data: Any,
    chains: bool,
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
        least = _CHAIN_AT + _RAW_SIZE + pid_at + 4 + (_CHAIN_SIZE if chains else 0)
        if record == _SAMPLE_RECORD and size >= least:
            entries = np.int64(0)
            begin = _CHAIN_AT + _RAW_SIZE
            if chains:
                entries = little(data, at + _CHAIN_AT, 8)
                if entries < 0 or entries > (size - least) // _ENTRY:
                    return n, 1, losses
                begin += _CHAIN_SIZE + entries * _ENTRY
            raw = little(data, at + begin - _RAW_SIZE, 4)
            if raw > size - begin or raw < pid_at + 4:
                return n, 1, losses
            last = ts[n] = little(data, at + _TIME_AT, 8)
            cpu[n] = little(data, at + _CPU_AT, 4)
            kind[n] = little(data, at + begin + type_at, 2)
            tid[n] = little(data, at + begin + pid_at, 4)
            offset[n] = at + begin
            length[n] = raw
            n += 1
            frames = _frames(data, at + _CHAIN_AT + _CHAIN_SIZE, entries)
            if frames > 0:
                ts[n], cpu[n], kind[n], tid[n] = ts[n - 1], cpu[n - 1], STACK_ID, tid[n - 1]
                offset[n] = at + _CHAIN_AT - 8
                length[n] = 8 + _CHAIN_SIZE + _ENTRY * (1 + frames)
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
