"""The few system calls that a confined process keeps: memory, and messages on what it has open.

Kernel: Documentation/userspace-api/seccomp_filter.rst, include/uapi/linux/{seccomp,filter,audit}.h.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

CALLS = {
    "x86_64": {
        "read": 0, "write": 1, "close": 3, "fstat": 5, "lseek": 8, "mmap": 9, "mprotect": 10,
        "munmap": 11, "brk": 12, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17,
        "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32, "setitimer": 38, "getpid": 39,
        "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "exit": 60, "fcntl": 72,
        "gettid": 186, "futex": 202, "clock_gettime": 228, "exit_group": 231, "tgkill": 234,
        "newfstatat": 262, "getrandom": 318,
    },
    "aarch64": {
        "dup": 23, "fcntl": 25, "close": 57, "lseek": 62, "read": 63, "write": 64, "pread64": 67,
        "newfstatat": 79, "fstat": 80, "exit": 93, "exit_group": 94, "futex": 98, "setitimer": 103,
        "clock_gettime": 113, "sched_yield": 124, "tgkill": 131, "rt_sigprocmask": 135,
        "rt_sigreturn": 139, "getpid": 172, "gettid": 178, "sendto": 206, "recvfrom": 207,
        "sendmsg": 211, "recvmsg": 212, "brk": 214, "munmap": 215, "mremap": 216, "mmap": 222,
        "mprotect": 226, "madvise": 233, "getrandom": 278,
    },
}  # fmt: skip
"""The calls that are left, with their numbers by machine; any other is refused."""

_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
"""Offsets in struct seccomp_data."""
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def keep_few() -> bool:
    """Leave this thread, for good, the calls of `CALLS`; every other one fails with EPERM.

    The thread must have promised to gain no privileges (PR_SET_NO_NEW_PRIVS). Returns whether it
    is so: not where the kernel has no filters, nor on a machine whose numbers are not listed.
    """
    machine = platform.machine()
    if machine not in CALLS:
        return False
    numbers = sorted(CALLS[machine].values())
    refuse = _REFUSE | errno.EPERM
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_IF_EQUAL, 1, 0, _AUDIT_ARCHITECTURE[machine]),
        (_RETURN, 0, 0, refuse),
        (_LOAD, 0, 0, _NUMBER),
        *((_JUMP_IF_EQUAL, len(numbers) - at, 0, n) for at, n in enumerate(numbers)),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    libc = ctypes.CDLL(None, use_errno=True)
    given = ctypes.byref(_Program(len(program), code))
    libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
    return bool(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, given) == 0)
