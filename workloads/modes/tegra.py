"""Frequencies of a Jetson's GPU and memory, set with the files that jetson_clocks uses."""

from __future__ import annotations

import re
from pathlib import Path

from tracer.workloads.errors import JobError
from tracer.workloads.modes.frequency import Limits, put_back
from tracer.workloads.modes.mechanism import ROOT, Before, Lacking, Mechanism, read, write

_HZ = 1e6
_GPU = re.compile(r"gv11b|gp10b|ga10b|gb10b|gm20b|gpu")
_SHARES = (0.5, 0.75, 1.0)


class TegraGpu(Mechanism):
    """The limits of the integrated GPU in devfreq."""

    name = "devfreq"
    sets = "gpu_mhz"

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        folders = sorted((root / "sys/class/devfreq").glob("*"))
        found = [f for f in folders if _GPU.search(f.name) and (f / "max_freq").exists()]
        if not found:
            raise Lacking("devfreq shows no Tegra GPU")
        gpu = found[0]
        self._limits = Limits(
            gpu / "min_freq", gpu / "max_freq", gpu / "available_frequencies", _HZ
        )

    def now(self) -> float:
        """Returns the highest allowed frequency in MHz."""
        return self._limits.now()

    def choices(self) -> list[float]:
        """Returns some frequencies in MHz, the lowest first."""
        return self._limits.some()

    def remember(self) -> Before:
        """Returns both limits."""
        return self._limits.remember()

    def set(self, value: float) -> None:
        """Holds the GPU at `value` MHz."""
        self._limits.hold(value)

    def restore(self, before: Before) -> None:
        """Restores both limits."""
        put_back(before)


class TegraMemory(Mechanism):
    """The clock of the external memory controller (EMC), which the boot processor controls."""

    name = "BPMP"
    sets = "memory_mhz"

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        self._clock = root / "sys/kernel/debug/bpmp/debug/clk/emc"
        if not (self._clock / "mrq_rate_locked").exists():
            raise Lacking("debugfs shows no memory clock of a Tegra (bpmp/debug/clk/emc)")

    def now(self) -> float:
        """Returns the locked rate in MHz, else the highest."""
        locked = read(self._clock / "mrq_rate_locked") != "0"
        return int(read(self._clock / ("rate" if locked else "max_rate"))) / _HZ

    def choices(self) -> list[float]:
        """Returns shares of the highest rate in MHz; the hardware uses the nearest that it has."""
        highest = int(read(self._clock / "max_rate")) / _HZ
        return [round(highest * share) for share in _SHARES]

    def remember(self) -> Before:
        """Returns the rate and its lock flag."""
        files = (self._clock / "rate", self._clock / "mrq_rate_locked")
        return {str(path): read(path) for path in files}

    def set(self, value: float) -> None:
        """Locks the rate at `value` MHz. Raises JobError if it is out of range."""
        low, high = (int(read(self._clock / name)) / _HZ for name in ("min_rate", "max_rate"))
        if not low <= value <= high:
            raise JobError(f"memory has no {value:g} MHz", f"choose {low:g} to {high:g}")
        write(self._clock / "mrq_rate_locked", "1")
        write(self._clock / "rate", str(round(value * _HZ)))

    def restore(self, before: Before) -> None:
        """Restores the rate, then the lock flag, since an unlocked rate cannot be written."""
        put_back(before)
