"""The capabilities of this thread. They can be dropped, but never regained."""

from __future__ import annotations

import ctypes
import os

from tracer.probes.errors import TracerError

_VERSION_3 = 0x20080522
"""Two words of capabilities: include/uapi/linux/capability.h."""


_PR_CAP_AMBIENT, _CLEAR_ALL = 47, 4
"""include/uapi/linux/prctl.h"""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def keep_capabilities(mask: int) -> None:
    """Drops every capability of this thread, and of the threads that it starts, except those of
    `mask`.

    Programs that the thread executes as root regain theirs. Those of another user get the ambient
    capabilities that are left. Raises TracerError if the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header = _Header(_VERSION_3, 0)
    sets = (_Sets * 2)()
    if libc.capget(ctypes.byref(header), sets) != 0:
        raise TracerError(f"capabilities cannot be read: {os.strerror(ctypes.get_errno())}")
    for word, part in enumerate(sets):
        allowed = mask >> (32 * word) & 0xFFFFFFFF
        part.effective &= allowed
        part.permitted &= allowed
        part.inheritable &= allowed
    if libc.capset(ctypes.byref(header), sets) != 0:
        raise TracerError(
            f"capabilities cannot be dropped: {os.strerror(ctypes.get_errno())}",
            "a security module may forbid it",
        )


def clear_ambient() -> None:
    """Lets programs that this thread executes as another user than root have no capabilities."""
    nothing = ctypes.c_ulong(0)
    # A kernel without ambient capabilities (before 4.3) refuses, and has none to clear.
    ctypes.CDLL(None).prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(_CLEAR_ALL), nothing, nothing, nothing)
