"""The machine at the time of the recording: hardware, kernel, mounts, disks, threads."""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import re
import resource
import stat
import sys
from collections.abc import Collection, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from tracer.probes.kernel import boot_id
from tracer.probes.proc import KTHREADD, MountPoint, lines, read_mounts, read_stat
from tracer.session.mount_tree import device_of, mount_of
from tracer.store.manifest_parts import Btrfs, Disk, Host, Kernel, Mount, Tool
from tracer.store.names import escaped
from tracer.version import VERSION

_TRIED_PAGES = 7
_VM = (
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_expire_centisecs",
    "dirty_ratio",
    "dirty_writeback_centisecs",
    "dirtytime_expire_seconds",
    "laptop_mode",
    "swappiness",
)

_UPPER = re.compile(rb"(?:^|,)upperdir=(/[^,]*)")
"""Matches an overlay's upper folder in its mount options."""


def tool() -> Tool:
    """Returns the versions of the software that writes the trace."""
    versions = {}
    for name in ("numba", "numpy", "pyarrow"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "name": "traintrace",
        "version": VERSION,
        "python": platform.python_version(),
        "packages": versions,
    }


def host() -> Host:
    """Returns the machine's facts for the manifest."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "hostname": platform.node(),
        "machine": platform.machine(),
        "byteorder": sys.byteorder,
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "memory_bytes": memory,
        "page_size": os.sysconf("SC_PAGE_SIZE"),
        "boot_id": boot_id(),
    }


def _cpu_model() -> str | None:
    """Returns the first CPU's model from /proc/cpuinfo; None if absent, as on most Arm."""
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip() or None
    return None


def kernel() -> Kernel:
    """Returns the kernel's release and version, and how it counts faults."""
    return {
        "release": platform.release(),
        "version": platform.version(),
        "retries_are_major": _retries_are_major(),
    }


def _retries_are_major() -> bool:
    """Returns whether the kernel counts a first write to shared memory as a major fault.

    Kernels before 6.0 do: they let go of the memory's lock to slow down a writer of too many dirty
    pages, and try the fault again (fault_dirty_shared_page and mm_account_fault in mm/memory.c).
    """
    with mmap.mmap(-1, _TRIED_PAGES * mmap.PAGESIZE) as shared:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
        for page in range(_TRIED_PAGES):
            shared[page * mmap.PAGESIZE] = 1
        return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt - before >= _TRIED_PAGES


def vm() -> dict[str, int]:
    """Returns the sysctls that control write-back; sysctls that this kernel lacks are absent."""
    found = {}
    for name in _VM:
        with contextlib.suppress(OSError, ValueError):
            found[name] = int(Path("/proc/sys/vm", name).read_text())
    return found


def mounts() -> list[Mount]:
    """Returns the mounted file systems with their devices (MAJOR:MINOR)."""
    found: list[Mount] = []
    mounted = read_mounts()
    for mount in mounted:
        found.append(
            {
                "dev": mount.dev,
                "path": _text(mount.path),
                "type": _text(mount.kind),
                "source": _text(mount.source),
            }
        )
        upper = _UPPER.search(mount.options) if mount.kind == b"overlay" else None
        if upper and (below := mount_of(mounted, upper[1])) is not None:
            found[-1]["on"] = below.dev
    return found


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def btrfs() -> list[Btrfs]:
    """Returns the mounted btrfs file systems. Events do not name them by a block device.

    Kernel: fs/btrfs/sysfs.c.
    """
    mounted = read_mounts()
    numbers = {
        _place_of(mount.source, mounted).dev: mount.dev
        for mount in mounted
        if mount.kind == b"btrfs"
    }
    found: list[Btrfs] = []
    for path in sorted(Path("/sys/fs/btrfs").glob("*-*-*-*-*")):
        with contextlib.suppress(OSError):
            disks = sorted((path / "devices").iterdir())
            devices = [(disk / "dev").read_text().strip() for disk in disks]
            found.append(
                {
                    "fsid": path.name,
                    "bdi": (path / "bdi").readlink().name,
                    "dev": next((numbers[dev] for dev in devices if dev in numbers), ""),
                    "devices": devices,
                }
            )
    return found


