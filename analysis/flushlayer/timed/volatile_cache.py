"""Writes to a disk, its volatile cache, and the flushes that empty the cache: compiled."""

from __future__ import annotations

from typing import Any

from tracer.analysis.flushlayer.timed import service
from tracer.analysis.flushlayer.timed.completion import finish, pass_around
from tracer.analysis.flushlayer.timed.destage import commit
from tracer.analysis.flushlayer.timed.queueing import push, submit
from tracer.analysis.flushlayer.timed.state import (
    ACKNOWLEDGE,
    ALL_LAYERS,
    CACHED,
    FLUSH,
    HOST,
    WRITE,
)
from tracer.probes.compiled import compiled_lean


@compiled_lean
def to_disk(w: Any, m: int) -> None:
    """Sends a write to the disk, whose cache may acknowledge it before it is on the medium."""
    bio, line = w.bio, w.line
    device = bio[m].device
    sectors = bio[m].sectors
    if sectors == 0:
        finish(w, m)
        return
    line[device].last_host = w.clock[0].now
    size = sectors * service.SECTOR_BYTES
    room = w.model[device, service.CACHE_BYTES] - line[device].cache_used
    if bio[m].fua or size > room:
        bio[m].pending = 1
        submit(w, device, WRITE, bio[m].sector, sectors, bio[m].fua, HOST, m)
        return
    row = submit(w, device, WRITE, bio[m].sector, sectors, 0, CACHED, m)
    epoch = line[device].epoch
    w.part[row].epoch = epoch
    w.epoch[epoch].out += 1
    line[device].cache_used += size
    line[device].cache_out += 1
    took = round(size * w.model[device, service.CACHE_NS_PER_BYTE])
    push(w, w.clock[0].now + took, ACKNOWLEDGE, m)


@compiled_lean
def flush(w: Any, m: int) -> None:
    """Starts a flush, which first commits the layer.

    It ends when all writes that the disk's cache accepted before it are on the disk, and when its
    targets have spent their flush latency. The target is the layer's medium, or the disk if there
    is no layer or flushes pass it; by some destage policies, both. A disk that empties its cache
    spends no flush latency.
    """
    commit(w)
    bio, line, epoch = w.bio, w.line, w.epoch
    device, medium = bio[m].device, line.shape[0] - 1
    passes = w.clock[0].flushes_pass
    both = w.rule[0].flushes and w.layer.shape[0] > 0
    if both:
        pass_around(w, m, ALL_LAYERS)
    empties = line[device].cache_out > 0
    on_disk = (passes or both) and not empties and w.model[device, service.FLUSH_NS] > 0
    on_medium = not passes and w.model[medium, service.FLUSH_NS] > 0
    bio[m].pending = int(empties) + int(on_disk) + int(on_medium)
    if bio[m].pending == 0:
        finish(w, m)
        return
    if on_disk:
        submit(w, device, FLUSH, bio[m].sector, 0, 0, HOST, m)
    if on_medium:
        submit(w, medium, FLUSH, bio[m].sector, 0, 0, HOST, m)
    if empties:
        closed = line[device].epoch
        epoch[closed].flush = m
        fresh = w.clock[0].epochs
        w.clock[0].epochs += 1
        epoch[closed].next = fresh
        line[device].epoch = fresh


@compiled_lean
def end_epochs(w: Any, device: int) -> None:
    """Ends the wait of each flush for the disk's cache once all writes accepted before it are on
    the disk."""
    line, epoch = w.line, w.epoch
    while True:
        oldest = line[device].oldest_epoch
        m = epoch[oldest].flush
        if epoch[oldest].out > 0 or m < 0:
            return
        line[device].oldest_epoch = epoch[oldest].next
        w.bio[m].pending -= 1
        if w.bio[m].pending == 0:
            finish(w, m)
