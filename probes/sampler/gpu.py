"""NVIDIA GPUs, read through the driver's management library with nvidia-ml-py, if installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracer.probes.sampler.reading import ROOT, NotAvailable, Rate, Reader, Reading, Series

USE = Series("gpu_use", "%", "share of the driver's last sampling period in which a kernel ran")
MEMORY_USE = Series(
    "gpu_memory_use",
    "%",
    "share of the driver's last sampling period in which GPU memory was read or written",
)
MEMORY = Series(
    "gpu_memory",
    "bytes",
    "GPU memory in use, and what the driver reserves (nvidia-smi leaves that out)",
)
POWER = Series("gpu_power", "W", "power of the board, averaged by the driver")
ENERGY = Series(
    "gpu_energy",
    "J",
    "energy of the board since the driver was loaded",
    Rate("gpu_mean_power", "W", "mean power of the board since the previous sample"),
)
CLOCK = Series("gpu_frequency", "Hz", "frequency of the streaming multiprocessors")
MEMORY_CLOCK = Series("gpu_memory_frequency", "Hz", "frequency of GPU memory")
_MEND = "pip install 'traintrace[gpu]'"
_MOST_GPUS = 64
_QUESTIONS: tuple[tuple[Series, float, Callable[[Any, Any], float]], ...] = (
    (USE, 1, lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    (MEMORY_USE, 1, lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory),
    (MEMORY, 1, lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
    (POWER, 1e-3, lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu)),
    (ENERGY, 1e-3, lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)),
    (CLOCK, 1e6, lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    (MEMORY_CLOCK, 1e6, lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)),
)
"""The fields that are read from a GPU, with the factor from the driver's unit (mW, mJ, MHz) to the
series'."""


class Gpu(Reader):
    """A reader of every GPU that the driver shows; instance: its number in the driver's order."""

    name = "gpu"
    series = (USE, MEMORY_USE, MEMORY, POWER, ENERGY, CLOCK, MEMORY_CLOCK)

    def __init__(self, root: Path = ROOT) -> None:
        """Opens the library. It finds its devices itself, so `root` is not used."""
        super().__init__(root)
        try:
            self._nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            raise NotAvailable(f"nvidia-ml-py is not installed ({_MEND})") from None
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            count = min(nvml.nvmlDeviceGetCount(), _MOST_GPUS)
            self._gpus = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        except nvml.NVMLError as error:
            raise NotAvailable(f"NVML: {error}") from None
        if not self._gpus:
            raise NotAvailable("NVML shows no GPU")
        for number, gpu in enumerate(self._gpus):
            try:
                name = nvml.nvmlDeviceGetName(gpu)
            except nvml.NVMLError as error:
                name = f"unknown: {error}"
            # Older bindings give bytes.
            self.facts[f"gpu_{number}"] = name.decode() if isinstance(name, bytes) else str(name)

    def read(self) -> list[Reading]:
        """Returns the values of each GPU now; fields without a value are noted in `missing`."""
        found: list[Reading] = []
        for number, gpu in enumerate(self._gpus):
            for series, factor, ask in _QUESTIONS:
                try:
                    found.append((series.name, str(number), ask(self._nvml, gpu) * factor))
                except self._nvml.NVMLError as error:
                    self.missing[series.name] = f"GPU {number}: {error}"
        return found
