"""The perf events that are opened, and their fields. Source: include/uapi/linux/perf_event.h."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from enum import Enum
from pathlib import Path

from tracer.probes.errors import FeatureMissing, PermissionMissing, TracerError
from tracer.probes.kernel import system_call

_TYPE_SOFTWARE, _TYPE_TRACEPOINT = 1, 2
MINOR_FAULTS, MAJOR_FAULTS, DUMMY, BPF_OUTPUT = 5, 6, 9, 10
"""DUMMY never happens: it tells whether events can be opened. BPF_OUTPUT happens when a BPF program
says so."""
ENABLE, DISABLE = 0x2400, 0x2401
"""Numbers of ioctl: PERF_EVENT_IOC_*."""

_IP, _TID, _TIME, _ADDRESS, _CPU, _RAW = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 7, 1 << 10
_CALLCHAIN = 1 << 5
_FORMAT_LOST = 1 << 4

_DISABLED, _EXCLUDE_USER, _MMAP, _COMM, _TASK = 1 << 0, 1 << 4, 1 << 8, 1 << 9, 1 << 13
_MMAP_DATA, _SAMPLE_ID_ALL, _MMAP2, _COMM_EXEC, _USE_CLOCKID = (
    1 << 17,
    1 << 18,
    1 << 23,
    1 << 24,
    1 << 25,
)
_WATERMARK = 1 << 14
_NO_KERNEL_CHAIN, _NO_USER_CHAIN = 1 << 21, 1 << 22
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_MOST_FOR_PERFMON = 2
"""The largest value of kernel.perf_event_paranoid in Linux itself, see Documentation/admin-guide/
sysctl/kernel.rst. Distributions have larger ones, which refuse users with CAP_PERFMON, too."""
_FD_CLOEXEC = 1 << 3


class Chain(Enum):
    """The call chain in a tracepoint's samples."""

    NONE = "none"
    """The samples have no place for one."""
    EMPTY = "empty"
    """A chain without entries, so that all samples of a ring have the same layout."""
    KERNEL = "kernel"
    """The functions of the kernel."""


_CHAINS = {
    Chain.NONE: (0, 0),
    Chain.EMPTY: (_CALLCHAIN, _NO_KERNEL_CHAIN | _NO_USER_CHAIN),
    Chain.KERNEL: (_CALLCHAIN, _NO_USER_CHAIN),
}
"""Bits of the sample's type and of the event's flags."""


class _Attributes(ctypes.Structure):
    """struct perf_event_attr, as of PERF_ATTR_SIZE_VER5: the kernel takes shorter ones."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64),
        ("branch_sample_type", ctypes.c_uint64),
        ("sample_regs_user", ctypes.c_uint64),
        ("sample_stack_user", ctypes.c_uint32),
        ("clockid", ctypes.c_int32),
        ("sample_regs_intr", ctypes.c_uint64),
        ("aux_watermark", ctypes.c_uint32),
        ("sample_max_stack", ctypes.c_uint16),
        ("reserved", ctypes.c_uint16),
    )


def open_event(
    config: int, cpu: int, mappings: bool, user: bool = True, wake_bytes: int = 0
) -> int:
    """A perf event of every process on one CPU, switched off; returns its fd.

    With `mappings` its ring also holds mappings, forks and execs; without `user` only what
    happens in kernel mode counts. `wake_bytes` in the ring wake its reader. Raises
    PermissionMissing or FeatureMissing.
    """
    flags = 0 if user else _EXCLUDE_USER
    if mappings:
        flags |= _MMAP | _MMAP_DATA | _MMAP2 | _COMM | _COMM_EXEC | _TASK
    sample = _IP | _TID | _TIME | _ADDRESS | _CPU
    return _open(_TYPE_SOFTWARE, config, cpu, sample, flags, wake_bytes)


def open_tracepoint(number: int, cpu: int, chain: Chain = Chain.NONE) -> int:
    """A tracepoint by its id, of every process on one CPU, switched off; returns its fd.

    A sample has the event's own bytes, and before them the call chain that `chain` asks for.
    Raises PermissionMissing or FeatureMissing.
    """
    more, flags = _CHAINS[chain]
    return _open(_TYPE_TRACEPOINT, number, cpu, _TID | _TIME | _CPU | _RAW | more, flags, 0)


def _open(kind: int, config: int, cpu: int, sample: int, flags: int, wake_bytes: int) -> int:
    for read_format in (_FORMAT_LOST, 0):  # counts of lost records: commit 119a784c8127 (6.0)
        attributes = _Attributes(
            type=kind,
            size=ctypes.sizeof(_Attributes),
            config=config,
            sample_period=1,
            sample_type=sample,
            read_format=read_format,
            flags=_DISABLED | _SAMPLE_ID_ALL | _USE_CLOCKID | _WATERMARK | flags,
            wakeup=wake_bytes,
            clockid=time.CLOCK_MONOTONIC,
        )
        fd = _perf_event_open(attributes, cpu)
        if fd >= 0:
            return fd
        failure = ctypes.get_errno()
        if failure != errno.EINVAL:
            break
    raise _why_not(failure)


def perf_events() -> bool | None:
    """Returns whether perf events of the machine can be opened; None if this user may not try."""
    try:
        os.close(open_event(DUMMY, 0, mappings=True))
    except PermissionMissing:
        return None
    except FeatureMissing:
        return False
    return True


def _perf_event_open(attributes: _Attributes, cpu: int) -> int:
    everybody, no_group = ctypes.c_int(-1), ctypes.c_int(-1)
    return system_call(
        "perf_event_open",
        ctypes.byref(attributes),
        everybody,
        ctypes.c_int(cpu),
        no_group,
        ctypes.c_ulong(_FD_CLOEXEC),
    )


def _why_not(failure: int) -> TracerError:
    if failure in (errno.EPERM, errno.EACCES):
        return PermissionMissing(
            "this user may not open perf events of the whole machine", _mend(_paranoid())
        )
    return FeatureMissing(
        f"this kernel has no perf software events: {os.strerror(failure)}",
        "a kernel with CONFIG_PERF_EVENTS",
    )


def _paranoid() -> int | None:
    try:
        return int(_PARANOID.read_text())
    except (OSError, ValueError):
        return None


def _mend(paranoid: int | None) -> str:
    if paranoid is not None and paranoid > _MOST_FOR_PERFMON:
        perfmon = (
            f"with CAP_PERFMON after `sysctl -w kernel.perf_event_paranoid={_MOST_FOR_PERFMON}` "
            f"(it is {paranoid}: kernels that know this value, as Debian's and Ubuntu's do, want "
            "CAP_SYS_ADMIN then)"
        )
    else:
        perfmon = "with CAP_PERFMON"
    return f"run as root, {perfmon}, or after `sysctl -w kernel.perf_event_paranoid=-1`"
