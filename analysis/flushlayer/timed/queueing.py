"""The event queue and the request queue of each device: compiled, over the arrays of a World."""

from __future__ import annotations

from typing import Any

from tracer.analysis.flushlayer.timed import service
from tracer.analysis.flushlayer.timed.state import (
    AT_SECTOR,
    AT_TIME,
    BUS_FREE,
    BUSY,
    BYTES_READ,
    BYTES_WRITTEN,
    CHANGED,
    EVENT_BITS,
    FINISH_SERVICE,
    FLUSH,
    FREE,
    FREE_PART,
    FREE_PARTS,
    HEAD,
    HEAP_SIZE,
    IN_SYSTEM,
    MERGED,
    MOST,
    NOW,
    P_AHEAD,
    P_BEHIND,
    P_CHAIN,
    P_DEVICE,
    P_FUA,
    P_KIND,
    P_LAST,
    P_LAYER,
    P_OP,
    P_OWN_SECTORS,
    P_OWNER,
    P_SECTOR,
    P_SECTORS,
    P_SINCE,
    PARTS,
    PASSED,
    READ,
    SEQUENCE,
    SERVED,
    TAIL,
    TOUCHED,
    TOUCHES,
    WAITING,
)
from tracer.probes.compiled import compiled_lean

MERGE_WINDOW = 64
"""Most of the youngest waiting requests that a merge considers."""


@compiled_lean
def push(w: Any, at: int, kind: int, row: int) -> None:
    """Adds an event. Events at the same time leave in the order in which they were added."""
    heap, clock = w.heap, w.clock
    here = clock[HEAP_SIZE]
    clock[HEAP_SIZE] += 1
    sequence = clock[SEQUENCE]
    clock[SEQUENCE] += 1
    while here > 0:
        above = (here - 1) >> 1
        if heap[above, 0] <= at:
            break
        heap[here, 0] = heap[above, 0]
        heap[here, 1] = heap[above, 1]
        heap[here, 2] = heap[above, 2]
        here = above
    heap[here, 0] = at
    heap[here, 1] = sequence
    heap[here, 2] = kind | (row << EVENT_BITS)


@compiled_lean
def pop(w: Any) -> int:
    """Removes the first event and returns its kind and row, packed."""
    heap, clock = w.heap, w.clock
    first = heap[0, 2]
    clock[HEAP_SIZE] -= 1
    last = clock[HEAP_SIZE]
    at, sequence, what = heap[last, 0], heap[last, 1], heap[last, 2]
    here = 0
    while True:
        below = 2 * here + 1
        if below >= last:
            break
        right = below + 1
        if right < last and (
            heap[right, 0] < heap[below, 0]
            or (heap[right, 0] == heap[below, 0] and heap[right, 1] < heap[below, 1])
        ):
            below = right
        if at < heap[below, 0] or (at == heap[below, 0] and sequence < heap[below, 1]):
            break
        heap[here, 0] = heap[below, 0]
        heap[here, 1] = heap[below, 1]
        heap[here, 2] = heap[below, 2]
        here = below
    heap[here, 0] = at
    heap[here, 1] = sequence
    heap[here, 2] = what
    return int(first)


@compiled_lean
def count(w: Any, device: int, change: int) -> None:
    """Adds `change` to the number of parts in a device from now on."""
    line = w.line
    now = w.clock[NOW]
    w.area[device] += float(line[device, IN_SYSTEM]) * float(now - line[device, CHANGED])
    line[device, CHANGED] = now
    line[device, IN_SYSTEM] += change
    line[device, MOST] = max(line[device, MOST], line[device, IN_SYSTEM])


@compiled_lean
def submit(
    w: Any, device: int, op: int, sector: int, sectors: int, fua: int, kind: int, owner: int
) -> int:
    """Puts a part in the queue of a device and merges it with an adjacent waiting request.

    It does not start the part, because all parts that arrive at one time may merge first
    (`start`). Returns the row of the part.
    """
    part, line, clock = w.part, w.line, w.clock
    row = clock[FREE_PART]
    clock[FREE_PART] = part[row, P_BEHIND]
    clock[FREE_PARTS] -= 1
    part[row, P_SECTOR] = sector
    part[row, P_SECTORS] = sectors
    part[row, P_OWN_SECTORS] = sectors
    part[row, P_OP] = op
    part[row, P_FUA] = fua
    part[row, P_KIND] = kind
    part[row, P_OWNER] = owner
    part[row, P_SINCE] = clock[NOW]
    part[row, P_CHAIN] = -1
    part[row, P_LAST] = row
    part[row, P_LAYER] = -1
    part[row, P_DEVICE] = device
    count(w, device, 1)
    line[device, PARTS] += 1
    if not line[device, TOUCHED]:
        line[device, TOUCHED] = 1
        w.touched[clock[TOUCHES]] = device
        clock[TOUCHES] += 1
    host = _neighbour(w, device, row)
    if host >= 0:
        if sector < part[host, P_SECTOR]:
            part[host, P_SECTOR] = sector
        part[host, P_SECTORS] += sectors
        part[part[host, P_LAST], P_CHAIN] = row
        part[host, P_LAST] = row
        line[device, MERGED] += 1
        return int(row)
    tail = line[device, TAIL]
    part[row, P_AHEAD] = tail
    part[row, P_BEHIND] = -1
    if tail >= 0:
        part[tail, P_BEHIND] = row
    else:
        line[device, HEAD] = row
    line[device, TAIL] = row
    line[device, WAITING] += 1
    return int(row)


