"""How long the GPU took for what was called between two marks, by CUDA events.

An event is recorded on the current stream where a phase begins and where it ends. The two are
read, without waiting, once both have happened, which is during a later phase as a rule: what the
GPU took is a mark of its own (`tracer.phases.format`, kind MEASURED). What the GPU did not get to
before the process ended is not measured, nor is what is captured into a CUDA graph.

Seeds 000 (section 4.4) and 002 (section 4.5) wait for the GPU at each of these places, so that the
time on the clock is the GPU's, too. With SYNCHRONIZE_ENV set this does as they did; the training
then no longer prepares a step's calls while the GPU is at those before, and is slower for it.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from types import ModuleType
from typing import Any

from .. import marks
from ..format import AUTOMATIC, MEASURED

SYNCHRONIZE_ENV = "TRACER_MARKS_CUDA_SYNC"
"""Environment variable: not empty, each boundary of a computation waits for the GPU."""

_MAX_PENDING = 1000
"""Measurements of a thread that the GPU has not got to; what comes on top is not measured."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.begun: dict[bytes, Any] = {}
        """Event of the beginning, by phase."""
        self.pending: deque[tuple[bytes, int, Any, Any]] = deque()
        """Phase, a time at which it went on, its two events."""
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
        """Just before a phase begins. Never raises."""
        if not self._broken and marks.enabled() and self._cuda.is_initialized():
            self._try(self._begin, name)

    def end(self, name: bytes) -> None:
        """Just before a phase ends. Never raises."""
        if not self._broken and marks.enabled() and self._cuda.is_initialized():
            self._try(self._end, name)

    def _try(self, call: Callable[..., None], *arguments: bytes) -> None:
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001 (whatever is wrong with CUDA, the script's calls will say)
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
            self._thread.pending.append((name, monotonic_ns(), begun, ended))

    def _capturing(self) -> bool:
        """Whether calls go into a CUDA graph instead of to the GPU; what had begun is forgotten."""
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
        """Mark what the GPU has got to since the last time."""
        pending = self._thread.pending
        while pending and pending[0][3].query():
            name, at, begun, ended = pending.popleft()
            try:
                took = round(begun.elapsed_time(ended) * 1e6)
            except (RuntimeError, ValueError):  # events of two GPUs
                continue
            marks.mark(MEASURED | AUTOMATIC, name, at, took)
            self._thread.spare += (begun, ended)
