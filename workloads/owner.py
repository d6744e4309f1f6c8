"""The owner of a container or a folder: the process that made it, named by its label or name."""

from __future__ import annotations

import os

from tracer.probes.kernel import boot_id, process_alive, process_start_time

OWNER = "traintrace.owner"
"""Label of a container: the process that runs it, as PID-STARTTIME-BOOT."""


def myself() -> str:
    """Returns this process's value of the label. No other process gets it, whatever the clock."""
    return f"{os.getpid()}-{process_start_time(os.getpid())}-{_boot()}"


def alive(owner: str) -> bool:
    """Returns whether the process that a label names still runs."""
    try:
        pid, start, boot = owner.split("-")
        return boot == _boot() and process_alive(int(pid), int(start))
    except ValueError:
        return False


def _boot() -> str:
    return boot_id()[:8]
