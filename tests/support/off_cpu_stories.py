"""Stories of a few switches and wake-ups, told as rows of the table `off_cpu`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.scheduling import LINUX_6_18, Kernel, Logged, scheduled_trace
from tracer.store.trace import Trace

JOB, WORKER, OTHER, IDLE = 7, 8, 50, 0
"""A target's first thread and another one of its threads; a thread of nobody; an idle CPU."""
GETPID, THREAD, INTO_CGROUP = 39, 0x10000, 1 << 33
THREADS = [(JOB, JOB, 1, "job", None), (WORKER, JOB, 1, "w", None), (OTHER, OTHER, 1, "o", None)]
K = LINUX_6_18


def target(pid: int, name: str = "job", kind: str = "pid", **more: Any) -> dict[str, Any]:
    """Returns a target as the manifest has it."""
    return {"name": name, "role": "target", "kind": kind, "pid": pid, **more}


def told(
    folder: Path,
    columns: str,
    *events: tuple[Any, ...],
    kernel: Kernel = K,
    targets: Iterable[dict[str, Any]] = (),
    threads: Iterable[tuple[int, int, int, str, str | None]] = THREADS,
    **manifest: Any,
) -> list[tuple[Any, ...]]:
    """Returns columns of the rows, in the order of the table, of events (time, payload[, CPU])."""
    logged = [Logged(ts, cpu[0] if cpu else 0, payload) for ts, payload, *cpu in events]
    targets = list(targets) or [target(JOB)]
    scheduled_trace(folder / "t", kernel, logged, targets=targets, threads=threads, **manifest)
    with Trace(folder / "t") as trace:
        return trace.connection.execute(f"SELECT {columns} FROM off_cpu").fetchall()


START = (1, K.switch(IDLE, "R", JOB))
"""The recording begins when the target's first thread begins to run: a row of no length."""


def after_start(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Returns the rows without that of START. Their last column is the time."""
    assert rows[0][-1] == 1
    return rows[1:]
