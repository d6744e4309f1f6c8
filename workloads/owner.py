"""The owner of a container or a folder: the process that made it, named by its label or name."""

from __future__ import annotations

import os
from pathlib import Path

from tracer.probes.kernel import boot_id, process_alive, process_start_time

OWNER = "traintrace.owner"
"""Label of a container: the process that runs it, as PID-STARTTIME-BOOT-NAMESPACE-USER."""


def myself() -> str:
    """Returns this process's value of the label. No other process gets it, whatever the clock."""
    pid = os.getpid()
    return f"{pid}-{process_start_time(pid)}-{_boot()}-{_namespace()}-{os.geteuid()}"


def has_ended(owner: str, here: bool) -> bool:
    """Returns whether the process that a label names is known to have ended.

    `here` tells that it ran on this machine: another boot has ended then. A process of another PID
    namespace is not known to have ended, nor one of another user if /proc hides these (hidepid).
    Text that is no such label names no process that has ended.
    """
    try:
        first, second, boot, *others = owner.split("-")
        pid, start, namespace, user = map(int, (first, second, *others))
        if boot != _boot():
            return here
        if namespace != _namespace() or not _sees_processes_of(user):
            return False
        return not process_alive(pid, start)
    except (ValueError, PermissionError):
        return False


def _boot() -> str:
    return boot_id()[:8]


def _namespace() -> int:
    """Returns the inode of this process's PID namespace; 0 if the kernel has none."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _sees_processes_of(user: int) -> bool:
    return user == os.geteuid() or Path("/proc/1").exists()
