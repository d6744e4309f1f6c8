"""The cost that hostile input may have, and a process of its own to hold it to that.

Whatever a file or a trace holds, to read or to refuse it takes at most 1 GiB of memory and 10 s of
CPU time, and ends in success or in one of our own errors: docs/security.md.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.support.warm import context
from tracer.probes.errors import TracerError

MEMORY_BYTES = 1 << 30
CPU_SECONDS = 10
WALL_SECONDS = 60
"""Limit of wall time: a process that waits for a FIFO or a lock takes no CPU time. The time for
which others have the CPU is not counted here."""


def within_budget(function: Callable[..., Any], *arguments: Any) -> TracerError | None:
    """Call a module's function in a process of its own; returns the error of ours that it raises.

    AssertionError, with what happened, for any other exception, for more memory or CPU time, and
    for a crash. What it compiles counts as CPU time: have it compiled before.
    """
    return _called(MEMORY_BYTES, CPU_SECONDS, function, arguments)[1]


def run_within(
    limit: int, function: Callable[..., Any], *arguments: Any, cpu_s: int = CPU_SECONDS
) -> Any:
    """Call a module's function in a process that may take `limit` bytes more; gives its result.

    AssertionError for any exception, for more memory or CPU time, and for a crash.
    """
    result, error = _called(limit, cpu_s, function, arguments)
    assert error is None, error
    return result


def _called(
    memory: int, cpu_s: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, TracerError | None]:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_limited, args=(theirs, memory, cpu_s, function, arguments))
    process.start()
    theirs.close()
    said = b""
    ended = _ends(process.pid, ours)
    if ended:
        with contextlib.suppress(EOFError):
            said = ours.recv_bytes()
    else:
        process.kill()
    process.join()
    ours.close()
    assert ended, f"{function.__name__} has slept for a minute"
    assert said, f"{function.__name__} was ended by {ending(process.exitcode)}"
    result, error, trace = pickle.loads(said)
    assert trace is None, trace
    return result, error


def _ends(pid: int, told: Connection) -> bool:
    """Returns whether a process tells its result, or ends, before it has slept for too long."""
    begun = time.monotonic()
    while not told.poll(1):
        if time.monotonic() - begun - _awake_s(pid) > WALL_SECONDS:
            return False
    return True


def _awake_s(pid: int) -> float:
    """Time for which the threads of a process ran or waited for a CPU."""
    total = 0
    for account in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            ran, waited, _ = account.read_text().split()
            total += int(ran) + int(waited)
    return total / 1e9


def ending(status: int | None) -> str:
    """The reason for which a process ended with this exit status."""
    if status is None or status >= 0:
        return f"exit {status}"
    if -status == signal.SIGXCPU:
        return "its limit of CPU time"
    return signal.Signals(-status).name


def limit_memory(more: int = MEMORY_BYTES) -> None:
    """Lets this process take `more` bytes beyond those that it has; then MemoryError."""
    # Pools of a thread a CPU take memory for each of them.
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:2])
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("VmData:")[2].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (held + more, held + more))


def _limited(
    end: Connection,
    memory: int,
    cpu_s: int,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    limit_memory(memory)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    result, error, trace = None, None, None
    try:
        result = function(*arguments)
    except TracerError as found:
        error = found
    except BaseException:  # noqa: BLE001 (whatever else it is, the test shows it)
        trace = traceback.format_exc()
    end.send_bytes(pickle.dumps((result, error, trace)))
