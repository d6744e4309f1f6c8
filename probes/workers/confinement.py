"""A process gives up, for good, what it does not need to read bytes and to answer.

It becomes nobody's, without capabilities and without a way to others; it cannot open a file,
connect or start a program; it may take so much more memory and so much processor time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

from tracer.probes.capabilities import keep_capabilities
from tracer.probes.workers.system_calls import keep_few

_NOBODY = 65534
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_MOST_OPEN = 256


@dataclass(frozen=True)
class Limits:
    """memory_bytes  of address space, beyond what the process has when it is confined
    cpu_s         of processor time from its start on; SIGXCPU ends it
    """

    memory_bytes: int
    cpu_s: int


def confine(limits: Limits) -> None:
    """Confine this process, which must have one thread. Raises TracerError or OSError.

    Where it has not the right to become nobody it stays who it is, without capabilities. Where
    the kernel filters no system calls, the rest holds.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    _lower(resource.RLIMIT_NOFILE, _MOST_OPEN)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + limits.memory_bytes,) * 2)
    with contextlib.suppress(PermissionError, OSError):  # without CAP_SETGID, CAP_SETUID
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    keep_capabilities(0)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    _prctl(_PR_SET_DUMPABLE, 0)  # nobody else's processes may look into it
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    keep_few()


def _lower(limit: int, most: int) -> None:
    _, hard = resource.getrlimit(limit)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(limit, (most, most))


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
