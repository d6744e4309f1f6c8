"""The owner of a container: the process that runs it, which a label of the container names."""

from __future__ import annotations

import psutil

OWNER = "traintrace.owner"
"""Label of a container: the process that runs it, as PID-STARTTIME."""


def myself() -> str:
    """Returns this process's value of the label."""
    process = psutil.Process()
    return f"{process.pid}-{process.create_time()}"


def alive(owner: str) -> bool:
    """Returns whether the process that a label names still runs."""
    pid, _, started = owner.partition("-")
    try:
        return str(psutil.Process(int(pid)).create_time()) == started
    except (psutil.NoSuchProcess, ValueError):
        return False
