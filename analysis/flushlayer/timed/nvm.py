"""Wear, lifetime and energy of a medium that a layer writes to."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracer.analysis.flushlayer.devices import Device
from tracer.analysis.flushlayer.timed.outcome import DeviceUse
from tracer.probes.errors import UsageError

YEAR_S = 365.25 * 86400
DAY_S = 86400


@dataclass(frozen=True)
class Wear:
    """The wear of a medium at a rate of writing, if all cells wear evenly."""

    bytes_per_s: float
    cycles_per_year: float
    """Writes of each cell in a year."""
    lifetime_years: tuple[float, float] | None
    """(low, high). high is inf if only a lower bound of the endurance is known; both are inf if
    nothing is written. None: the endurance is not known."""
    rated_share: tuple[float, float] | None
    """Share of the rated drive writes per day. None: the device has no such rating."""


def wear(device: Device, capacity_bytes: float, written_bytes: float, seconds: float) -> Wear:
    """Returns the wear of `written_bytes` in `seconds` on a medium of `capacity_bytes`.

    The model assumes even wear: a real device levels wear at the cost of more writes, and without
    levelling the hottest cell fails first. lifetime = endurance x capacity / rate. A device
    writes whole grains; whole pages in `DeviceUse.bytes_written` are a multiple of a grain.
    Raises UsageError if a number is out of range.
    """
    for name, value, least in (
        ("capacity", capacity_bytes, 1.0),
        ("bytes written", written_bytes, 0.0),
        ("seconds", seconds, 1e-9),
    ):
        if not (math.isfinite(value) and value >= least):
            raise UsageError(
                f"a layer's {name} of {value} cannot be", "give the values of a simulation"
            )
    rate = written_bytes / seconds
    cycles_per_year = rate * YEAR_S / capacity_bytes
    endurance = device.interval("endurance")
    lifetime = None
    if endurance is not None:
        low, high = endurance
        lifetime = (_ratio(low, cycles_per_year), _ratio(high, cycles_per_year))
    per_day = device.interval("drive_writes_per_day")
    share = None
    if per_day is not None:
        a_day = rate * DAY_S / capacity_bytes
        share = (a_day / per_day[1], a_day / per_day[0] if per_day[0] else math.inf)
    return Wear(rate, cycles_per_year, lifetime, share)


def energy_j(device: Device, use: DeviceUse) -> float | None:
    """Returns the energy of a device while it was busy, in joules; None if its power is unknown.

    Energy is power x busy time. Reads and writes share the busy time by their bytes and count
    with power_read and power_write. For a device with channels, the busy time is the mean over
    the channels, because the power is that of the whole device. Idle power is not known for any
    device and is left out.
    """
    moved = use.bytes_read + use.bytes_written
    if moved == 0:
        return 0.0
    busy_s = use.busy_ns / use.channels / 1e9
    joules = 0.0
    for size, name in ((use.bytes_written, "power_write"), (use.bytes_read, "power_read")):
        power = device.value(name)
        if size and power is None:
            return None
        joules += (power or 0.0) * busy_s * size / moved
    return joules


def _ratio(endurance: float, per_year: float) -> float:
    return endurance / per_year if per_year else math.inf
