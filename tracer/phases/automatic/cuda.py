"""Measures with CUDA events how long the GPU takes for the calls between two marks.

An event is recorded on the current stream where a phase begins and where it ends. The two events
are read without waiting, once the GPU has reached both, usually during a later phase. The GPU time
is written as a mark of its own (`tracer.phases.format`, kind MEASURED). Work that the GPU has not
finished when the process ends is not measured. Work captured into a CUDA graph is not measured.

Prashanthi et al. 2023 (section 4.4) and Prashanthi et al. 2022 (section 4.5) wait for the GPU at
each of these places, so that wall-clock time includes the GPU's time. SYNCHRONIZE_ENV makes this
module do the same. The training is then slower, because it no longer prepares the next calls
while the GPU works on the previous ones.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import marks
from ..format import AUTOMATIC, MEASURED

SYNCHRONIZE_ENV = "TRACER_MARKS_CUDA_SYNC"
"""Environment variable: if not empty, each boundary of a computation waits for the GPU."""

_MAX_PENDING = 1000
"""Most measurements per thread that wait for the GPU. Further phases are not measured."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.begun: dict[bytes, Any] = {}
        """Event of the beginning, by phase."""
        self.pending: deque[tuple[bytes, int, Any, Any]] = deque()
        """Phase, a time in ns within the phase, begin event, end event."""
        self.spare: list[Any] = []


class GpuTimes:
    """The GPU's time in this process's phases."""

    def __init__(self, torch: ModuleType) -> None:
        self._cuda: Any = getattr(torch, "cuda", None)
        self._thread = _Thread()
        self._synchronize = bool(os.environ.get(SYNCHRONIZE_ENV))
        self._broken = self._cuda is None
        atexit.register(self._try, self._collect)

    def begin(self, name: bytes) -> None:
        """Records the begin event. Call it just before a phase begins. Never raises."""
        if not self._broken and marks.enabled() and self._cuda.is_initialized():
            self._try(self._begin, name)

    def end(self, name: bytes) -> None:
        """Records the end event. Call it just before a phase ends. Never raises."""
        if not self._broken and marks.enabled() and self._cuda.is_initialized():
            self._try(self._end, name)

    def _try(self, call: Callable[..., None], *arguments: bytes) -> None:
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001 (the script's own calls will report a CUDA problem)
            self._broken = True

    def _begin(self, name: bytes) -> None:
        if self._capturing():
            return
        self._collect()
        if self._synchronize:
            self._cuda.synchronize()
        if len(self._thread.pending) < _MAX_PENDING:
            self._thread.begun[name] = self._event()

    def _end(self, name: bytes) -> None:
        if self._capturing():
            return
        begun = self._thread.begun.pop(name, None)
        ended = self._event() if begun is not None else None
        if self._synchronize:
            self._cuda.synchronize()
        if begun is not None:
            self._thread.pending.append((name, marks.now(), begun, ended))

    def _capturing(self) -> bool:
        """Returns whether calls go into a CUDA graph. If so, drops the phases that had begun."""
        if not self._cuda.is_current_stream_capturing():
            return False
        self._thread.begun.clear()
        return True

    def _event(self) -> Any:
        spare = self._thread.spare
        event = spare.pop() if spare else self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def _collect(self) -> None:
        """Writes a mark for each measurement that the GPU has finished since the last call."""
        pending = self._thread.pending
        while pending and pending[0][3].query():
            name, at, begun, ended = pending.popleft()
            try:
                took = round(begun.elapsed_time(ended) * 1e6)
            except (RuntimeError, ValueError):  # the events belong to two GPUs
                continue
            marks.mark(MEASURED | AUTOMATIC, name, at, took)
            self._thread.spare += (begun, ended)
