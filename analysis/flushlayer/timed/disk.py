"""The model of a disk or SSD, made from its parameters in the catalogue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.devices import Device, fua_ns, missing, page_ns
from tracer.analysis.flushlayer.timed import service
from tracer.analysis.flushlayer.timed.electronic import electronic
from tracer.analysis.flushlayer.timed.state import READ, WRITE
from tracer.probes.errors import UsageError

OPS: tuple[tuple[int, Literal["write", "read"]], ...] = ((WRITE, "write"), (READ, "read"))
MERGE_SECTORS = 2560
"""Most sectors of a merged request: 1280 KiB, the max_sectors_kb of Linux."""

# E[sqrt(x)] for the distance x between two random places; x has the density 2 (1 - x).
_MEAN_ROOT = 8 / 15


@dataclass(frozen=True)
class Seek:
    """The seek curve in ns over the share x (0 to 1) of the tracks.

    t(x) = track + root sqrt(x) up to x = cross; linear with `slope` beyond.
    """

    track: float
    root: float
    cross: float
    slope: float


@dataclass(frozen=True)
class Disk:
    """A disk of the simulation.

    order: "arrival" or "shortest". "shortest" serves the request that the head reaches first
    among the queue_depth oldest ones; it passes the oldest over at most queue_depth times.
    rotation: "angle", from the angle of the sector at that time, or "mean", half a turn. merge:
    whether adjacent requests are merged while they wait. The volatile cache serves no reads.
    """

    device: Device
    order: Literal["arrival", "shortest"] | None = None
    """None: "shortest" if the device is mechanical and takes several requests at once."""
    rotation: Literal["angle", "mean"] = "angle"
    merge: bool = True
    write_cache: bool = True
    """True if the device's volatile cache, if any, is on."""

    def model(self, span_sectors: int = 0) -> NDArray[np.float64]:
        """Returns a row of service.MODEL columns.

        The modelled disk is at least `span_sectors` long, because the recorded disk was. Raises
        UsageError if the catalogue lacks a parameter that the model needs.
        """
        device = self.device
        row = electronic(device) if device.kind == "ssd" else self._moving(span_sectors)
        depth = max(1, int(device.value("queue_depth") or 1))
        mechanical = row[service.FAMILY] == service.MECHANICAL
        shortest = self.order == "shortest" or (self.order is None and mechanical and depth > 1)
        row[service.DEPTH] = depth
        row[service.SHORTEST] = shortest and mechanical
        row[service.MERGE_SECTORS] = MERGE_SECTORS if self.merge else 0
        row[service.OVERHEAD_NS] = device.value("overhead") or 0
        row[service.FLUSH_NS] = device.value("flush_latency") or 0
        row[service.FUA_NS] = fua_ns(device)
        if self.write_cache:
            row[service.CACHE_BYTES] = device.value("write_cache") or 0
            interface = device.value("interface")
            row[service.CACHE_NS_PER_BYTE] = 1e9 / interface if interface else 0
        return row

    def _moving(self, span_sectors: int) -> NDArray[np.float64]:
        device = self.device
        row = np.zeros(service.MODEL)
        row[service.SERVERS] = 1
        if device.value("seek_write") is None:
            row[service.FAMILY] = service.FLAT
            for op, name in OPS:
                row[service.LATENCY_NS + op] = page_ns(device, name)
            return row
        rotation = device.value("rotation")
        rates = [device.value("bandwidth_write"), device.value("bandwidth_read")]
        capacity = device.value("capacity")
        if not rotation:
            raise missing(device, "rotation")
        if not rates[0] or not rates[1]:
            raise missing(device, "bandwidth_read and bandwidth_write")
        if not capacity:
            raise missing(device, "capacity")
        period = round(60e9 / rotation)
        per_track = max(1, round(max(rates[0], rates[1]) * period / 1e9 / service.SECTOR_BYTES))
        row[service.FAMILY] = service.MECHANICAL
        row[service.PERIOD_NS] = period
        row[service.TRACK_SECTORS] = per_track
        span = max(capacity / service.SECTOR_BYTES, span_sectors)
        row[service.TRACKS] = max(1.0, math.ceil(span / per_track))
        row[service.TURNS_MEAN] = self.rotation == "mean"
        for op, name in OPS:
            curve = seek_curve(device, name)
            row[service.SEEK_TRACK + op] = curve.track
            row[service.SEEK_ROOT + op] = curve.root
            row[service.SEEK_CROSS + op] = curve.cross
            row[service.SEEK_SLOPE + op] = curve.slope
            row[service.NS_PER_BYTE + op] = 1e9 / (rates[op] or math.inf)
        return row

    def assumptions(self) -> list[str]:
        """Returns the assumptions of the model, one sentence each."""
        row = self.model()
        name = self.device.name
        family = row[service.FAMILY]
        said = []
        if family == service.FLAT:
            said.append(
                f"{name}: every request takes the same time, at any position and of any size"
            )
        elif family == service.MECHANICAL:
            turn = "half a turn" if self.rotation == "mean" else "until the sector passes the head"
            said.append(
                f"{name}: seek by distance (square root for short seeks, linear for long ones),"
                f" rotation {turn}, transfer; one zone, no defects"
            )
            if self.device.value("seek_full_write") is None:
                said.append(
                    f"{name}: the full-stroke seek time is not known; all seeks follow the"
                    " square root"
                )
        else:
            said.append(
                f"{name}: {row[service.SERVERS]:g} channels that share one bus; no garbage"
                " collection"
            )
        if row[service.SHORTEST]:
            said.append(
                f"{name}: serves the soonest reached of its {row[service.DEPTH]:g} oldest requests"
            )
        if row[service.CACHE_BYTES]:
            size = row[service.CACHE_BYTES]
            said.append(f"{name}: the volatile cache of {size:g} bytes acknowledges writes")
            if not row[service.CACHE_NS_PER_BYTE]:
                said.append(
                    f"{name}: the interface speed is not known; the cache takes writes at once"
                )
        return said


