"""The model of a disk or SSD, made of what the catalogue knows of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from analysis.flushlayer.devices import Device, missing, page_ns
from analysis.flushlayer.timed import service
from analysis.flushlayer.timed.electronic import electronic
from analysis.flushlayer.timed.state import READ, WRITE
from probes.errors import UsageError

OPS: tuple[tuple[int, Literal["write", "read"]], ...] = ((WRITE, "write"), (READ, "read"))
MERGE_SECTORS = 2560
"""A request grows by merging up to 1280 KiB, as Linux' max_sectors_kb has it."""

# E[sqrt(x)] of the distance between two random places: x has the density 2 (1 - x).
_MEAN_ROOT = 8 / 15


@dataclass(frozen=True)
class Seek:
    """t(x) = track + root sqrt(x) up to x = cross, linear with `slope` beyond; ns, x in 0..1."""

    track: float
    root: float
    cross: float
    slope: float


@dataclass(frozen=True)
class Disk:
    """A disk as the simulation has it.

    order: "arrival", or "shortest": of the queue_depth oldest requests the one that the head
    reaches first, the oldest being passed over at most queue_depth times. rotation: "angle", by
    the angle of the sector at that time, or "mean", half a turn. merge: whether requests that
    touch are merged while they wait. Reads are not served by the volatile cache.
    """

    device: Device
    order: Literal["arrival", "shortest"] | None = None
    """None: shortest where the device is mechanical and takes several requests at once."""
    rotation: Literal["angle", "mean"] = "angle"
    merge: bool = True
    write_cache: bool = True
    """Whether the device's volatile cache is on, if it has one."""

    def model(self, span_sectors: int = 0) -> NDArray[np.float64]:
        """A row of service.MODEL columns; UsageError where too little is known of the device.

        `span_sectors`: the recorded disk is at least so long; the model's is, too.
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
        """What the model assumes, in sentences."""
        row = self.model()
        name = self.device.name
        family = row[service.FAMILY]
        said = []
        if family == service.FLAT:
            said.append(f"{name}: any request takes the same time, whatever its place and size")
        elif family == service.MECHANICAL:
            turn = "half a turn" if self.rotation == "mean" else "until the sector comes by"
            said.append(
                f"{name}: seek by distance (a square root, linear when long), rotation {turn},"
                " transfer; one zone, no defects"
            )
            if self.device.value("seek_full_write") is None:
                said.append(f"{name}: full stroke unknown; the square root holds for all seeks")
        else:
            said.append(f"{name}: {row[service.SERVERS]:g} channels before one bus; no clean-up")
        if row[service.SHORTEST]:
            said.append(
                f"{name}: of {row[service.DEPTH]:g} requests the soonest reached goes first"
            )
        if row[service.CACHE_BYTES]:
            size = row[service.CACHE_BYTES]
            said.append(f"{name}: its volatile cache of {size:g} bytes acknowledges writes")
            if not row[service.CACHE_NS_PER_BYTE]:
                said.append(f"{name}: the speed of its interface is not known: at once")
        return said


def seek_curve(device: Device, op: Literal["read", "write"]) -> Seek:
    """The curve through the data sheet's seeks: to the next track, in the mean, over all tracks.

    The mean is over pairs of random places. Without the full stroke the square root holds for
    all distances; with it the curve turns linear where value and slope go on smoothly, as the
    curves that Ruemmler and Wilkes (1994) measured do. UsageError where no such curve exists.
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
            f"mend seek_track_{op} or seek_{op}",
        )
    if full is None or mean == track:
        return Seek(track, (mean - track) / _MEAN_ROOT, 1.0, 0.0)
    wanted = (full - track) / (mean - track)
    # Between a square root over all distances (15/8) and a line (3).
    if not 1 / _MEAN_ROOT <= wanted < 3:
        raise UsageError(
            f"{device.name}: no seek curve has a mean of {mean:g} ns and a full stroke of"
            f" {full:g} ns",
            f"leave out seek_full_{op}",
        )
    cross = float(brentq(lambda x: _end(x) / _mean(x) - wanted, 1e-9, 1.0))
    root = (mean - track) / _mean(cross)
    return Seek(track, root, cross, root / (2 * math.sqrt(cross)))


def _end(cross: float) -> float:
    """t(1) - track of a curve with root 1."""
    return math.sqrt(cross) + (1 - cross) / (2 * math.sqrt(cross))


def _mean(cross: float) -> float:
    """E[t] - track of a curve with root 1: integrals of 2 (1 - x) t(x) on both sides of cross."""
    c, root = cross, math.sqrt(cross)
    short = 4 / 3 * c * root - 4 / 5 * c * c * root
    beyond = (1 - c) ** 2
    return short + root * beyond + beyond * (1 - c) / 3 / (2 * root)
