"""A recorder keeps no more capabilities than what it has still to do needs."""

from __future__ import annotations

from probes.capabilities import keep_capabilities
from probes.kernel import CAPABILITIES

_FILES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER")
_COMMAND = ("CAP_KILL",)
_NAMES = ("CAP_SYSLOG",)
"""Addresses of the kernel's functions."""
_WORKERS = ("CAP_SETGID", "CAP_SETUID")
"""The process that reads the targets' files becomes nobody (probes.workers)."""

CAPTURE = (
    *_FILES,
    *_COMMAND,
    *_NAMES,
    *_WORKERS,
    "CAP_IPC_LOCK",  # perf's rings
    "CAP_SYS_PTRACE",  # what other users' processes have mapped
    "CAP_SYS_ADMIN",  # BPF and perf before they had capabilities of their own
    "CAP_SYS_NICE",  # the drain's
    "CAP_PERFMON",
    "CAP_BPF",
)
"""While events are let in."""

FINALIZE = (
    *_FILES,
    *_COMMAND,
    *_NAMES,
    *_WORKERS,
    "CAP_SYS_PTRACE",  # names of files that other users' processes have open
    "CAP_SYS_ADMIN",  # names of inodes, asked of the file system
)
"""While tables are made of bytes that anybody may have had a hand in."""


def keep(names: tuple[str, ...]) -> None:
    """Give up every capability of this thread, and of those that it starts, but these.

    Not those of programs that it executes as root.
    """
    keep_capabilities(sum(1 << CAPABILITIES[name] for name in names))
