"""The features of this kernel and machine. Features are looked for; versions are never compared."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import re
import time
from functools import cache
from pathlib import Path
from typing import Any

from tracer.probes.errors import FeatureMissing, PermissionMissing
from tracer.probes.libc import libc
from tracer.probes.proc import read_mounts, read_stat
from tracer.probes.text import shell_word

_MOUNT = "mount -t tracefs nodev /sys/kernel/tracing"
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_A_FILE = "events/header_page"
"""A file of tracefs with the mode of all those that a recording reads. Others may list folders."""


def need_process_numbers_of_events() -> None:
    """Raises FeatureMissing if this process sees other process numbers than events have.

    Events have the numbers of the first PID namespace. The inode of that one never changes:
    include/uapi/linux/nsfs.h.
    """
    try:
        inode = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return  # No /proc, or no PID namespaces in this kernel.
    if inode != _FIRST_PID_NAMESPACE:
        raise FeatureMissing(
            "the tracer is in a PID namespace of its own, and the kernel's events have other "
            "process numbers than it sees",
            "run it in the host's (docker run --pid=host)",
        )


def find_tracefs() -> Path | None:
    """Returns the mount point of tracefs, or None."""
    found = (mount for mount in read_mounts() if mount.kind == b"tracefs")
    return next((Path(os.fsdecode(mount.path)) for mount in found), None)


def tracefs(writable: bool = True) -> Path:
    """Returns the mount point of tracefs; with `writable`, one in which instances can be made.

    Raises FeatureMissing if tracefs is not mounted, PermissionMissing if this user may not read it.
    """
    path = find_tracefs()
    if path is None:
        if not Path("/sys/kernel/tracing").is_dir():
            raise FeatureMissing("this kernel has no tracefs", "use one with CONFIG_FTRACE=y")
        if os.geteuid() != 0:
            raise PermissionMissing(
                "tracefs is not mounted, and only root can mount it", f"sudo {_MOUNT}"
            )
        raise FeatureMissing("tracefs is not mounted", _MOUNT)
    if not writable:
        if _can_be_read(path / _A_FILE):
            return path
        raise PermissionMissing(
            f"this user may not read {path}",
            "run as root (sudo), with CAP_DAC_READ_SEARCH, or let a group of this user's read it: "
            f"sudo mount -o remount,mode=750,gid=GROUP {shell_word(path)}",
        )
    # Capabilities count for the effective user only.
    if os.access(path / "instances", os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        return path
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise FeatureMissing(
            f"{path} cannot be written to",
            f"mount it for writing: mount -o remount,rw {shell_word(path)}",
        )
    raise PermissionMissing(
        f"this user may not write to {path}",
        "run as root (sudo), or see what works with less: tracer doctor, docs/privileges.md",
    )


def _can_be_read(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_IPC_LOCK": 14,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""The capabilities that matter here, with their bits: include/uapi/linux/capability.h."""


def process_start_time(pid: int) -> int | None:
    """Returns the start time of a process in clock ticks since boot; None if the process is gone.

    The pid alone does not identify a process, because pids are reused; pid and start time do.
    """
    stat = read_stat(pid)
    return None if stat is None else stat.start_time


def process_start_ns(pid: int) -> int | None:
    """Returns the start of a process in ns of CLOCK_MONOTONIC; None if the process is gone.

    If the machine slept since then, the result is too early by the time it slept.
    """
    ticks = process_start_time(pid)
    if ticks is None:
        return None
    slept = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK") - max(0, slept)


def process_alive(pid: int, start_time: int | None) -> bool:
    """Returns whether a thread of the same process still runs (a zombie has none)."""
    stat = None if start_time is None else read_stat(pid)
    return stat is not None and stat.start_time == start_time and not stat.ended


