"""A power mode as a study declares it: power_mode = [{}, {cores = 1, cpu_quota = 0.5}]."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tracer.workloads.errors import JobError

DEFAULT = "default"
"""Name of the mode that sets nothing and leaves the machine as it is."""

_LEAST_QUOTA = 0.01


@dataclass(frozen=True)
class PowerMode:
    """The settings of a run. None: the setting stays as it is on the machine.

    `nvpmodel` is the name or number of a mode of a Jetson; the other settings are applied on top of
    it. `cores` are CPUs as the kernel counts them. Frequencies are in MHz; each is set as both the
    lower and the upper limit. `cpu_quota` is the share of its cores' time that a job may use. It
    replaces a frequency on machines that cannot set one.
    """

    nvpmodel: str | None = None
    cores: int | None = None
    cpu_mhz: float | None = None
    cpu_quota: float | None = None
    gpu_mhz: float | None = None
    memory_mhz: float | None = None

    def __str__(self) -> str:
        """Returns the settings in a line, such as "cores 1, cpu_quota 0.5"."""
        told = [f"{name} {value}" for name, value in asdict(self).items() if value is not None]
        return ", ".join(told) or DEFAULT


def parse(told: dict[str, Any]) -> PowerMode | None:
    """Returns the mode in a TOML table; None for an empty one. Raises JobError for a bad value."""
    unknown = sorted(set(told) - set(PowerMode.__dataclass_fields__))
    if unknown:
        names = ", ".join(PowerMode.__dataclass_fields__)
        raise JobError(f"a power mode has no {', '.join(map(repr, unknown))}", f"it has {names}")
    name = told.get("nvpmodel")
    if name is not None and not (isinstance(name, str | int) and str(name).strip()):
        raise JobError(f"`nvpmodel` is a mode's name or number, not {name!r}")
    cores = told.get("cores")
    if cores is not None and (not _number(cores) or cores != int(cores) or cores < 1):
        raise JobError(f"`cores` is a whole number of 1 or more, not {cores!r}")
    quota = told.get("cpu_quota")
    if quota is not None and not (_number(quota) and _LEAST_QUOTA <= quota <= 1):
        raise JobError(f"`cpu_quota` is a share from {_LEAST_QUOTA:g} to 1, not {quota!r}")
    for key in ("cpu_mhz", "gpu_mhz", "memory_mhz"):
        value = told.get(key)
        if value is not None and not (_number(value) and 0 < value < 1e6):
            raise JobError(f"`{key}` is a frequency in MHz, not {value!r}")
    exact = {
        "nvpmodel": None if name is None else str(name),
        "cores": None if cores is None else int(cores),
    }
    mode = PowerMode(**{**told, **exact})
    return None if mode == PowerMode() else mode


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