def disks() -> list[Disk]:
    """Returns the block devices: number, name, scheduler, and the devices below."""
    found: list[Disk] = []
    mounted = read_mounts()
    for path in sorted(Path("/sys/class/block").glob("*")):
        disk: Disk = {"name": path.name}
        with contextlib.suppress(OSError):
            disk["dev"] = (path / "dev").read_text().strip()
            disk["bytes"] = int((path / "size").read_text()) * 512
        with contextlib.suppress(OSError):
            scheduler = (path / "queue/scheduler").read_text()
            active = re.search(r"\[([^\]]+)\]", scheduler)
            disk["scheduler"] = active[1] if active else scheduler.strip()
            disk["rotational"] = (path / "queue/rotational").read_text().strip() == "1"
            disk["write_cache"] = (path / "queue/write_cache").read_text().strip()
            disk["read_ahead_kb"] = int((path / "queue/read_ahead_kb").read_text())
        with contextlib.suppress(OSError):
            if (path / "partition").exists():
                disk["partition_of"] = (path.resolve().parent / "dev").read_text().strip()
                disk["start"] = int((path / "start").read_text())
        with contextlib.suppress(OSError):
            backing = (path / "loop/backing_file").read_bytes().removesuffix(b"\n")
            disk["backing_file"] = escaped(backing)
            below = _place_of(backing, mounted)
            if below.dev:
                disk["on"] = [below.dev]
            if below.ino is not None or below.is_device:
                disk["backing_ino"] = below.ino
            if offset := int((path / "loop/offset").read_text()) // 512:
                disk["backing_offset"] = offset
        with contextlib.suppress(OSError):
            if (behind := behind_cache(path)) is not None:
                disk["backing_dev"], disk["backing_offset"] = behind
        slaves = sorted(slave.name for slave in (path / "slaves").glob("*"))
        if slaves:
            disk["on"] = [
                (Path("/sys/class/block") / slave / "dev").read_text().strip() for slave in slaves
            ]
        if disk.get("bytes"):
            found.append(disk)
    return found


def behind_cache(path: Path) -> tuple[str, int] | None:
    """Returns the device behind bcache's device, and the sector at which the data begins there.

    Returns None if the folder of a device, `path`, is not that of bcache's own device, or if there
    is no device behind it. Raises OSError. The folder `bcache` belongs to the device behind; a link
    leads there (drivers/md/bcache/super.c, bch_cached_dev_run()). bcache leaves out the first
    sectors only.
    """
    folder = path / "bcache"
    if not folder.is_symlink():
        return None
    behind = folder.resolve(strict=True).parent
    first = int((behind / "size").read_text()) - int((path / "size").read_text())
    return ((behind / "dev").read_text().strip(), first) if first >= 0 else None


class _Place(NamedTuple):
    """A block device's own number (`is_device`), or the file system that holds a file."""

    dev: str | None
    ino: int | None = None
    """The file's inode; None if it is not known, or if an inode number needs a subvolume."""
    is_device: bool = False


def _place_of(path: bytes, mounted: list[MountPoint]) -> _Place:
    """Returns the place of a file or block device; of nothing if the file does not exist.

    File systems that may never answer are not asked.
    """
    dev = device_of(mounted, path)
    if dev is not None:
        return _Place(dev)
    try:
        status = os.stat(path)  # noqa: PTH116 names are bytes
    except OSError:
        return _Place(None)
    if stat.S_ISBLK(status.st_mode):
        return _Place(_numbers(status.st_rdev), is_device=True)
    # A btrfs file has the number of its subvolume, which no mount and no event uses.
    lies = mount_of(mounted, os.path.realpath(path))
    known = {mount.dev for mount in mounted}
    dev = _numbers(status.st_dev)
    if lies is not None and dev not in known:
        return _Place(lies.dev)
    return _Place(dev, status.st_ino)


def _numbers(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def ended() -> set[int]:
    """Returns the processes that have ended and that nobody has waited for: zombies."""
    found = set()
    for pid in _pids():
        with contextlib.suppress(OSError, ValueError, IndexError):
            process = read_stat(pid)
            if process is not None and process.ended:
                found.add(pid)
    return found


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def threads(but: Collection[int] = ()) -> list[tuple[int, int, int | None, str, str | None]]:
    """Returns every live thread: (tid, pid, ppid, comm, cgroup path).

    The parent of a program that the kernel has started is None, since kthreadd has not made it.
    Zombies in `but` are left out: they ended before the first event. Other zombies are listed,
    because they may have events.
    """
    found = []
    for pid in _pids():
        try:
            process = read_stat(pid)
            if process is None:
                continue
            made = process.ppid != KTHREADD or process.of_kernel
            ppid = process.ppid if made else None
            cgroup = _cgroup(pid)
            tids = [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
            if pid in but and process.ended and tids == [pid]:
                continue
        except (OSError, ValueError, IndexError):
            continue  # gone meanwhile
        for tid in tids:
            with contextlib.suppress(OSError):
                comm = Path(f"/proc/{pid}/task/{tid}/comm").read_text(errors="backslashreplace")
                found.append((tid, pid, ppid, _plain(comm.removesuffix("\n")), cgroup))
    return found


def _plain(comm: str) -> str:
    """Returns a thread's name as in events: /proc appends the current work of a kworker."""
    match = re.match(r"^(kworker/u?\d+:\d+H?)[-+]", comm)
    return match[1] if match else comm


def _cgroup(pid: int) -> str | None:
    """Returns the longest cgroup path of a process, over all hierarchies; None if it is gone."""
    try:
        paths = [line.split(":", 2)[2] for line in lines(f"/proc/{pid}/cgroup") if line]
    except OSError:
        return None
    return max(paths, key=len, default=None)
