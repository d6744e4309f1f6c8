"""Names of system calls, grouped by the kind of wait.

32-bit programs have names of their own for some calls, above all for those with times of 64 bits.
They count as those of 64-bit programs do, except `socketcall` and `ipc`, whose names do not tell
what they do.
"""

from __future__ import annotations

_OF_32_BITS = {
    **{
        name: (f"{name}_time64",)
        for name in (
            *("futex", "clock_nanosleep", "ppoll", "pselect6", "io_pgetevents", "semtimedop"),
            *("rt_sigtimedwait", "recvmmsg", "mq_timedreceive", "mq_timedsend"),
        )
    },
    **{
        name: (f"{name}64",)
        for name in ("fcntl", "truncate", "ftruncate", "stat", "lstat", "sendfile")
    },
    "newfstatat": ("fstatat64",),
    "select": ("_newselect",),
    "wait4": ("waitpid",),
    "rt_sigsuspend": ("sigsuspend",),
    "rt_sigreturn": ("sigreturn",),
    "sendto": ("send",),
    "recvfrom": ("recv",),
}
"""Names of calls in 32-bit programs (kernel: syscall_32.tbl of x86, syscall.tbl of arm)."""


def _calls(*names: str) -> tuple[str, ...]:
    """Returns the names of calls, with those that they have in 32-bit programs."""
    also = (other for name in names for other in _OF_32_BITS.get(name, ()))
    return tuple(dict.fromkeys((*names, *also)))


SYNC_FILE = ("fsync", "fdatasync", "sync_file_range", "sync_file_range2", "msync")
SYNC_ALL = ("sync", "syncfs")
SYNC = (*SYNC_FILE, *SYNC_ALL)
"""Calls that wait until data are on the disk: SYNC_FILE for one file, SYNC_ALL for all files."""

UNMOUNT = ("umount", "umount2")
"""Calls that unmount. The kernel writes out a file system after its last such call returned.

It does so before the thread runs on in user mode (kernel: cleanup_mnt as task work).
"""

AIO = _calls("io_getevents", "io_pgetevents")
"""Calls that wait for asynchronous transfers of disks."""
URING = "io_uring_enter"
"""The call that waits for transfers of disks, for sockets, or for anything else."""

WRITE = _calls(
    *("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range"),
    *("splice", *AIO),
)
"""Calls that may be throttled for dirtying pages, or wait for a page, a journal or a device."""

SUBMIT = ("io_submit", URING)
"""Calls that begin asynchronous transfers. They may be throttled or wait like those in WRITE."""

ENDINGS = _calls(
    *("close", "rename", "renameat", "renameat2", "truncate", "ftruncate", "fallocate"),
    *("unlink", "unlinkat"),
)
"""Calls in which a file system may write out a rewritten file (ext4: auto_da_alloc)."""

READ = ("read", "pread64", "readv", "preadv", "preadv2")

LOOKUPS = _calls(
    *("open", "openat", "openat2", "stat", "lstat", "newfstatat", "statx", "access", "faccessat"),
    *("faccessat2", "getdents", "getdents64", "readlink", "readlinkat"),
)
"""Calls that read what a file system says of a file, and not its content."""

IDLE = _calls(
    *("futex", "futex_wait", "futex_waitv", "sched_yield", "pause", "restart_syscall"),
    *("nanosleep", "clock_nanosleep", "poll", "ppoll", "select", "pselect6"),
    *("epoll_wait", "epoll_pwait", "epoll_pwait2", "wait4", "waitid", "vfork", "clone", "clone3"),
    *("rt_sigtimedwait", "rt_sigsuspend", "rt_sigreturn", "exit", "exit_group"),
    *("accept", "accept4", "connect", "recvfrom", "recvmsg", "recvmmsg"),
    *("sendto", "sendmsg", "sendmmsg", "msgrcv", "msgsnd", "mq_timedreceive", "mq_timedsend"),
    *("semop", "semtimedop"),
)
"""Calls that wait only for other threads, for a time to pass, or for a network."""

LOCK = _calls("futex", "futex_wait", "futex_waitv", "flock")
MAYBE_LOCK = _calls("fcntl")
"""Calls of many uses that sleep for a lock of a file. None of their other uses waits."""
MAYBE_IPC = (
    *("open", "openat", "openat2", "creat"),
    *("pread64", "preadv", "pwrite64", "pwritev", "copy_file_range"),
)
"""Calls on files that wait for another process if a thread ends an interruptible sleep.

It opened the other end of a FIFO, or serves a file system in user space.
"""
TIMER = _calls("nanosleep", "clock_nanosleep")
CHILD = _calls("wait4", "waitid", "vfork", "clone", "clone3")
POLL = _calls(
    *("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"),
    *("rt_sigtimedwait", "recvmmsg", "mq_timedreceive", "mq_timedsend", "semtimedop"),
)
"""Calls that wait for another process, with a time limit."""
IPC = _calls(
    *POLL, *(name for name in (*READ, *WRITE) if name not in (*AIO, *MAYBE_IPC)),
    *("vmsplice", "tee"),
    *("accept", "accept4", "connect", "recvfrom", "recvmsg", "sendto", "sendmsg", "sendmmsg"),
    *("msgrcv", "msgsnd", "semop", "rt_sigsuspend", "pause"),
)  # fmt: skip
"""Calls that wait for another process, if the sleep can be interrupted."""

SENDING = _calls(
    *("sendto", "sendmsg", "sendmmsg", "write", "writev", "pwritev2", "sendfile", "splice"),
    *("connect", "shutdown", "close", "exit", "exit_group", "io_uring_enter"),
)
"""Calls that may send to a local socket. The kernel delivers it at once, as in an interrupt."""
RECEIVING = _calls(
    *("recvfrom", "recvmsg", "recvmmsg", "read", "readv", "preadv2", "splice", "io_uring_enter"),
)
"""Calls that may make room in a local socket, whose sender is then woken in the same way."""
