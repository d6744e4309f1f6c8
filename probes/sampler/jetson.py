"""NVIDIA Jetson modules, read from sysfs like jetson-stats and tegrastats do.

The values are the power rails of the INA3221 monitors, load and frequency of the integrated GPU,
and the power mode.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tracer.probes.sampler.reading import (
    ROOT,
    NotAvailable,
    Reader,
    Reading,
    Series,
    contents,
    number,
)

POWER = Series("rail_power", "W", "power of a supply rail; *_IN is the whole module's")
USE = Series("jetson_gpu_use", "%", "load of the integrated GPU")
FREQUENCY = Series("jetson_gpu_frequency", "Hz", "frequency of the integrated GPU")
_MOST_RAILS = 32
_GPU = re.compile(r"gv11b|gp10b|ga10b|gb10b|gm20b|gpu")
_MODE = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>")


class Jetson(Reader):
    """A reader of the labelled rails, of devfreq's GPU, and of the mode that nvpmodel has set."""

    name = "jetson"
    series = (POWER, USE, FREQUENCY)

    def __init__(self, root: Path = ROOT) -> None:
        super().__init__(root)
        self._rails = dict(_rails(root)[:_MOST_RAILS])
        self._gpu = next(
            (
                path
                for path in sorted((root / "sys/class/devfreq").glob("*"))
                if _GPU.search(path.name) and (path / "device/load").exists()
            ),
            None,
        )
        if not self._rails and self._gpu is None:
            raise NotAvailable("this is not a Jetson: sysfs has no INA3221 rail and no Tegra GPU")
        if not self._rails:
            self.missing[POWER.name] = "the INA3221 driver shows no labelled rail"
        if self._gpu is None:
            self.missing |= {s.name: "devfreq shows no Tegra GPU" for s in (USE, FREQUENCY)}
        mode = _power_mode(root)
        if mode is not None:
            self.facts["power_mode"] = mode
        self.read()

    def read(self) -> list[Reading]:
        """Returns the power of each rail, and the GPU's load and frequency, now."""
        found: list[Reading] = [(POWER.name, rail, read()) for rail, read in self._rails.items()]
        if self._gpu is not None:
            # The unit is a tenth of a per cent (drivers of Tegra GPUs: nvgpu, os/linux/sysfs).
            found.append((USE.name, None, number(self._gpu / "device/load") / 10))
            found.append((FREQUENCY.name, None, number(self._gpu / "cur_freq")))
        return found


def _rails(root: Path) -> list[tuple[str, Callable[[], float]]]:
    """Returns the labelled rails, each with a function that reads its power in W."""
    drivers = root / "sys/bus/i2c/drivers"
    found: list[tuple[str, Callable[[], float]]] = []
    # The mainline driver (kernel: drivers/hwmon/ina3221.c): mV and mA.
    for label in sorted(drivers.glob("ina3221/*/hwmon/hwmon*/in*_label")):
        channel = label.name.removeprefix("in").removesuffix("_label")
        # Channels above the third are sums made by the driver; they have no current of their own.
        if (label.parent / f"curr{channel}_input").exists():
            name = contents(label, 64).strip()
            if name and name != "NC":
                found.append((name, _product(label.parent, channel)))
    # The driver of JetPack 4: mW.
    for label in sorted(drivers.glob("ina3221x/*/iio:device*/rail_name_*")):
        channel = label.name.removeprefix("rail_name_")
        name = contents(label, 64).strip()
        if name and name != "NC":
            found.append((name, _milliwatts(label.parent / f"in_power{channel}_input")))
    return found


def _product(folder: Path, channel: str) -> Callable[[], float]:
    volts, amperes = folder / f"in{channel}_input", folder / f"curr{channel}_input"
    return lambda: number(volts) * number(amperes) * 1e-6


def _milliwatts(path: Path) -> Callable[[], float]:
    return lambda: number(path) * 1e-3


def _power_mode(root: Path) -> str | None:
    """Returns the name of the mode that nvpmodel set last, from nvpmodel's files, or None."""
    try:
        status = contents(root / "var/lib/nvpmodel/status", 64)
        modes = dict(_MODE.findall(contents(root / "etc/nvpmodel.conf")))
    except NotAvailable:
        return None
    current = re.match(r"pmode:(\d+)", status)
    return modes.get(str(int(current[1]))) if current else None
