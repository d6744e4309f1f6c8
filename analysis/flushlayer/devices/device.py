"""The device catalogue: parameters of disks and media, with unit, source and confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tracer.analysis.flushlayer.devices.parameters import MOST, MOST_ELSE, PARAMETERS, UNITS
from tracer.analysis.flushlayer.toml_file import read_toml
from tracer.probes.errors import UsageError

Kind = Literal["disk", "ssd", "nvm", "destage"]
Bound = Literal["low", "middle", "high"]

ROLES: dict[str, tuple[Kind, ...]] = {
    "disk": ("disk", "ssd"),
    "nvm": ("nvm", "ssd"),
    "destage": ("destage",),
}
"""Roles of devices, and the kinds that can fill them: an SSD can be a disk or a medium."""

PAGE = 4096

Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Parameter:
    """A value or an interval (low, high), in the unit of `parameters.base_unit`."""

    low: float
    high: float
    unit: str
    """Unit in the file."""
    confidence: str
    source: str
    bound: str | None = None
    """least or most, if the value is only a bound."""


@dataclass(frozen=True)
class Device:
    """One device of a catalogue."""

    name: str
    kind: Kind
    doc: str
    parameters: Mapping[str, Parameter]

    def value(self, name: str) -> float | None:
        """Returns a parameter in its base unit (ns, B/s, B, ...); None: not known.

        For an interval, it returns the middle; use `at` first for another point.
        """
        known = self.parameters.get(name)
        return None if known is None else (known.low + known.high) / 2

    def interval(self, name: str) -> tuple[float, float] | None:
        """Returns a parameter as (low, high); None: not known.

        An exact value is an interval of length 0; a bound is 0 or infinite on its open side.
        """
        known = self.parameters.get(name)
        if known is None:
            return None
        high = math.inf if known.bound == "least" else known.high
        return 0.0 if known.bound == "most" else known.low, high

    def at(self, bound: Bound) -> Device:
        """Returns the device with every interval reduced to its low or high end; middle: as is."""
        if bound == "middle":
            return self
        shrunk = {
            name: replace(p, high=p.low) if bound == "low" else replace(p, low=p.high)
            for name, p in self.parameters.items()
        }
        return replace(self, parameters=shrunk)

    @property
    def read_ns(self) -> int:
        """Mean time in ns of one read of 4096 bytes at a random place; see `page_ns`."""
        return page_ns(self, "read")

    @property
    def write_ns(self) -> int:
        """Mean time in ns of one write of 4096 bytes at a random place; see `page_ns`.

        Raises UsageError if a disk or SSD takes 0 ns.
        """
        time = page_ns(self, "write")
        if time == 0 and self.kind != "nvm":
            raise UsageError(
                f"{self.name} takes 0 ns for a write of a page", "give a time of 1 ns or more"
            )
        return time

    @property
    def confidence(self) -> str:
        """Confidences of the parameters, without repetition."""
        return ", ".join(dict.fromkeys(p.confidence for p in self.parameters.values()))

    @property
    def source(self) -> str:
        """Sources of the parameters, without repetition."""
        return "; ".join(dict.fromkeys(p.source for p in self.parameters.values()))


def fua_ns(device: Device) -> float:
    """Returns the time in ns that a FUA write takes longer than another write.

    Unless it is known, it is the time of a flush: the kernel sends one after a FUA write to a
    device that has no FUA command.
    """
    known = device.value("fua_latency")
    return (device.value("flush_latency") or 0.0) if known is None else known


def page_ns(device: Device, op: Literal["read", "write"]) -> int:
    """Returns the mean time in ns of one access of 4096 bytes at a random place of an idle device.

    This is the latency (for a memory: plus the transfer), else 1 / rate at depth 1, else, for a
    disk, seek + half a turn + transfer, else the transfer alone. Raises UsageError if none of these
    is known.
    """
    latency = device.value(f"{op}_latency")
    bandwidth = device.value(f"bandwidth_{op}")
    transfer = PAGE / bandwidth * 1e9 if bandwidth else None
    if latency is not None:
        return round(latency + (transfer or 0) * (device.kind == "nvm"))
    rate = device.value(f"iops_depth1_{op}")
    if rate:
        return round(1e9 / rate)
    if device.kind == "disk":
        seek, rotation = device.value(f"seek_{op}"), device.value("rotation")
        if seek is None or not rotation or transfer is None:
            raise missing(device, f"{op}_latency, or seek_{op}, rotation and bandwidth_{op},")
        return round(seek + 30e9 / rotation + transfer)
    if transfer is None:
        raise missing(device, f"{op}_latency, iops_depth1_{op} or bandwidth_{op}")
    return round(transfer)


def missing(device: Device, what: str) -> UsageError:
    """Returns the error for a device without a parameter that the model needs."""
    return UsageError(
        f"{device.name} has no {what} in the catalogue",
        "choose another device, or describe yours in a file",
    )


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    value: Number | tuple[Number, Number]
    unit: str
    confidence: Literal["paper", "specification", "survey", "study", "measured", "assumed"]
    source: Annotated[str, Field(min_length=1, max_length=500)]
    bound: Literal["least", "most"] | None = None


_KIND = TypeAdapter(Kind)
_VALUE = TypeAdapter(_Value)


@cache
def _ours() -> dict[str, Device]:
    return load(Path(__file__).with_name("devices.toml"))


def catalogue(extra: Path | None = None) -> dict[str, Device]:
    """Returns every device by name: the built-in ones, and those of a user's file.

    Raises UsageError, with file, device and key, for invalid content of the file and for a name of
    a built-in device.
    """
    if extra is None:
        return dict(_ours())
    added = load(extra)
    for name in added:
        if name in _ours():
            raise UsageError(
                f"{extra}: [{name}] is the name of a built-in device", "give it another name"
            )
    return _ours() | added


def find_device(name: str, kind: str, extra: Path | None = None) -> Device:
    """Returns a device for the role "disk", "nvm" or "destage".

    Raises UsageError, with the known names, if the role has no such device.
    """
    device = catalogue(extra).get(name)
    if device is None or device.kind not in ROLES[kind]:
        raise UsageError(f"there is no {kind} {name!r}", f"known: {', '.join(names(kind, extra))}")
    return device


def names(kind: str, extra: Path | None = None) -> list[str]:
    """Returns the names of the devices for the role "disk", "nvm" or "destage"."""
    return [device.name for device in catalogue(extra).values() if device.kind in ROLES[kind]]


def load(path: Path) -> dict[str, Device]:
    """Reads the devices of a catalogue file (TOML, as devices.toml).

    Raises UsageError, with file, device and key, for invalid content.
    """
    entries = read_toml(path, "a file of devices", "devices.toml for the form")
    return {name: _device(path, name, entry) for name, entry in entries.items()}


def _device(path: Path, name: str, entry: Any) -> Device:
    if not isinstance(entry, dict):
        raise UsageError(f"{path}: {name} is outside of any device", "write [NAME] above it")
    rest = dict(entry)
    kind = _checked(_KIND, rest.pop("kind", None), path, name, "kind")
    doc = _checked(_TEXT, rest.pop("doc", ""), path, name, "doc")
    return Device(
        name, kind, doc, {key: _parameter(path, name, kind, key, v) for key, v in rest.items()}
    )


_TEXT = TypeAdapter(Annotated[str, Field(strict=True, max_length=500)])


def _parameter(path: Path, name: str, kind: str, key: str, raw: Any) -> Parameter:
    where = f"{path}: [{name}] {key}"
    known = PARAMETERS.get(key)
    if known is None or kind not in known.kinds:
        there = ", ".join(k for k, p in PARAMETERS.items() if kind in p.kinds)
        raise UsageError(
            f"{where}: a device of kind {kind} has no such parameter", f"known: {there}"
        )
    if isinstance(raw, dict) and isinstance(raw.get("value"), list):
        raw = raw | {"value": tuple(raw["value"])}
    given = _checked(_VALUE, raw, path, name, key)
    units = UNITS[known.quantity]
    if given.unit not in units:
        raise UsageError(
            f"{where}: {given.unit!r} is not a unit of {known.quantity}", _one_of(units)
        )
    low, high = given.value if isinstance(given.value, tuple) else (given.value, given.value)
    if low > high:
        raise UsageError(f"{where}: [{low:g}, {high:g}] is not an interval", "give [low, high]")
    if low == 0 and kind not in known.zero:
        raise UsageError(f"{where}: 0 cannot be", "leave out a parameter that is not known")
    if given.bound is not None and low != high:
        raise UsageError(
            f"{where}: an interval cannot have a bound", "give one value, or leave out the bound"
        )
    scale = units[given.unit]
    if high * scale > MOST.get(known.quantity, MOST_ELSE):
        raise UsageError(f"{where}: {high:g} {given.unit} cannot be", "give the measured value")
    return Parameter(
        low * scale, high * scale, given.unit, given.confidence, given.source, given.bound
    )


def _checked(adapter: TypeAdapter[Any], value: Any, path: Path, name: str, key: str) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        # Every branch of a union reports a fault. For an interval, only that branch's faults count.
        faults = error.errors(include_url=False, include_context=False)
        of_interval = [f for f in faults if any("tuple" in str(part) for part in f["loc"])]
        interval = isinstance(value, dict) and isinstance(value.get("value"), tuple)
        first = of_interval[0] if interval and of_interval else faults[0]
        inside = next((f" {part}" for part in first["loc"] if isinstance(part, str)), "")
        shown = repr(first["input"])[:60]
        raise UsageError(
            f"{path}: [{name}] {key}:{inside} {first['msg'].lower()}, not {shown}",
            "see devices.toml for the form",
        ) from None


def _one_of(names: Mapping[str, Any]) -> str:
    return "give one of " + ", ".join(names)
