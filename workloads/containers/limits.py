"""What a container may use."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from workloads.errors import JobError

_MEBI = 1 << 20
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class Speed:
    """What a storage medium can do a second: bytes, and requests of any size."""

    read_bytes_per_s: int
    write_bytes_per_s: int
    read_iops: int
    write_iops: int

    def shared(self, count: int) -> Speed:
        """What each of so many gets, at least 1."""
        return Speed(*(max(1, value // count) for value in astuple(self)))


@dataclass(frozen=True)
class Limits:
    """What a container may use. None: all there is. `seccomp`: Docker's own filter of calls.

    `speed` is of the block device `device`, such as /dev/loop3.
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    seccomp: bool = True
    shm_bytes: int = 1 << 30
    device: str | None = None
    speed: Speed | None = None

    def options(self) -> dict[str, Any]:
        """As Docker's SDK has them."""
        found: dict[str, Any] = {"shm_size": self.shm_bytes}
        if self.cpus is not None:
            found["nano_cpus"] = round(self.cpus * 1e9)
        if self.memory_bytes is not None:
            # No more by swapping.
            found |= {"mem_limit": self.memory_bytes, "memswap_limit": self.memory_bytes}
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


def parse_bytes(size: str) -> int:
    """Bytes of a size such as 512m or 2g. Raises JobError where no container can have so many."""
    number, unit = size[:-1], size[-1:].lower()
    if unit not in _UNITS:
        number, unit = size, ""
    try:
        found = round(float(number) * _UNITS.get(unit, 1))
    except (ValueError, OverflowError):
        found = 0
    if found < 6 * _MEBI:  # Docker's own least
        raise JobError(f"{size} is no memory that a container can have", "give 6m or more")
    return found
