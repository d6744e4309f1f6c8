"""Energy of CPU packages, their parts and memory, by RAPL through the kernel's powercap tree."""

from __future__ import annotations

from pathlib import Path

from probes.sampler.reading import (
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
    "energy that a RAPL domain has used, wrap-arounds of its counter added",
    Rate("rapl_power", "W", "power of a RAPL domain, over the time since the sample before"),
)
_UJ = 1e-6
_MOST_DOMAINS = 256


class Rapl(Reader):
    """/sys/class/powercap/intel-rapl:N, of AMD CPUs, too (kernel: Documentation/power/powercap).

    Instance: the domain's name; a part's has its package's before it (package-0/core). The counter
    wraps at max_energy_range_uj; that it does so twice between two samples goes unseen.
    """

    name = "rapl"
    series = (ENERGY,)

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        self._domains: dict[str, tuple[Path, int]] = {}
        self._last: dict[str, int] = {}
        self._added: dict[str, int] = {}
        folder = root / "sys/class/powercap"
        # intel-rapl-mmio names the same packages a second time.
        for path in sorted(folder.glob("intel-rapl:*"))[:_MOST_DOMAINS]:
            name = _name(folder, path.name)
            if name in self._domains:  # a die of a package, say
                name = f"{name} ({path.name})"
            self._domains[name] = path / "energy_uj", number(path / "max_energy_range_uj")
        if not self._domains:
            raise NotAvailable(
                "there is no RAPL in /sys/class/powercap (a virtual machine, or Arm)"
            )
        self.read()

    def read(self) -> list[Reading]:
        """Joules of each domain."""
        found: list[Reading] = []
        for name, (path, wraps_at) in self._domains.items():
            value = number(path)
            if value < self._last.get(name, 0):
                self._added[name] = self._added.get(name, 0) + wraps_at
            self._last[name] = value
            found.append((ENERGY.name, name, (value + self._added.get(name, 0)) * _UJ))
        return found


def _name(folder: Path, zone: str) -> str:
    """package-0/core of intel-rapl:0:1."""
    own = contents(folder / zone / "name", 64).strip()
    parent, _, _ = zone.rpartition(":")
    return f"{_name(folder, parent)}/{own}" if ":" in parent else own
