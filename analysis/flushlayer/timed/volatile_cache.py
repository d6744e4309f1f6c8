"""Writes to a disk, its volatile cache, and the flushes that empty the cache: compiled."""

from __future__ import annotations

from typing import Any

from tracer.analysis.flushlayer.timed import service
from tracer.analysis.flushlayer.timed.completion import finish
from tracer.analysis.flushlayer.timed.destage import commit
from tracer.analysis.flushlayer.timed.queueing import push, submit
from tracer.analysis.flushlayer.timed.state import (
    ACKNOWLEDGE,
    CACHE_OUT,
    CACHE_USED,
    CACHED,
    DEVICE,
    E_FLUSH,
    E_NEXT,
    E_OUT,
    EPOCH,
    EPOCHS,
    FLUSH,
    FLUSHES_PASS,
    FUA,
    HOST,
    LAST_HOST,
    NOW,
    OLDEST_EPOCH,
    P_EPOCH,
    PENDING,
    SECTOR,
    SECTORS,
    WRITE,
)
from tracer.probes.compiled import compiled_lean


@compiled_lean
def to_disk(w: Any, m: int) -> None:
    """Sends a write to the disk, whose cache may acknowledge it before it is on the medium."""
    bio, line = w.bio, w.line
    device = bio[m, DEVICE]
    sectors = bio[m, SECTORS]
    if sectors == 0:
        finish(w, m)
        return
    line[device, LAST_HOST] = w.clock[NOW]
    size = sectors * service.SECTOR_BYTES
    room = w.model[device, service.CACHE_BYTES] - line[device, CACHE_USED]
    if bio[m, FUA] or size > room:
        bio[m, PENDING] = 1
        submit(w, device, WRITE, bio[m, SECTOR], sectors, bio[m, FUA], HOST, m)
        return
    row = submit(w, device, WRITE, bio[m, SECTOR], sectors, 0, CACHED, m)
    epoch = line[device, EPOCH]
    w.part[row, P_EPOCH] = epoch
    w.epoch[epoch, E_OUT] += 1
    line[device, CACHE_USED] += size
    line[device, CACHE_OUT] += 1
    took = round(size * w.model[device, service.CACHE_NS_PER_BYTE])
    push(w, w.clock[NOW] + took, ACKNOWLEDGE, m)


@compiled_lean
def flush(w: Any, m: int) -> None:
    """Starts a flush. It ends when all writes that the disk's cache accepted before it are on the
    disk, and when its target has spent its flush latency. The target is the layer's medium, or the
    disk if there is no layer or flushes pass it. A disk that empties its cache spends no flush
    latency."""
    commit(w)
    bio, line, epoch = w.bio, w.line, w.epoch
    device = bio[m, DEVICE]
    asked = device if w.clock[FLUSHES_PASS] else line.shape[0] - 1
    empties = line[device, CACHE_OUT] > 0
    takes_time = w.model[asked, service.FLUSH_NS] > 0 and not (empties and asked == device)
    bio[m, PENDING] = int(empties) + int(takes_time)
    if bio[m, PENDING] == 0:
        finish(w, m)
        return
    if takes_time:
        submit(w, asked, FLUSH, bio[m, SECTOR], 0, 0, HOST, m)
    if empties:
        closed = line[device, EPOCH]
        epoch[closed, E_FLUSH] = m
        fresh = w.clock[EPOCHS]
        w.clock[EPOCHS] += 1
        epoch[closed, E_NEXT] = fresh
        line[device, EPOCH] = fresh


@compiled_lean
def end_epochs(w: Any, device: int) -> None:
    """Ends the wait of each flush for the disk's cache once all writes accepted before it are on
    the disk."""
    line, epoch = w.line, w.epoch
    while True:
        oldest = line[device, OLDEST_EPOCH]
        m = epoch[oldest, E_FLUSH]
        if epoch[oldest, E_OUT] > 0 or m < 0:
            return
        line[device, OLDEST_EPOCH] = epoch[oldest, E_NEXT]
        w.bio[m, PENDING] -= 1
        if w.bio[m, PENDING] == 0:
            finish(w, m)
