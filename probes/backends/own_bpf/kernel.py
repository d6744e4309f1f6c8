"""The system call bpf(2): maps, programs, and where they are attached.

Layout: union bpf_attr in include/uapi/linux/bpf.h. Fields that a call does not name are 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import struct
from pathlib import Path

from tracer.probes.backends.own_bpf.instructions import Code
from tracer.probes.errors import FeatureMissing, PermissionMissing
from tracer.probes.kernel import system_call

_MAP_CREATE, _MAP_UPDATE, _PROG_LOAD, _RAW_TRACEPOINT_OPEN = 0, 2, 5, 17
_ARRAY, _PERF_EVENT_ARRAY = 2, 4
_MMAPABLE = 1 << 10
_TRACEPOINT, TRACING = 5, 26
"""BPF_PROG_TYPE_TRACEPOINT and _TRACING of enum bpf_prog_type."""
RAW_TRACEPOINT = 23
"""BPF_TRACE_RAW_TP of enum bpf_attach_type."""
_LICENSE = b"GPL"
_COMPILES = Path("/proc/sys/net/core/bpf_jit_enable")
_LOG_BYTES = 1 << 16
_MISSES = "recursion_misses:"


def make_array(value_bytes: int, entries: int) -> int:
    """Makes an array whose values are one piece of memory that can be mapped; returns its fd."""
    return _call(
        _MAP_CREATE, struct.pack("=IIIII", _ARRAY, 4, value_bytes, entries, _MMAPABLE), "a map"
    )


def make_perf_event_array(entries: int) -> int:
    """Makes an array of perf events; returns its fd."""
    return _call(_MAP_CREATE, struct.pack("=IIII", _PERF_EVENT_ARRAY, 4, 4, entries), "a map")


def put(array: int, key: int, value: int) -> None:
    """Sets an entry of an array whose values have four bytes."""
    its_key, its_value = ctypes.c_uint32(key), ctypes.c_uint32(value)
    attributes = struct.pack(
        "=IIQQQ", array, 0, ctypes.addressof(its_key), ctypes.addressof(its_value), 0
    )
    _call(_MAP_UPDATE, attributes, "an entry of a map")


def map_array(fd: int, size: int, offset: int = 0) -> mmap.mmap:
    """Maps a part of an array's memory. `offset` is in bytes, whole pages.

    Raises FeatureMissing if the kernel refuses it.
    """
    try:
        return mmap.mmap(fd, size, offset=offset)
    except OSError as error:
        raise FeatureMissing(
            f"{size >> 10} KiB of a BPF map cannot be mapped: {error.strerror}",
            "give a smaller buffer with -b, or use another backend",
        ) from None


def need_compiled_programs() -> None:
    """Raises FeatureMissing if the kernel interprets programs, which takes several times as long.

    A network namespace of its own hides the setting. Programs then count as compiled.
    """
    with contextlib.suppress(OSError):
        if _COMPILES.read_text().strip() == "0":
            raise FeatureMissing(
                "this kernel interprets BPF programs", "sysctl -w net.core.bpf_jit_enable=1"
            )


def try_program() -> None:
    """Loads and unloads a program that does nothing.

    Raises PermissionMissing if the kernel refuses this user, FeatureMissing if it has no BPF.
    """
    code = Code()
    code.end()
    os.close(load(_TRACEPOINT, code.assemble()))


def load(
    kind: int, instructions: bytes, name: bytes = b"", attached: int = 0, type_id: int = 0
) -> int:
    """Loads a program; returns its fd.

    Kernels before 4.15 take no name. `attached` is the place where it will be attached (enum
    bpf_attach_type), `type_id` the BTF id of that place's type. Raises PermissionMissing, or
    FeatureMissing with the verifier's reason.
    """
    code, license_ = (
        ctypes.create_string_buffer(instructions),
        ctypes.create_string_buffer(_LICENSE),
    )

    def attributes(log: ctypes.Array[ctypes.c_char] | None) -> bytes:
        return struct.pack(
            "=IIQQIIQII16sIIIIQIIQII",
            kind,
            len(instructions) // 8,
            ctypes.addressof(code),
            ctypes.addressof(license_),
            int(log is not None),
            _LOG_BYTES if log is not None else 0,
            ctypes.addressof(log) if log is not None else 0,
            *(0, 0, name, 0),
            attached,
            *(0, 0, 0, 0, 0, 0, 0),
            type_id,
        )

    try:
        return _call(_PROG_LOAD, attributes(None), "a program")
    except FeatureMissing:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        try:
            return _call(_PROG_LOAD, attributes(log), "a program")
        except FeatureMissing as error:
            raise FeatureMissing(f"{error.what}{_reason(log.value)}", error.mend) from None


def attach_raw(program: int) -> int:
    """Attaches a program of type TRACING to its tracepoint; returns an fd that keeps it there."""
    return _call(_RAW_TRACEPOINT_OPEN, struct.pack("=QI", 0, program), "a program's tracepoint")


def misses(program: int) -> int:
    """Returns how often the kernel did not run a program because it already ran on the CPU.

    0 where the kernel does not count it: for programs of perf's tracepoints, before Linux 6.7.
    """
    told = Path(f"/proc/self/fdinfo/{program}").read_text()
    return sum(int(line.split()[1]) for line in told.splitlines() if line.startswith(_MISSES))


def _reason(log: bytes) -> str:
    """Returns the verifier's reason: the last line before its count of instructions."""
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith("processed ")]
    return f"; {reasons[-1][:200]}" if reasons else ""


def _call(command: int, attributes: bytes, what: str) -> int:
    held = ctypes.create_string_buffer(attributes, len(attributes))
    fd = system_call("bpf", ctypes.c_int(command), held, ctypes.c_uint(len(attributes)))
    if fd >= 0:
        return fd
    failure = ctypes.get_errno()
    if (failure in (errno.EPERM, errno.EACCES) and command != _PROG_LOAD) or failure == errno.EPERM:
        raise PermissionMissing(
            "this user is not allowed to load BPF programs",
            "run as root, or with CAP_BPF and CAP_PERFMON",
        )
    raise FeatureMissing(
        f"the kernel refuses {what} of BPF: {os.strerror(failure)}",
        "use a kernel with CONFIG_BPF_SYSCALL=y, or another backend",
    )
