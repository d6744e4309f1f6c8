"""Limits on the speed of a block device, set by the kernel per control group.

The runner moves into a control group of its own, and its child processes start there. With cgroup
v2 the limits also apply to the group's write-back. With v1 the root group does the write-back, so
its writes to this device are limited, too. Containers have groups of their own, which Docker limits
(`tracer.workloads.containers.limits`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tracer.probes.proc import read_mounts
from tracer.workloads.containers.limits import Speed
from tracer.workloads.errors import BrokenJobError, JobError
from tracer.workloads.interrupt import held
from tracer.workloads.modes.controllers import CONTROL, switch_off

_V1 = {
    "read_bytes_per_s": "blkio.throttle.read_bps_device",
    "write_bytes_per_s": "blkio.throttle.write_bps_device",
    "read_iops": "blkio.throttle.read_iops_device",
    "write_iops": "blkio.throttle.write_iops_device",
}
_CONTROLLERS = ("io", "memory")
"""Controllers of v2 that a limit needs. The kernel attributes write-back to a group by its memory
controller."""
_ENABLED = "enabled-"
"""Start of the name of a group below the limited one, for a controller that we have enabled. Such a
note survives a kill, and no other user can forge it."""
_V2 = {"read_bytes_per_s": "rbps", "write_bytes_per_s": "wbps",
       "read_iops": "riops", "write_iops": "wiops"}  # fmt: skip

_PATIENCE_S = 15
_ROUND_S = 0.02


@dataclass(frozen=True)
class Hierarchy:
    """A hierarchy of control groups that can limit block devices: its mount point and version."""

    root: Path
    unified: bool

    @property
    def about(self) -> str:
        return "cgroup v2 io.max" if self.unified else "cgroup v1 blkio.throttle"

    @property
    def control(self) -> Path:
        """The file with the controllers of v2 that groups below the root have."""
        return self.root / CONTROL

    def own(self) -> Path:
        """Returns the folder of the group of this process."""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if (not controllers) if self.unified else ("blkio" in controllers.split(",")):
                return self.root / path.lstrip("/")
        return self.root


class Throttle:
    """A context manager that limits this process and its children to a speed.

    `device` is MAJOR:MINOR. The name of the group is made from `key`, so that it is found again
    after a kill.
    """

    def __init__(self, device: str, speed: Speed, key: Path) -> None:
        self._device = device
        self._speed = speed
        self._key = key
        self._before: Path | None = None

    def __enter__(self) -> Hierarchy:
        """Sets the limits. Raises JobError if the kernel has none, BrokenJobError if it refuses."""
        hierarchy = find_hierarchy()
        if hierarchy is None:
            raise JobError(
                "this kernel cannot limit the speed of a device for a control group",
                "use a kernel with blk-throttle (CONFIG_BLK_DEV_THROTTLING) and a mounted io or "
                "blkio controller, or leave out the media that need a limit",
            )
        group = _group(hierarchy, self._key)
        try:
            self._before = hierarchy.own()
            group.mkdir(exist_ok=True)
            if hierarchy.unified:
                has = (hierarchy.root / "cgroup.controllers").read_text().split()
                enabled = hierarchy.control.read_text().split()
                for name in _CONTROLLERS:
                    if name in has and name not in enabled:
                        (group / f"{_ENABLED}{name}").mkdir(exist_ok=True)
                        hierarchy.control.write_text(f"+{name}")
            self._limit(hierarchy, group)
            _move_to(group)
        except OSError as error:
            self.__exit__()
            raise BrokenJobError(
                f"the kernel refused to limit {self._device}: {error.strerror}",
                f"check {hierarchy.root}, and that no other program manages it",
            ) from None
        return hierarchy

    def __exit__(self, *_: object) -> None:
        with held():
            if self._before is not None:
                with contextlib.suppress(OSError):
                    _move_to(self._before)
            take_down(self._key, [self._device])

    def _limit(self, hierarchy: Hierarchy, group: Path) -> None:
        if hierarchy.unified:
            told = " ".join(f"{word}={getattr(self._speed, name)}" for name, word in _V2.items())
            (group / "io.max").write_text(f"{self._device} {told}")
            return
        for name, file in _V1.items():
            line = f"{self._device} {getattr(self._speed, name)}"
            (group / file).write_text(line)
            if name.startswith("write"):
                (hierarchy.root / file).write_text(line)


def find_hierarchy() -> Hierarchy | None:
    """Returns the hierarchy that can limit devices on this machine; None if there is none."""
    for mount in read_mounts():
        root = Path(os.fsdecode(mount.path))
        if mount.kind == b"cgroup2":
            with contextlib.suppress(OSError):
                if "io" in (root / "cgroup.controllers").read_text().split():
                    return Hierarchy(root, unified=True)
        if (
            mount.kind == b"cgroup"
            and b"blkio" in mount.options.split(b",")
            and (root / _V1["read_iops"]).exists()
        ):
            return Hierarchy(root, unified=False)
    return None


def take_down(key: Path, devices: Iterable[str]) -> None:
    """Removes the group of this key and all limits on the devices, even those a kill left."""
    hierarchy = find_hierarchy()
    if hierarchy is None:
        return
    if not hierarchy.unified:
        for device in devices:
            for file in _V1.values():
                limited = hierarchy.root / file
                if any(line.split()[0] == device for line in limited.read_text().splitlines()):
                    limited.write_text(f"{device} 0")
    group = _group(hierarchy, key)
    enabled = sorted(group.glob(f"{_ENABLED}*"))
    with contextlib.suppress(OSError):
        _remove(group, enabled)
        for note in enabled:
            switch_off(hierarchy.root, note.name.removeprefix(_ENABLED))


def _remove(group: Path, enabled: Iterable[Path]) -> None:
    """Removes a group and its notes, once it is empty. OSError if that fails, or takes too long.

    The guardian of a killed recorder is in it until it has saved what was recorded. A thread may
    count in it for a moment after its end.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            if not (group / "cgroup.procs").read_text():
                for note in enabled:
                    with contextlib.suppress(FileNotFoundError):
                        note.rmdir()
            return group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(_ROUND_S)


def _group(hierarchy: Hierarchy, key: Path) -> Path:
    return hierarchy.root / f"traintrace-{hashlib.sha256(str(key).encode()).hexdigest()[:16]}"


def _move_to(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))
