"""System calls: one row per call, made of its entry and exit.

Calls that open, read, write, seek, duplicate or map files keep some of their arguments. The kernel
logs all arguments with each call, so they cost room in the table only (with eBPF: 48 bytes more
per call in the ring).
"""

from __future__ import annotations

from typing import Any

from tracer.probes.schema import (
    CPU,
    PID,
    SHORT,
    TID,
    AssemblyContext,
    Column,
    Event,
    Probe,
    Scope,
    Table,
    Type,
)

TABLE = Table(
    "syscalls",
    "One row per system call, in the order in which calls ended.",
    (
        Column("ts", Type.INT64, "when the call was entered", "ns", nullable=False),
        CPU,
        PID,
        TID,
        Column(
            "nr",
            Type.INT32,
            "number of the call, in the numbering of 64-bit or of 32-bit programs",
            nullable=False,
        ),
        Column(
            "name",
            Type.TEXT,
            "name of the call; syscall_NR or compat_syscall_NR (32-bit program) if it is unknown",
            longest=SHORT,
        ),
        Column(
            "dur_ns",
            Type.INT64,
            "time in the call; null: it did not return, or events of its thread may be lost within",
            "ns",
        ),
        Column("ret", Type.INT64, "return value, -errno for an error; null if dur_ns is null"),
        Column(
            "fd",
            Type.INT32,
            "descriptor that a call on a file is about (openat: the folder; sendfile, splice and "
            "copy_file_range: the one that is read); null: another call, or a 32-bit program",
        ),
        Column(
            "offset",
            Type.INT64,
            "argument of pread64, pwrite64, preadv, preadv2, pwritev, pwritev2, mmap and fadvise64 "
            "(-1 with preadv2 and pwritev2: the file's position)",
            "bytes",
        ),
        Column(
            "length",
            Type.INT64,
            "argument of read, write, pread64, pwrite64, mmap, sendfile, splice, copy_file_range, "
            "fadvise64. Not bytes: close_range (last descriptor); fcntl (argument of F_DUPFD, "
            "F_DUPFD_CLOEXEC, F_SETFD and F_SETFL; null: another command)",
            "bytes",
        ),
        Column(
            "flags",
            Type.INT64,
            "argument of open, openat, fcntl (command), fadvise64 (advice), clone, dup3 and "
            "mmap; sendfile, splice, copy_file_range: not 0 if a position is given",
        ),
    ),
    example="SELECT name, count(*) calls, sum(dur_ns)/1e9 s FROM syscalls GROUP BY 1 ORDER BY 3",
)


def _assembler(context: AssemblyContext) -> Any:
    from tracer.probes.rows.syscall_pairing import SyscallPairing

    return SyscallPairing(context)


PROBE = Probe(
    "syscalls",
    "system calls of the targets, with time and result",
    TABLE,
    (
        Event("raw_syscalls:sys_enter", "enter", reads=("id", "args")),
        Event("raw_syscalls:sys_exit", "exit", reads=("id", "ret")),
    ),
    Scope.TARGET,
    rate="two events per call",
    assembler=_assembler,
)

FD, OFFSET, LENGTH, FLAGS = range(4)
FCNTL = "fcntl"
FCNTL_NUMBERS = (0, 2, 4, 1030)
"""Commands of fcntl whose argument is a number: F_DUPFD, F_SETFD, F_SETFL, F_DUPFD_CLOEXEC.

Others have a pointer or no argument. Kernel: include/uapi/asm-generic/fcntl.h.
"""
ARGUMENTS: dict[str, tuple[int | None, int | None, int | None, int | None]] = {
    "read": (0, None, 2, None),
    "readv": (0, None, None, None),
    "pread64": (0, 3, 2, None),
    "preadv": (0, 3, None, None),
    "preadv2": (0, 3, None, None),
    "write": (0, None, 2, None),
    "writev": (0, None, None, None),
    "pwrite64": (0, 3, 2, None),
    "pwritev": (0, 3, None, None),
    "pwritev2": (0, 3, None, None),
    "sendfile": (1, None, 3, 2),
    "splice": (0, None, 4, 1),
    "copy_file_range": (0, None, 4, 1),
    "lseek": (0, None, None, None),
    "open": (None, None, None, 1),
    "openat": (0, None, None, 2),
    "openat2": (0, None, None, None),
    "creat": (None, None, None, None),
    "close": (0, None, None, None),
    "close_range": (0, None, 1, 2),
    "dup": (0, None, None, None),
    "dup2": (0, None, None, None),
    "dup3": (0, None, None, 2),
    FCNTL: (0, None, 2, 1),
    "mmap": (4, 5, 1, 3),
    "fadvise64": (0, 1, 2, 3),
    "clone": (None, None, None, 0),
}
"""The place of each column's argument (fd, offset, length, flags) in the calls that keep some.

On 64-bit machines these are the same for all architectures, except for clone's on a few that are
not supported. Kernel: include/linux/syscalls.h.
"""
