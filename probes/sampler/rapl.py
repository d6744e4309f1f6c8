"""Energy of CPU packages, their parts and memory: RAPL counters in the kernel's powercap tree."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tracer.probes.clocks import ahead_of_monotonic_ns
from tracer.probes.sampler.reading import (
    ROOT,
    NotAvailable,
    Rate,
    Reader,
    Reading,
    Series,
    contents,
    number,
)

ENERGY = Series(
    "rapl_energy",
    "J",
    "energy that a RAPL domain has used, corrected for wrap-arounds of its counter",
    Rate("rapl_power", "W", "mean power of a RAPL domain since the previous sample"),
)
_UJ = 1e-6
_MOST_DOMAINS = 256
_SLEEP_NS = 100_000_000


def suspended_ns() -> int:
    """Returns the time for which this machine has been suspended since its start."""
    return ahead_of_monotonic_ns(time.CLOCK_BOOTTIME)


class Rapl(Reader):
    """A reader of /sys/class/powercap/intel-rapl:N, which AMD CPUs also have.

    Kernel: Documentation/power/powercap. Instance: the domain's name, with the package before the
    name of a part (package-0/core). The counter wraps at max_energy_range_uj, and it may begin
    again at 0 while the machine is suspended. A second wrap between two samples is not noticed.
    `suspended_ns` gives the time for which the machine has been suspended.
    """

    name = "rapl"
    series = (ENERGY,)

    def __init__(self, root: Path = ROOT, suspended_ns: Callable[[], int] = suspended_ns) -> None:
        super().__init__(root)
        self._suspended_ns = suspended_ns
        self._slept_ns = suspended_ns()
        self._domains: dict[str, tuple[Path, int]] = {}
        self._last: dict[str, int] = {}
        self._added: dict[str, int] = {}
        folder = root / "sys/class/powercap"
        # Leaves out intel-rapl-mmio, which names the same packages a second time.
        for path in sorted(folder.glob("intel-rapl:*"))[:_MOST_DOMAINS]:
            name = _name(folder, path.name)
            if name in self._domains:  # e.g. another die of a package
                name = f"{name} ({path.name})"
            self._domains[name] = path / "energy_uj", number(path / "max_energy_range_uj")
        if not self._domains:
            raise NotAvailable(
                "/sys/class/powercap has no RAPL domain (as on virtual machines and Arm)"
            )
        self.read()

    def read(self) -> list[Reading]:
        """Returns the energy of each domain in J."""
        found: list[Reading] = []
        before, self._slept_ns = self._slept_ns, self._suspended_ns()
        slept = self._slept_ns - before > _SLEEP_NS
        for name, (path, wraps_at) in self._domains.items():
            value, last = number(path), self._last.get(name, 0)
            if value < last:
                self._added[name] = self._added.get(name, 0) + (last if slept else wraps_at)
            self._last[name] = value
            found.append((ENERGY.name, name, (value + self._added.get(name, 0)) * _UJ))
        return found


def _name(folder: Path, zone: str) -> str:
    """Returns the full name of a zone, e.g. package-0/core for intel-rapl:0:1."""
    own = contents(folder / zone / "name", 64).strip()
    parent, _, _ = zone.rpartition(":")
    return f"{_name(folder, parent)}/{own}" if ":" in parent else own
