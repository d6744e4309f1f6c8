"""The resources that a container may use."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from tracer.workloads.errors import JobError

_MEBI = 1 << 20
_MOST = 1 << 60
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class Speed:
    """The speed of a storage medium: bytes, and requests of any size, per second."""

    read_bytes_per_s: int
    write_bytes_per_s: int
    read_iops: int
    write_iops: int

    def shared(self, count: int) -> Speed:
        """Returns the share of each of `count` users, at least 1."""
        return Speed(*(max(1, value // count) for value in astuple(self)))


@dataclass(frozen=True)
class Limits:
    """The resources that a container may use. None: all.

    `cpus` is an amount of CPU time, `cpuset` lists the CPUs. `swap_bytes` of swap may be used
    beside `memory_bytes`. `seccomp` turns on Docker's own filter of system calls. `speed` limits
    the block device `device`, such as /dev/loop3.
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    seccomp: bool = True
    shm_bytes: int = 1 << 30
    device: str | None = None
    speed: Speed | None = None
    cpuset: str | None = None
    swap_bytes: int = 0

    @property
    def _memory_and_swap(self) -> int:
        """The sum of both, as Docker takes it."""
        return (self.memory_bytes or 0) + self.swap_bytes

    def options(self) -> dict[str, Any]:
        """Returns the limits as keyword arguments of Docker's SDK."""
        found: dict[str, Any] = {"shm_size": self.shm_bytes}
        if self.cpus is not None:
            found["nano_cpus"] = round(self.cpus * 1e9)
        if self.cpuset is not None:
            found["cpuset_cpus"] = self.cpuset
        if self.memory_bytes is not None:
            found |= {"mem_limit": self.memory_bytes, "memswap_limit": self._memory_and_swap}
        if self.device is not None and self.speed is not None:
            rates = {
                "device_read_bps": self.speed.read_bytes_per_s,
                "device_write_bps": self.speed.write_bytes_per_s,
                "device_read_iops": self.speed.read_iops,
                "device_write_iops": self.speed.write_iops,
            }
            found |= {k: [{"Path": self.device, "Rate": rate}] for k, rate in rates.items()}
        if not self.seccomp:
            found["security_opt"] = ["seccomp=unconfined"]
        return found

    def arguments(self) -> list[str]:
        """Returns the limits as options of `docker run`."""
        found = [f"--shm-size={self.shm_bytes}"]
        if self.cpus is not None:
            found.append(f"--cpus={self.cpus:.9f}")
        if self.cpuset is not None:
            found.append(f"--cpuset-cpus={self.cpuset}")
        if self.memory_bytes is not None:
            found += [f"--memory={self.memory_bytes}", f"--memory-swap={self._memory_and_swap}"]
        if self.device is not None and self.speed is not None:
            found += [
                f"--device-read-bps={self.device}:{self.speed.read_bytes_per_s}",
                f"--device-write-bps={self.device}:{self.speed.write_bytes_per_s}",
                f"--device-read-iops={self.device}:{self.speed.read_iops}",
                f"--device-write-iops={self.device}:{self.speed.write_iops}",
            ]
        if not self.seccomp:
            found.append("--security-opt=seccomp=unconfined")
        return found


def parse_bytes(size: str) -> int:
    """Returns the bytes of a size such as 512m or 2g. Raises JobError if that is no valid limit."""
    number, unit = size[:-1], size[-1:].lower()
    if unit not in _UNITS:
        number, unit = size, ""
    try:
        found = round(float(number) * _UNITS.get(unit, 1))
    except (ValueError, OverflowError):
        found = 0
    if not 6 * _MEBI <= found < _MOST:  # the least is Docker's own
        raise JobError(f"{size} is not a valid size", "give 6m or more")
    return found
