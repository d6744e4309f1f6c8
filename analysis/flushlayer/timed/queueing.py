"""The event queue and the request queue of each device: compiled, over the arrays of a World."""

from __future__ import annotations

from typing import Any

from tracer.analysis.flushlayer.timed import service
from tracer.analysis.flushlayer.timed.state import EVENT_BITS, FINISH_SERVICE, FLUSH, READ
from tracer.probes.compiled import compiled_lean

MERGE_WINDOW = 64
"""Most of the youngest waiting requests that a merge considers."""


@compiled_lean
def push(w: Any, at: int, kind: int, row: int) -> None:
    """Adds an event. Events at the same time leave in the order in which they were added."""
    heap, clock = w.heap, w.clock[0]
    here = clock.heap_size
    clock.heap_size += 1
    sequence = clock.sequence
    clock.sequence += 1
    while here > 0:
        above = (here - 1) >> 1
        if heap[above].at <= at:
            break
        heap[here].at = heap[above].at
        heap[here].sequence = heap[above].sequence
        heap[here].what = heap[above].what
        here = above
    heap[here].at = at
    heap[here].sequence = sequence
    heap[here].what = kind | (row << EVENT_BITS)


@compiled_lean
def pop(w: Any) -> int:
    """Removes the first event and returns its kind and row, packed."""
    heap, clock = w.heap, w.clock[0]
    first = heap[0].what
    clock.heap_size -= 1
    last = clock.heap_size
    at, sequence, what = heap[last].at, heap[last].sequence, heap[last].what
    here = 0
    while True:
        below = 2 * here + 1
        if below >= last:
            break
        right = below + 1
        if right < last and (
            heap[right].at < heap[below].at
            or (heap[right].at == heap[below].at and heap[right].sequence < heap[below].sequence)
        ):
            below = right
        if at < heap[below].at or (at == heap[below].at and sequence < heap[below].sequence):
            break
        heap[here].at = heap[below].at
        heap[here].sequence = heap[below].sequence
        heap[here].what = heap[below].what
        here = below
    heap[here].at = at
    heap[here].sequence = sequence
    heap[here].what = what
    return int(first)


@compiled_lean
def count(w: Any, device: int, change: int) -> None:
    """Adds `change` to the number of parts in a device from now on."""
    line = w.line
    now = w.clock[0].now
    w.area[device] += float(line[device].in_system) * float(now - line[device].changed)
    line[device].changed = now
    line[device].in_system += change
    line[device].most = max(line[device].most, line[device].in_system)


@compiled_lean
def submit(
    w: Any, device: int, op: int, sector: int, sectors: int, fua: int, kind: int, owner: int
) -> int:
    """Puts a part in the queue of a device and merges it with an adjacent waiting request.

    It does not start the part, because all parts that arrive at one time may merge first
    (`start`). Returns the row of the part.
    """
    part, line, clock = w.part, w.line, w.clock[0]
    row = clock.free_part
    clock.free_part = part[row].behind
    clock.free_parts -= 1
    part[row].sector = sector
    part[row].sectors = sectors
    part[row].own_sectors = sectors
    part[row].op = op
    part[row].fua = fua
    part[row].kind = kind
    part[row].owner = owner
    part[row].since = clock.now
    part[row].chain = -1
    part[row].last = row
    part[row].layer = -1
    part[row].device = device
    count(w, device, 1)
    line[device].parts += 1
    if not line[device].touched:
        line[device].touched = 1
        w.touched[clock.touches] = device
        clock.touches += 1
    host = _neighbour(w, device, row)
    if host >= 0:
        if sector < part[host].sector:
            part[host].sector = sector
        part[host].sectors += sectors
        part[part[host].last].chain = row
        part[host].last = row
        line[device].merged += 1
        return int(row)
    tail = line[device].tail
    part[row].ahead = tail
    part[row].behind = -1
    if tail >= 0:
        part[tail].behind = row
    else:
        line[device].head = row
    line[device].tail = row
    line[device].waiting += 1
    return int(row)


