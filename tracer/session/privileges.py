"""Gives up the capabilities that the rest of a recording does not need."""

from __future__ import annotations

import contextlib
import resource

from tracer.probes.capabilities import keep_capabilities
from tracer.probes.kernel import CAPABILITIES

_FILES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER")
_COMMAND = ("CAP_KILL",)
_NAMES = ("CAP_SYSLOG",)
"""Needed for the addresses of kernel functions."""
_WORKERS = ("CAP_SETGID", "CAP_SETUID")
"""Needed by the worker that reads the targets' files and becomes nobody (`probes/workers`)."""

CAPTURE = (
    *_FILES,
    *_COMMAND,
    *_NAMES,
    *_WORKERS,
    "CAP_IPC_LOCK",  # perf's rings
    "CAP_SYS_PTRACE",  # mappings of other users' processes
    "CAP_SYS_ADMIN",  # BPF and perf in kernels without CAP_BPF and CAP_PERFMON
    "CAP_SYS_NICE",  # the priority of the drain
    "CAP_PERFMON",
    "CAP_BPF",
)
"""Capabilities while events are recorded."""

FINALIZE = (
    *_FILES,
    *_COMMAND,
    *_NAMES,
    *_WORKERS,
    "CAP_SYS_PTRACE",  # names of files that other users' processes have open
    "CAP_SYS_ADMIN",  # names of inodes, through file handles
)
"""Capabilities while tables are made from data that targets may have manipulated."""


def keep(names: tuple[str, ...]) -> None:
    """Gives up all capabilities of this thread and of threads it starts, except these.

    Programs that it executes as root get their capabilities back.
    """
    keep_capabilities(sum(1 << CAPABILITIES[name] for name in names))


def allow_locked_memory() -> None:
    """Removes the limit on locked memory, which BPF maps count towards before Linux 5.11.

    Call it before `keep` gives CAP_SYS_RESOURCE up, and after the command is forked, which keeps
    its own limit. Without that capability, the limit stays.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(
            resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
