"""A recorder keeps no more capabilities than what it has still to do needs."""

from __future__ import annotations

import ctypes
import os

from probes.errors import TracerError
from probes.kernel import CAPABILITIES

_VERSION_3 = 0x20080522
"""Two words of capabilities: include/uapi/linux/capability.h."""

_FILES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER")
_COMMAND = ("CAP_KILL",)
_NAMES = ("CAP_SYSLOG",)
"""Addresses of the kernel's functions."""

CAPTURE = (
    *_FILES,
    *_COMMAND,
    *_NAMES,
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
    "CAP_SYS_PTRACE",  # names of files that other users' processes have open
    "CAP_SYS_ADMIN",  # names of inodes, asked of the file system
)
"""While tables are made of bytes that anybody may have had a hand in."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def keep(names: tuple[str, ...]) -> None:
    """Give up every capability of this thread, and of those that it starts, but these.

    Not those of programs that it executes as root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header = _Header(_VERSION_3, 0)
    sets = (_Sets * 2)()
    if libc.capget(ctypes.byref(header), sets) != 0:
        raise TracerError(f"capabilities cannot be read: {os.strerror(ctypes.get_errno())}")
    mask = sum(1 << CAPABILITIES[name] for name in names)
    for word, part in enumerate(sets):
        allowed = mask >> (32 * word) & 0xFFFFFFFF
        part.effective &= allowed
        part.permitted &= allowed
        part.inheritable = 0
    if libc.capset(ctypes.byref(header), sets) != 0:
        raise TracerError(
            f"capabilities cannot be given up: {os.strerror(ctypes.get_errno())}",
            "a security module may forbid it",
        )