@compiled_lean
def _neighbour(w: Any, device: int, row: int) -> int:
    """Returns the waiting request that a part can be merged with, or -1.

    The device already has as many of the oldest ones as its queue holds. Those can only be merged
    while they arrive together.
    """
    part = w.part
    most = w.model[device, service.MERGE_SECTORS]
    if most <= 0:
        return -1
    sector, sectors = part[row].sector, part[row].sectors
    other = w.line[device].tail
    depth = int(w.model[device, service.DEPTH])
    for step in range(MERGE_WINDOW):
        if other < 0:
            return -1
        is_there = w.line[device].waiting - step < depth
        if is_there and part[other].since < w.clock[0].now:
            return -1
        touches = (
            part[other].sector + part[other].sectors == sector
            or sector + sectors == part[other].sector
        )
        if (
            touches
            and part[other].op == part[row].op
            and part[other].fua == part[row].fua
            and part[other].sectors + sectors <= most
        ):
            return int(other)
        other = part[other].ahead
    return -1


@compiled_lean
def start(w: Any) -> None:
    """Starts waiting requests on every device that got a part or finished a request."""
    clock, line = w.clock[0], w.line
    for i in range(clock.touches):
        device = w.touched[i]
        line[device].touched = 0
        while line[device].free > 0 and line[device].head >= 0:
            _serve(w, device, _choose(w, device))
    clock.touches = 0


@compiled_lean
def _choose(w: Any, device: int) -> int:
    """Returns the waiting request that the device serves next, by the device's order."""
    part, line, model = w.part, w.line, w.model
    first = line[device].head
    depth = int(model[device, service.DEPTH])
    if not model[device, service.SHORTEST] or line[device].passed >= depth:
        line[device].passed = 0
        return int(first)
    best, soonest = first, -1
    other = first
    for _ in range(depth):
        if other < 0:
            break
        took = service.positioning_ns(
            model,
            device,
            part[other].op,
            part[other].sector,
            line[device].at_sector,
            line[device].at_time,
            w.clock[0].now,
        )
        if soonest < 0 or took < soonest:
            best, soonest = other, took
        other = part[other].behind
    line[device].passed = 0 if best == first else line[device].passed + 1
    return int(best)


@compiled_lean
def _serve(w: Any, device: int, row: int) -> None:
    part, line = w.part, w.line
    ahead, behind = part[row].ahead, part[row].behind
    if ahead >= 0:
        part[ahead].behind = behind
    else:
        line[device].head = behind
    if behind >= 0:
        part[behind].ahead = ahead
    else:
        line[device].tail = ahead
    line[device].waiting -= 1
    line[device].free -= 1
    now = w.clock[0].now
    op, sector, sectors = part[row].op, part[row].sector, part[row].sectors
    took, bus_free = service.service_ns(
        w.model,
        device,
        op,
        sector,
        sectors,
        line[device].at_sector,
        line[device].at_time,
        line[device].bus_free,
        now,
    )
    if part[row].fua:
        took += int(w.model[device, service.FUA_NS])
    line[device].bus_free = bus_free
    if op != FLUSH:
        line[device].at_sector = sector + sectors
        line[device].at_time = now + took
    line[device].busy += took
    line[device].served += 1
    if op == READ:
        line[device].bytes_read += sectors * service.SECTOR_BYTES
    else:
        line[device].bytes_written += sectors * service.SECTOR_BYTES
    push(w, now + took, FINISH_SERVICE, row)


@compiled_lean
def release(w: Any, row: int) -> int:
    """Frees the row of a finished part; returns the next part of its chain, or -1."""
    part, clock = w.part, w.clock[0]
    following = part[row].chain
    part[row].behind = clock.free_part
    clock.free_part = row
    clock.free_parts += 1
    return int(following)


@compiled_lean
def free_server(w: Any, device: int) -> None:
    """Frees one server of a device that has finished a request, so that it can start another."""
    line, clock = w.line, w.clock[0]
    line[device].free += 1
    if not line[device].touched:
        line[device].touched = 1
        w.touched[clock.touches] = device
        clock.touches += 1
