"""A function run in a process of its own that may take so much memory and CPU time, and no more."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

_context = multiprocessing.get_context("fork")


def run_within(
    limit: int, function: Callable[..., Any], *arguments: Any, cpu_s: int | None = None
) -> Any:
    """What `function` gives, which may take `limit` bytes more than are held, and `cpu_s`.

    What it raises fails the test: as does memory that it does not get, and the kernel's signal at
    the end of its CPU time.
    """
    ours, theirs = _context.Pipe(duplex=False)
    process = _context.Process(target=_run, args=(limit, cpu_s, function, arguments, theirs))
    process.start()
    theirs.close()
    try:
        result, error = ours.recv()
    except EOFError:
        result, error = None, "it was killed"
    process.join()
    assert not error, error
    return result


def _run(
    limit: int, cpu_s: int | None, function: Callable[..., Any], arguments: Any, result: Any
) -> None:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        held = int(file.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (held + limit, held + limit))
    if cpu_s is not None:
        cpu_s += int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    try:
        result.send((function(*arguments), None))
    except BaseException as error:  # noqa: BLE001
        result.send((None, f"{type(error).__name__}: {error}"[:1000]))
