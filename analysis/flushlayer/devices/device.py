"""The device catalogue: what is known of disks and media, with unit, source and confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from analysis.flushlayer.devices.parameters import MOST, MOST_ELSE, PARAMETERS, UNITS
from analysis.flushlayer.toml_file import read_toml
from probes.errors import UsageError

Kind = Literal["disk", "ssd", "nvm", "destage"]
Bound = Literal["low", "middle", "high"]

ROLES: dict[str, tuple[Kind, ...]] = {
    "disk": ("disk", "ssd"),
    "nvm": ("nvm", "ssd"),
    "destage": ("destage",),
}
"""What is asked for, and the kinds of device that can be it: an SSD can be either."""

PAGE = 4096

Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Parameter:
    """A value or an interval (low, high), in the unit of `parameters.base_unit`."""

    low: float
    high: float
    unit: str
    """As given in the file."""
    confidence: str
    source: str
    bound: str | None = None
    """least or most, where the value is only a bound."""


@dataclass(frozen=True)
class Device:
    """One device of a catalogue."""

    name: str
    kind: Kind
    doc: str
    parameters: Mapping[str, Parameter]

    def value(self, name: str) -> float | None:
        """A parameter in its base unit (ns, B/s, B, ...); None where nobody measured it.

        Of an interval the middle; `at` chooses otherwise.
        """
        known = self.parameters.get(name)
        return None if known is None else (known.low + known.high) / 2

    def interval(self, name: str) -> tuple[float, float] | None:
        """A parameter as (low, high), which an exact value is, too; a bound is open on its side."""
        known = self.parameters.get(name)
        if known is None:
            return None
        high = math.inf if known.bound == "least" else known.high
        return 0.0 if known.bound == "most" else known.low, high

    def at(self, bound: Bound) -> Device:
        """The device with every interval shrunk to one of its ends."""
        if bound == "middle":
            return self
        shrunk = {
            name: replace(p, high=p.low) if bound == "low" else replace(p, low=p.high)
            for name, p in self.parameters.items()
        }
        return replace(self, parameters=shrunk)

    @property
    def read_ns(self) -> int:
        """Mean time of a read of 4096 bytes at a random place, alone; see `page_ns`."""
        return page_ns(self, "read")

    @property
    def write_ns(self) -> int:
        """Mean time of a write of 4096 bytes at a random place, alone; see `page_ns`."""
        return page_ns(self, "write")

    @property
    def confidence(self) -> str:
        """The confidences of its parameters."""
        return ", ".join(dict.fromkeys(p.confidence for p in self.parameters.values()))

    @property
    def source(self) -> str:
        """The sources of its parameters."""
        return "; ".join(dict.fromkeys(p.source for p in self.parameters.values()))


def page_ns(device: Device, op: Literal["read", "write"]) -> int:
    """Mean time in ns of one access of 4096 bytes at a random place of an idle device.

    Its latency (of a memory: and the transfer), else one by its rate at depth 1, else seek +
    half a turn + transfer, else the transfer alone. UsageError where none of these is known.
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
            raise missing(device, f"{op}_latency, nor seek_{op}, rotation and bandwidth_{op}")
        return round(seek + 30e9 / rotation + transfer)
    if transfer is None:
        raise missing(device, f"{op}_latency, iops_depth1_{op} or bandwidth_{op}")
    return round(transfer)


def missing(device: Device, what: str) -> UsageError:
    """The error for a device of which too little is known."""
    return UsageError(
        f"{device.name} has no {what}: nobody measured it",
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
    """Every device, by name: ours, and those of a user's file, which may not take our names.

    UsageError, naming file, device and key, for what such a file must not say.
    """
    if extra is None:
        return dict(_ours())
    added = load(extra)
    for name in added:
        if name in _ours():
            raise UsageError(
                f"{extra}: [{name}] is a device of ours already", "give it another name"
            )
    return _ours() | added


def find(name: str, kind: str, extra: Path | None = None) -> Device:
    """A device that can be a "disk", "nvm" or "destage"; UsageError, naming those there are."""
    devices = catalogue(extra)
    device = devices.get(name)
    if device is None or device.kind not in ROLES[kind]:
        known = ", ".join(d.name for d in devices.values() if d.kind in ROLES[kind])
        raise UsageError(f"there is no {kind} {name!r}", f"known: {known}")
    return device


def load(path: Path) -> dict[str, Device]:
    """The devices of a catalogue file (TOML, as devices.toml); UsageError where it is wrong."""
    entries = read_toml(path, "a file of devices", "devices.toml for the form")
    return {name: _device(path, name, entry) for name, entry in entries.items()}


def _device(path: Path, name: str, entry: Any) -> Device:
    if not isinstance(entry, dict):
        raise UsageError(f"{path}: {name} stands outside of any device", "write [NAME] above it")
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
        raise UsageError(f"{where}: there is no such parameter of a {kind}", f"known: {there}")
    if isinstance(raw, dict) and isinstance(raw.get("value"), list):
        raw = raw | {"value": tuple(raw["value"])}
    given = _checked(_VALUE, raw, path, name, key)
    units = UNITS[known.quantity]
    if given.unit not in units:
        raise UsageError(
            f"{where}: unit {given.unit!r} is none of {known.quantity}", _one_of(units)
        )
    low, high = given.value if isinstance(given.value, tuple) else (given.value, given.value)
    if low > high:
        raise UsageError(f"{where}: [{low:g}, {high:g}] is no interval", "give [low, high]")
    if low == 0 and not known.zero:
        raise UsageError(f"{where}: 0 cannot be", "leave out what is not known")
    if given.bound is not None and low != high:
        raise UsageError(f"{where}: an interval with a bound", "give one value, or no bound")
    scale = units[given.unit]
    if high * scale > MOST.get(known.quantity, MOST_ELSE):
        raise UsageError(f"{where}: {high:g} {given.unit} cannot be", "give what was measured")
    return Parameter(
        low * scale, high * scale, given.unit, given.confidence, given.source, given.bound
    )


def _checked(adapter: TypeAdapter[Any], value: Any, path: Path, name: str, key: str) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        # Of a union every branch complains: an interval's fault is what that branch says.
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
