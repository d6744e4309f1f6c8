"""The writer of marks: each process writes into a file mapping, one record per mark."""

from __future__ import annotations

import functools
import itertools
import mmap
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from .clock import machine_clock
from .format import (
    ABSENT,
    BEGIN,
    COMMITTED,
    END,
    NAME_BYTES,
    RECORD,
    RECORD_BYTES,
    STOPPED,
    SUFFIX,
)

MARKS_ENV = "TRACER_MARKS"
"""Environment variable: the folder that marks go to."""

NAMES = (
    "data_load",
    "model_load",
    "train",
    "inference",
    "epoch",
    "step",
    "fetch",
    "forward",
    "backward",
    "optimizer",
    "checkpoint",
    "eval",
)
"""The standard names of phases. Any other name is recorded unchanged."""

_FIRST_RECORDS = 64
"""Records in a process's first chunk: one page. It is small because DataLoader workers are many."""
_CHUNK_RECORDS = 4096
_pack = RECORD.pack_into
_now = time.monotonic_ns
"""The machine's clock. `enable` changes it in a process whose time namespace has another one."""
_F = TypeVar("_F", bound=Callable[..., Any])


class _Sink:
    """The marks files of this process, one file per chunk. A forked child starts its own files."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._begun = _now()
        """Time in ns. The pid and this time identify the process in the names of its files."""
        self._chunks = 0
        # Mapping, slot counter and number of slots for marks change together, in one assignment.
        self.current: tuple[mmap.mmap | None, Callable[[], int], int] = (None, lambda: 0, 0)

    def _map_chunk(self) -> None:
        records = _CHUNK_RECORDS if self._chunks else _FIRST_RECORDS
        size = records * RECORD_BYTES
        name = f"{os.getpid()}-{self._begun}-{self._chunks}{SUFFIX}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(os.path.join(self.folder, name), flags, 0o600)  # noqa: PTH118 (import cost)
        try:
            # Allocate ahead: a store into a hole on a full disk would raise SIGBUS.
            os.posix_fallocate(fd, 0, size)
            chunk = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self._chunks += 1
        # The last slot is for the mark that there is no next chunk.
        self.current = (chunk, itertools.count().__next__, records - 1)

    def slot(self) -> tuple[mmap.mmap, int]:
        """Returns a mapping and the number of a record in it that no other mark uses."""
        while True:
            chunk, next_slot, records = self.current
            number = next_slot()  # atomic
            if chunk is not None and number < records:
                return chunk, number
            with self._lock:
                if self.current[0] is chunk:
                    self._map_chunk()

    def stop(self) -> None:
        """Marks that no more marks follow, in the slot kept for that."""
        chunk, _, last = self.current
        if chunk is not None:
            pid, tid = _thread.ids
            at = last * RECORD_BYTES
            _pack(chunk, at, _now(), pid, tid, ABSENT, ABSENT, STOPPED, b"", COMMITTED)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.ids = (os.getpid(), threading.get_native_id())


_thread = _Thread()
_sink: _Sink | None = None


def enabled() -> bool:
    """Returns whether marks of this process are kept."""
    return _sink is not None


def enable(folder: str) -> None:
    """Keeps marks from now on, in `folder`.

    If a file cannot be made there, all further marks are disabled. The file before it, if there
    is one, says so.
    """
    global _now, _sink
    _now = machine_clock()
    _sink = _Sink(folder)


def now() -> int:
    """Returns the time in ns of a mark that were made now."""
    return _now()


def disable() -> None:
    """Stops keeping marks. Marks already written stay."""
    global _sink
    _sink = None


def mark(kind: int, name: bytes, epoch: int, step: int) -> None:
    """Writes one mark with the fields of `tracer.phases.format`. Never raises."""
    global _sink
    sink = _sink
    if sink is None:
        return
    chunk, next_slot, records = sink.current
    number = next_slot()
    if chunk is None or number >= records:
        try:
            chunk, number = sink.slot()
        except OSError:
            # The disk is full or the folder is gone. The training job must go on.
            sink.stop()
            _sink = None
            return
    pid, tid = _thread.ids
    at = number * RECORD_BYTES
    _pack(chunk, at, _now(), pid, tid, epoch, step, kind, name, COMMITTED)


def _write(kind: int, name: str, epoch: int | None, step: int | None) -> None:
    mark(kind, _encoded(str(name)), _number(epoch), _number(step))


def _number(value: int | None) -> int:
    """Returns the number to store: ABSENT for None and for values that do not fit. Never raises."""
    if value is None:
        return ABSENT
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return ABSENT
    return number if -(1 << 63) < number < 1 << 63 else ABSENT


@functools.lru_cache(maxsize=1024)
def _encoded(name: str) -> bytes:
    encoded = name.encode("utf-8", "replace")
    # Cut on a character boundary.
    return encoded[:NAME_BYTES].decode("utf-8", "ignore").encode("utf-8")


def begin(name: str, *, epoch: int | None = None, step: int | None = None) -> None:
    """Marks that phase `name` begins on this thread.

    A nested phase inherits the epoch and the step from the outer phase unless it sets them.
    """
    if _sink is not None:
        _write(BEGIN, name, epoch, step)


def end(name: str) -> None:
    """Marks that the innermost open phase `name` of this thread ends."""
    if _sink is not None:
        _write(END, name, None, None)


class Phase:
    """A phase as a context manager or a decorator. `phase` makes it."""

    __slots__ = ("epoch", "name", "step")

    def __init__(self, name: str, epoch: int | None, step: int | None) -> None:
        self.name = name
        self.epoch = epoch
        self.step = step

    def __enter__(self) -> Phase:
        if _sink is not None:
            _write(BEGIN, self.name, self.epoch, self.step)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _sink is not None:
            _write(END, self.name, None, None)

    def __call__(self, function: _F) -> _F:
        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return marked  # type: ignore[return-value]


def phase(name: str, *, epoch: int | None = None, step: int | None = None) -> Phase:
    """Returns a phase that lasts as long as a `with` block or each call of a decorated function.

    `name` is one of NAMES or your own name, at most 30 bytes of UTF-8. `epoch` and `step`
    count from 0.
    """
    return Phase(name, epoch, step)


def _after_fork_in_child() -> None:
    """Gives a forked child its own files. The child opens the first one at its first mark."""
    global _thread
    _thread = _Thread()
    if _sink is not None:
        enable(_sink.folder)


os.register_at_fork(after_in_child=_after_fork_in_child)

_folder = os.environ.get(MARKS_ENV)
if _folder:
    enable(_folder)
