"""The kinds of users that docs/privileges.md compares, told apart by what the kernel lets them do.

No kind is told by a user's number: root in a container may do less than a user with capabilities.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from tracer.probes.backends.choice import EBPF, FTRACE, PERF
from tracer.probes.libc import libc

OTHERS, INODES = "other users' processes", "files by inode"
"""Rights beside those that a backend needs: see `reads_others` and `opens_inodes`."""

_LAST_ID = 0xFFFFFFFE
"""The last id of a user or group; the next one stands for none."""

NEEDED = ("bpf", "dac_read_search", "ipc_lock", "perfmon", "sys_ptrace")
"""The capabilities with which a user records almost all that root does, in setpriv's words."""


def with_capabilities(names: Collection[str] = NEEDED) -> str:
    """Returns the command line, without the program, that gives its user capabilities alone."""
    listed = ",".join(f"+{name}" for name in names)
    return (
        "sudo setpriv --reuid=$(id -u) --regid=$(id -g) --init-groups "
        f"--inh-caps={listed} --ambient-caps={listed}"
    )


class Kind(NamedTuple):
    """A kind of user: a column of docs/privileges.md."""

    name: str
    needs: tuple[frozenset[str], ...]
    """Backends and rights. Of each set, the user has at least one."""


KINDS = (
    Kind("root", (frozenset({FTRACE}), frozenset({OTHERS}), frozenset({INODES}))),
    Kind(
        "a user with capabilities",
        (frozenset({EBPF, PERF}), frozenset({OTHERS}), frozenset({INODES})),
    ),
    Kind("root without capabilities", (frozenset({FTRACE}),)),
    Kind("a user who may open perf events", (frozenset({EBPF, PERF}),)),
    Kind("a user without rights", ()),
)
"""The kinds, the one with the most rights first."""


def kind_of(rights: Collection[str]) -> Kind:
    """Returns the kind of a user with these backends and rights."""
    return next(kind for kind in KINDS if all(needed & set(rights) for needed in kind.needs))


def reads_others() -> bool:
    """Returns whether this user can look into other users' processes.

    The kernel protects a child that is not dumpable from its own user as it does from others.
    """
    told, tells = os.pipe()
    waits, ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
            os.write(tells, b"r")
            os.close(ends)
            os.read(waits, 1)  # until the parent closes its end, or dies
        finally:
            os._exit(0)
    try:
        os.read(told, 1)
        return _has_program(pid)
    finally:
        os.close(ends)
        os.waitpid(pid, 0)
        for fd in (told, tells, waits):
            os.close(fd)


def _has_program(pid: int) -> bool:
    # With CAP_PERFMON alone, newer kernels also show the mappings, but not this link.
    try:
        Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        return False
    return True


_PR_SET_DUMPABLE = 4
"""include/uapi/linux/prctl.h"""
_ANY_HANDLE = struct.pack("=Ii8x", 8, 1)
"""A struct file_handle that leads to no file."""


def opens_inodes() -> bool:
    """Returns whether this user may open files by their inode numbers.

    The kernel checks this before it looks at the handle, so no file is opened.
    """
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        handle = ctypes.create_string_buffer(_ANY_HANDLE, len(_ANY_HANDLE))
        opened = libc().open_by_handle_at(fd, handle, os.O_PATH | os.O_CLOEXEC)
        failure = ctypes.get_errno()
        if opened >= 0:
            os.close(opened)
        return opened >= 0 or failure != errno.EPERM
    finally:
        os.close(fd)


def caller_of_sudo() -> tuple[int, int] | None:
    """Returns (uid, gid) of the caller of sudo, by its variables; None if they name none."""
    ids = [os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID")]
    if os.geteuid() != 0 or not all(re.fullmatch("[0-9]{1,10}", one) for one in ids):
        return None
    uid, gid = map(int, ids)
    return (uid, gid) if max(uid, gid) <= _LAST_ID else None
