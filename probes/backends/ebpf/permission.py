"""Tries whether this user may load BPF programs. It takes no compiler, so it takes no time."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from tracer.probes.errors import FeatureMissing, PermissionMissing
from tracer.probes.kernel import system_call

_PROG_LOAD = 5
_TRACEPOINT = 5
_ATTRIBUTES = struct.Struct("=IIQQIIQII")
"""The first fields of union bpf_attr for BPF_PROG_LOAD, up to prog_flags."""
_RETURN_0 = struct.pack("=BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0)
"""r0 = 0; exit. Layout: struct bpf_insn in include/uapi/linux/bpf.h."""


def try_program() -> None:
    """Loads and unloads a program that does nothing.

    Raises PermissionMissing if the kernel refuses this user, FeatureMissing if it has no BPF.
    """
    code, license_ = ctypes.create_string_buffer(_RETURN_0), ctypes.create_string_buffer(b"GPL")
    attributes = ctypes.create_string_buffer(
        _ATTRIBUTES.pack(
            _TRACEPOINT,
            len(_RETURN_0) // 8,
            ctypes.addressof(code),
            ctypes.addressof(license_),
            0,  # no log
            0,
            0,
            0,  # the version of the kernel, which tracepoints' programs do not state
            0,
        )
    )
    fd = system_call("bpf", ctypes.c_int(_PROG_LOAD), attributes, ctypes.c_uint(_ATTRIBUTES.size))
    if fd >= 0:
        os.close(fd)
        return
    failure = ctypes.get_errno()
    if failure in (errno.EPERM, errno.EACCES):
        raise PermissionMissing(
            "this user is not allowed to load BPF programs",
            "run as root, or with CAP_BPF and CAP_PERFMON",
        )
    raise FeatureMissing(
        f"this kernel loads no BPF programs: {os.strerror(failure)}",
        "use one with CONFIG_BPF_SYSCALL=y, or another backend",
    )
