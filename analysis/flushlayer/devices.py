"""The device catalogue: latencies with unit, source and confidence."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from probes.errors import UsageError


@dataclass(frozen=True)
class Device:
    """One device of the catalogue."""

    name: str
    kind: str
    """disk or nvm."""
    write_ns: int
    source: str
    confidence: str


@cache
def catalogue() -> dict[str, Device]:
    """Every device, by name."""
    entries = tomllib.loads(Path(__file__).with_name("devices.toml").read_text())
    return {
        name: Device(name, e["kind"], e["write_ns"], e["source"], e["confidence"])
        for name, e in entries.items()
    }


def find(name: str, kind: str) -> Device:
    """A device of one kind; UsageError, naming those there are, where there is none such."""
    device = catalogue().get(name)
    if device is None or device.kind != kind:
        known = ", ".join(d.name for d in catalogue().values() if d.kind == kind)
        raise UsageError(f"there is no {kind} {name!r}", f"known: {known}")
    return device
