"""Service time of one request on a device, compiled.

Three families:

flat         the same time for every request, at any place and of any size.
mechanical   seek by distance, then rotation until the sector passes the head, then transfer. A
             seek over a share x of the tracks takes t1 + b sqrt(x) when short and grows linearly
             when long (Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE
             Computer 27(3), 1994). Sectors lie at fixed angles, all tracks are equally long, and
             a sequential run changes tracks without losing a rotation.
electronic   SSDs and memories: a latency in one of the channels, then the transfer over a bus
             that all channels share, in the order in which requests start. The bus takes requests
             no faster than the device's rate of small requests.
"""

from __future__ import annotations

import math
from typing import Any

from tracer.analysis.flushlayer.timed.state import FLUSH, READ
from tracer.probes.compiled import compiled_lean

FLAT, MECHANICAL, ELECTRONIC = 0, 1, 2

# Columns of a model. A column with a write and a read value takes two numbers, write first.
FAMILY, SERVERS, DEPTH, SHORTEST, MERGE_SECTORS, CACHE_BYTES, CACHE_NS_PER_BYTE = range(7)
OVERHEAD_NS, LATENCY_NS, NS_PER_BYTE, GAP_NS, GRAIN, PER_PAGE = 7, 8, 10, 12, 14, 15
PERIOD_NS, TRACK_SECTORS, TRACKS, TURNS_MEAN = 17, 18, 19, 20
SEEK_TRACK, SEEK_ROOT, SEEK_CROSS, SEEK_SLOPE = 21, 23, 25, 27
FLUSH_NS, FUA_NS = 29, 30
MODEL = 31

SECTOR_BYTES = 512


@compiled_lean
def seek_ns(model: Any, device: int, op: int, tracks: int) -> float:
    """Returns the time in ns of a seek over `tracks` tracks; 0 for 0 tracks."""
    if tracks == 0:
        return 0.0
    share = min(1.0, tracks / model[device, TRACKS])
    cross = model[device, SEEK_CROSS + op]
    short = min(share, cross)
    return float(
        model[device, SEEK_TRACK + op]
        + model[device, SEEK_ROOT + op] * math.sqrt(short)
        + model[device, SEEK_SLOPE + op] * (share - short)
    )


@compiled_lean
def positioning_ns(
    model: Any, device: int, op: int, sector: int, head: int, head_since: int, now: int
) -> int:
    """Returns the time in ns of seek and rotation before a mechanical disk accesses `sector`.

    The last request ended before sector `head` at `head_since`. A request that continues there
    needs no positioning if it is a read (the disk reads ahead) or a write that starts at once.
    """
    if sector == head and (op == READ or now == head_since):
        return 0
    per_track = int(model[device, TRACK_SECTORS])
    seek = round(seek_ns(model, device, op, abs(sector // per_track - head // per_track)))
    period = int(model[device, PERIOD_NS])
    if model[device, TURNS_MEAN]:
        return seek + period // 2
    angle = sector % per_track * period // per_track
    there = now + int(model[device, OVERHEAD_NS]) + seek
    return seek + (angle - there) % period


@compiled_lean
def service_ns(
    model: Any,
    device: int,
    op: int,
    sector: int,
    sectors: int,
    head: int,
    head_since: int,
    bus_free: int,
    now: int,
) -> Any:
    """Returns (time until the request is done, time at which the bus is free), both in ns.

    `op` is WRITE or READ of `sectors` sectors from `sector` on, or FLUSH. The request starts at
    `now`.
    """
    if op == FLUSH:
        return int(model[device, FLUSH_NS]), bus_free
    overhead = int(model[device, OVERHEAD_NS])
    family = model[device, FAMILY]
    size = float(sectors * SECTOR_BYTES)
    if family == FLAT:
        return overhead + int(model[device, LATENCY_NS + op]), bus_free
    if family == MECHANICAL:
        transfer = round(size * model[device, NS_PER_BYTE + op])
        move = positioning_ns(model, device, op, sector, head, head_since, now)
        return overhead + move + transfer, bus_free
    latency = model[device, LATENCY_NS + op]
    if model[device, PER_PAGE + op] and sectors > 8:
        latency *= (sectors + 7) // 8
    grain = model[device, GRAIN]
    if grain > 0:
        size = math.ceil(size / grain) * grain
    bus = round(max(model[device, GAP_NS + op], size * model[device, NS_PER_BYTE + op]))
    start = now + overhead + round(latency)
    if bus > 0:
        start = max(start, bus_free)
        bus_free = start + bus
    return start + bus - now, bus_free
