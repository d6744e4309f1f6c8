"""A load that rapidly makes files, mappings, threads, processes and marks, as long trainings do.

    TRACER_MARKS=DIR python benchmarks/parts/churn.py

Each step makes the marks of PyTorch, and the work of two DataLoader workers: four files in shared
memory, mapped, touched, and removed some steps later. Every 10th step runs a thread, every 100th a
process. Runs until it is killed.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
from collections import deque
from pathlib import Path

from tracer import phases
from tracer.phases.format import ABSENT, AUTOMATIC, BEGIN, END
from tracer.phases.marks import mark

_FILES, _BYTES, _KEPT = 4, 1 << 16, 16
_THREAD_EVERY, _PROCESS_EVERY = 10, 100
_STEPS_AN_EPOCH = 1000


def churn() -> None:
    """Makes steps without end."""
    kept: deque[mmap.mmap] = deque()
    for step in itertools.count():
        epoch, batch = divmod(step, _STEPS_AN_EPOCH)
        if not batch:
            _mark(b"data_load")
        _mark(b"fetch", epoch << 20, batch)
        for number in range(_FILES):
            kept.append(_shared(Path(f"/dev/shm/churn-{os.getpid()}-{step}-{number}")))
        while len(kept) > _KEPT:
            kept.popleft().close()
        for name in (b"forward", b"backward", b"optimizer"):
            _mark(name, step=1)
        if not step % _THREAD_EVERY:
            thread = threading.Thread(target=os.getppid)
            thread.start()
            thread.join()
        if not step % _PROCESS_EVERY:
            _process()


def _mark(name: bytes, epoch: int = ABSENT, step: int = ABSENT) -> None:
    mark(BEGIN | AUTOMATIC, name, epoch, step)
    mark(END | AUTOMATIC, name, ABSENT, ABSENT)


def _shared(path: Path) -> mmap.mmap:
    """Returns a mapping of an unlinked file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        path.unlink()
        os.ftruncate(fd, _BYTES)
        shared = mmap.mmap(fd, _BYTES)
    finally:
        os.close(fd)
    shared[0] = 1
    return shared


def _process() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    if not phases.enabled():
        raise SystemExit("TRACER_MARKS is not set to a folder")
    churn()
