"""Writes that go to a disk, its volatile cache, and the flushes that empty it: compiled."""

from __future__ import annotations

from typing import Any

from analysis.flushlayer import service
from analysis.flushlayer.completion import finish
from analysis.flushlayer.destage import commit
from analysis.flushlayer.queueing import push, submit
from analysis.flushlayer.residency import PAGE_SECTORS
from analysis.flushlayer.state import (
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
    PAGES,
    PENDING,
    SECTOR,
    WRITE,
)
from probes.compiled import compiled_lean


@compiled_lean
def to_disk(w: Any, m: int) -> None:
    """A write goes to the disk, whose cache may acknowledge it before it is on the medium."""
    bio, line = w.bio, w.line
    device = bio[m, DEVICE]
    sectors = bio[m, PAGES] * PAGE_SECTORS
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
    """A flush ends when all that the disk's cache accepted before it is on the disk."""
    commit(w)
    line, epoch = w.line, w.epoch
    device = w.bio[m, DEVICE]
    if line[device, CACHE_OUT] == 0:
        if w.clock[FLUSHES_PASS] and w.model[device, service.FLUSH_NS] > 0:
            w.bio[m, PENDING] = 1
            submit(w, device, FLUSH, w.bio[m, SECTOR], 0, 0, HOST, m)
        else:
            finish(w, m)
        return
    closed = line[device, EPOCH]
    epoch[closed, E_FLUSH] = m
    fresh = w.clock[EPOCHS]
    w.clock[EPOCHS] += 1
    epoch[closed, E_NEXT] = fresh
    line[device, EPOCH] = fresh


@compiled_lean
def end_epochs(w: Any, device: int) -> None:
    """Finish the flushes before which nothing accepted is left."""
    line, epoch = w.line, w.epoch
    while True:
        oldest = line[device, OLDEST_EPOCH]
        if epoch[oldest, E_OUT] > 0 or epoch[oldest, E_FLUSH] < 0:
            return
        line[device, OLDEST_EPOCH] = epoch[oldest, E_NEXT]
        finish(w, epoch[oldest, E_FLUSH])
