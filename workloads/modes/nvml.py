"""Clocks of NVIDIA GPUs, locked by the driver's management library (nvidia-ml-py)."""

from __future__ import annotations

import contextlib
import importlib
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracer.workloads.errors import JobError
from tracer.workloads.modes.frequency import spread
from tracer.workloads.modes.mechanism import ROOT, Before, Lacking, Mechanism

_MEND = "pip install 'traintrace[gpu]'"
_NAMED = 4


class _Clock(Mechanism):
    """One clock of all GPUs. NVML does not report an earlier lock, so `restore` only unlocks."""

    def __init__(self, root: Path = ROOT) -> None:
        """Opens NVML. `root` is not used, since the library finds its devices itself."""
        super().__init__(root)
        try:
            self._nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            raise Lacking(f"nvidia-ml-py is not installed ({_MEND})") from None
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._gpus = [self._nvml.nvmlDeviceGetHandleByIndex(n) for n in range(count)]
        except self._nvml.NVMLError as error:
            raise Lacking(f"NVML: {error}") from None
        if not self._gpus:
            raise Lacking("NVML shows no GPU")
        self._locked: int | None = None

    def now(self) -> float | None:
        """Returns the locked clock in MHz, else the highest; None if the driver gives none."""
        if self._locked is not None:
            return float(self._locked)
        with contextlib.suppress(self._nvml.NVMLError):
            return float(self._nvml.nvmlDeviceGetMaxClockInfo(self._gpus[0], self._kind()))
        return None

    def choices(self) -> list[float]:
        """Returns some clocks in MHz; none if the driver does not list them."""
        every = self._all()
        return [float(value) for value in spread(every)] if every else []

    def remember(self) -> Before:
        """Returns nothing, since NVML does not report an earlier lock."""
        return {}

    def set(self, value: float) -> None:
        """Locks the clock of every GPU. Raises JobError with the driver's reason."""
        mhz = round(value)
        every = self._all()
        if every and mhz not in every:
            nearest = sorted(every, key=lambda one: abs(one - mhz))[:_NAMED]
            raise JobError(f"the GPU has no {self.sets} of {mhz}", f"choose one of {nearest}")
        self._told(f"lock {self.sets} at {mhz}", lambda gpu: self._lock(gpu, mhz))
        self._locked = mhz

    def restore(self, before: Before) -> None:
        """Unlocks the clock of every GPU."""
        self._told(f"unlock {self.sets}", self._unlock)
        self._locked = None

    def _all(self) -> list[int]:
        with contextlib.suppress(self._nvml.NVMLError):
            return sorted(set(self._supported()))
        return []

    def _told(self, what: str, call: Callable[[Any], None]) -> None:
        for number, gpu in enumerate(self._gpus):
            try:
                call(gpu)
            except self._nvml.NVMLError as error:
                mend = "run as root, with a GPU that can lock clocks (nvidia-smi -q -d CLOCK)"
                raise JobError(f"GPU {number} did not {what}: {error}", mend) from None

    @abstractmethod
    def _kind(self) -> int: ...

    @abstractmethod
    def _supported(self) -> list[int]: ...

    @abstractmethod
    def _lock(self, gpu: Any, mhz: int) -> None: ...

    @abstractmethod
    def _unlock(self, gpu: Any) -> None: ...


class GpuClock(_Clock):
    """Clock of the streaming multiprocessors."""

    name = "NVML"
    sets = "gpu_mhz"

    def _kind(self) -> int:
        return int(self._nvml.NVML_CLOCK_SM)

    def _supported(self) -> list[int]:
        gpu = self._gpus[0]
        memory = max(self._nvml.nvmlDeviceGetSupportedMemoryClocks(gpu))
        return list(self._nvml.nvmlDeviceGetSupportedGraphicsClocks(gpu, memory))

    def _lock(self, gpu: Any, mhz: int) -> None:
        self._nvml.nvmlDeviceSetGpuLockedClocks(gpu, mhz, mhz)

    def _unlock(self, gpu: Any) -> None:
        self._nvml.nvmlDeviceResetGpuLockedClocks(gpu)


class MemoryClock(_Clock):
    """Clock of GPU memory."""

    name = "NVML"
    sets = "memory_mhz"

    def _kind(self) -> int:
        return int(self._nvml.NVML_CLOCK_MEM)

    def _supported(self) -> list[int]:
        return list(self._nvml.nvmlDeviceGetSupportedMemoryClocks(self._gpus[0]))

    def _lock(self, gpu: Any, mhz: int) -> None:
        self._nvml.nvmlDeviceSetMemoryLockedClocks(gpu, mhz, mhz)

    def _unlock(self, gpu: Any) -> None:
        self._nvml.nvmlDeviceResetMemoryLockedClocks(gpu)