@compiled_lean
def _neighbour(w: Any, device: int, row: int) -> int:
    """Returns the waiting request that a part can be merged with, or -1."""
    part = w.part
    most = w.model[device, service.MERGE_SECTORS]
    if most <= 0:
        return -1
    sector, sectors = part[row, P_SECTOR], part[row, P_SECTORS]
    other = w.line[device, TAIL]
    for _ in range(MERGE_WINDOW):
        if other < 0:
            return -1
        touches = (
            part[other, P_SECTOR] + part[other, P_SECTORS] == sector
            or sector + sectors == part[other, P_SECTOR]
        )
        if (
            touches
            and part[other, P_OP] == part[row, P_OP]
            and part[other, P_FUA] == part[row, P_FUA]
            and part[other, P_SECTORS] + sectors <= most
        ):
            return int(other)
        other = part[other, P_AHEAD]
    return -1


@compiled_lean
def start(w: Any) -> None:
    """Starts waiting requests on every device that got a part or finished a request."""
    clock, line = w.clock, w.line
    for i in range(clock[TOUCHES]):
        device = w.touched[i]
        line[device, TOUCHED] = 0
        while line[device, FREE] > 0 and line[device, HEAD] >= 0:
            _serve(w, device, _choose(w, device))
    clock[TOUCHES] = 0


@compiled_lean
def _choose(w: Any, device: int) -> int:
    """Returns the waiting request that the device serves next, by the device's order."""
    part, line, model = w.part, w.line, w.model
    first = line[device, HEAD]
    depth = int(model[device, service.DEPTH])
    if not model[device, service.SHORTEST] or line[device, PASSED] >= depth:
        line[device, PASSED] = 0
        return int(first)
    best, soonest = first, -1
    other = first
    for _ in range(depth):
        if other < 0:
            break
        took = service.positioning_ns(
            model,
            device,
            part[other, P_OP],
            part[other, P_SECTOR],
            line[device, AT_SECTOR],
            line[device, AT_TIME],
            w.clock[NOW],
        )
        if soonest < 0 or took < soonest:
            best, soonest = other, took
        other = part[other, P_BEHIND]
    line[device, PASSED] = 0 if best == first else line[device, PASSED] + 1
    return int(best)


@compiled_lean
def _serve(w: Any, device: int, row: int) -> None:
    part, line = w.part, w.line
    ahead, behind = part[row, P_AHEAD], part[row, P_BEHIND]
    if ahead >= 0:
        part[ahead, P_BEHIND] = behind
    else:
        line[device, HEAD] = behind
    if behind >= 0:
        part[behind, P_AHEAD] = ahead
    else:
        line[device, TAIL] = ahead
    line[device, WAITING] -= 1
    line[device, FREE] -= 1
    now = w.clock[NOW]
    op, sector, sectors = part[row, P_OP], part[row, P_SECTOR], part[row, P_SECTORS]
    took, bus_free = service.service_ns(
        w.model,
        device,
        op,
        sector,
        sectors,
        line[device, AT_SECTOR],
        line[device, AT_TIME],
        line[device, BUS_FREE],
        now,
    )
    if part[row, P_FUA]:
        # The device has no FUA command of its own: a FUA write is a write and a flush.
        took += int(w.model[device, service.FLUSH_NS])
    line[device, BUS_FREE] = bus_free
    if op != FLUSH:
        line[device, AT_SECTOR] = sector + sectors
        line[device, AT_TIME] = now + took
    line[device, BUSY] += took
    line[device, SERVED] += 1
    line[device, BYTES_READ if op == READ else BYTES_WRITTEN] += sectors * service.SECTOR_BYTES
    push(w, now + took, FINISH_SERVICE, row)


@compiled_lean
def release(w: Any, row: int) -> int:
    """Frees the row of a finished part; returns the next part of its chain, or -1."""
    part, clock = w.part, w.clock
    following = part[row, P_CHAIN]
    part[row, P_BEHIND] = clock[FREE_PART]
    clock[FREE_PART] = row
    clock[FREE_PARTS] += 1
    return int(following)


@compiled_lean
def free_server(w: Any, device: int) -> None:
    """Frees one server of a device that has finished a request, so that it can start another."""
    line, clock = w.line, w.clock
    line[device, FREE] += 1
    if not line[device, TOUCHED]:
        line[device, TOUCHED] = 1
        w.touched[clock[TOUCHES]] = device
        clock[TOUCHES] += 1