def seek_curve(device: Device, op: Literal["read", "write"]) -> Seek:
    """Returns the seek curve that fits the data sheet: track to track, mean, and full stroke.

    The mean is over pairs of random places. Without a full stroke, the square root holds for
    all distances. With one, the curve becomes linear at a point where value and slope are
    continuous, like the curves that Ruemmler and Wilkes (1994) measured. Raises UsageError if
    no such curve exists.
    """
    mean = device.value(f"seek_{op}")
    if mean is None:
        raise missing(device, f"seek_{op}")
    track = device.value(f"seek_track_{op}") or 0.0
    full = device.value(f"seek_full_{op}")
    if track > mean:
        raise UsageError(
            f"{device.name}: a seek to the next track ({track:g} ns) is longer than the mean"
            f" ({mean:g} ns)",
            f"correct seek_track_{op} or seek_{op}",
        )
    if full is None or mean == track:
        return Seek(track, (mean - track) / _MEAN_ROOT, 1.0, 0.0)
    wanted = (full - track) / (mean - track)
    # The ratio lies between a square root over all distances (15/8) and a line (3).
    if not 1 / _MEAN_ROOT <= wanted < 3:
        raise UsageError(
            f"{device.name}: no seek curve has a mean of {mean:g} ns and a full stroke of"
            f" {full:g} ns",
            f"leave out seek_full_{op}",
        )
    cross = _crossing(wanted)
    root = (mean - track) / _mean(cross)
    return Seek(track, root, cross, root / (2 * math.sqrt(cross)))


def _crossing(wanted: float) -> float:
    """Returns the share of the stroke at which `_end` is `wanted` times `_mean`, by bisection."""
    low, high = 1e-9, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if _end(middle) > wanted * _mean(middle):  # the ratio falls
            low = middle
        else:
            high = middle
    return high


def _end(cross: float) -> float:
    """Returns t(1) - track for a curve with root 1."""
    return math.sqrt(cross) + (1 - cross) / (2 * math.sqrt(cross))


def _mean(cross: float) -> float:
    """Returns E[t] - track for a curve with root 1.

    It is the sum of the integrals of 2 (1 - x) t(x) on both sides of cross.
    """
    c, root = cross, math.sqrt(cross)
    short = 4 / 3 * c * root - 4 / 5 * c * c * root
    beyond = (1 - c) ** 2
    return short + root * beyond + beyond * (1 - c) / 3 / (2 * root)