def boot_id() -> str:
    """Returns the kernel's random id of this boot; "" if it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def jiffies() -> tuple[int, int] | None:
    """Returns (jiffies, ns of CLOCK_MONOTONIC) at the same moment; None if they are not known."""
    try:
        text = Path("/proc/timer_list").read_text(errors="replace")
    except OSError:
        return None
    value = re.search(r"^jiffies:\s*(\d+)", text, re.MULTILINE)
    now = re.search(r"^now at (\d+) nsecs", text, re.MULTILINE)
    return (int(value.group(1)), int(now.group(1))) if value and now else None


_MAX_SYSCALL = 1024
_COMPAT_ARCHS = {"x86_64": 0x40000003, "aarch64": 0x40000028}
"""The 32-bit architecture whose programs a machine also runs: SCMP_ARCH_X86, SCMP_ARCH_ARM."""


SYSCALL_ARCHS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Architectures, as uname(2) names them, whose calls can be named: SCMP_ARCH_X86_64, _AARCH64."""


@cache
def syscall_names() -> dict[int, str]:
    """Returns the system call numbers of this machine and their names.

    libseccomp knows the calls of every architecture; the C library's header adds newer calls. A
    number that neither knows is absent.
    """
    names = _from_header()
    names.update(_from_libseccomp())
    return dict(sorted(names.items()))


@cache
def syscall_names_of(machine: str) -> dict[int, str]:
    """Returns the system call numbers of an architecture, as uname(2) names it, and their names.

    The result is empty for an architecture that is neither this machine's nor in SYSCALL_ARCHS, or
    without libseccomp.
    """
    if machine == platform.machine():
        return syscall_names()
    arch = SYSCALL_ARCHS.get(machine)
    return {} if arch is None else _from_libseccomp(arch)


def system_call(name: str, *arguments: Any) -> int:
    """Makes a system call that neither Python nor the C library offers; returns its result.

    If it is negative, `ctypes.get_errno()` has the reason. Raises FeatureMissing if the call's
    number is not known.
    """
    number = next((nr for nr, known in syscall_names().items() if known == name), None)
    if number is None:
        raise FeatureMissing(
            f"the number of the system call {name} is not known", "apt-get install libseccomp2"
        )
    syscall = libc().syscall
    syscall.restype = ctypes.c_long
    return int(syscall(ctypes.c_long(number), *arguments))


@cache
def compat_syscall_names() -> dict[int, str]:
    """Returns the numbers and names of the calls that 32-bit programs make on this machine.

    The result is empty if the machine runs no 32-bit programs, or without libseccomp.
    """
    arch = _COMPAT_ARCHS.get(platform.machine())
    return {} if arch is None else _from_libseccomp(arch)


def _from_libseccomp(arch: int | None = None) -> dict[int, str]:
    """Returns libseccomp's calls of an architecture (SCMP_ARCH_*). None: this machine's."""
    library = ctypes.util.find_library("seccomp") or "libseccomp.so.2"
    try:
        seccomp = ctypes.CDLL(library)
        libc = ctypes.CDLL(None)
    except OSError:
        return {}
    resolve = seccomp.seccomp_syscall_resolve_num_arch
    resolve.argtypes = [ctypes.c_uint32, ctypes.c_int]
    resolve.restype = ctypes.c_void_p
    seccomp.seccomp_arch_native.restype = ctypes.c_uint32
    libc.free.argtypes = [ctypes.c_void_p]
    arch = seccomp.seccomp_arch_native() if arch is None else arch
    names = {}
    for number in range(_MAX_SYSCALL):
        pointer = resolve(arch, number)
        if pointer:
            value = ctypes.cast(pointer, ctypes.c_char_p).value
            libc.free(pointer)
            if value:
                names[number] = value.decode("ascii", "replace")
    return names


def _from_header() -> dict[int, str]:
    triplet = f"{platform.machine()}-linux-gnu"
    for header in (
        f"/usr/include/{triplet}/asm/unistd_64.h",
        "/usr/include/asm/unistd_64.h",
        "/usr/include/asm-generic/unistd.h",
    ):
        try:
            text = Path(header).read_text(errors="replace")
        except OSError:
            continue
        found = re.findall(r"^#define\s+__NR_(\w+)\s+(\d+)\s*$", text, re.MULTILINE)
        return {int(number): name for name, number in found if int(number) < _MAX_SYSCALL}
    return {}
