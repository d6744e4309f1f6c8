"""The event loop of the timed model, compiled: arrivals of bios and completions of requests."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracer.analysis.flushlayer.timed import service
from tracer.analysis.flushlayer.timed.completion import finish, pass_around, unblock
from tracer.analysis.flushlayer.timed.destage import destage, destage_idle, written
from tracer.analysis.flushlayer.timed.queueing import (
    count,
    free_server,
    pop,
    release,
    start,
    submit,
)
from tracer.analysis.flushlayer.timed.residency import (
    PAGE_SECTORS,
    clean,
    enter,
    evict,
    least_recent,
    leave,
    touch,
    write_page,
)
from tracer.analysis.flushlayer.timed.state import (
    ACKNOWLEDGE,
    AGE,
    ARRIVE,
    BACKGROUND,
    CACHED,
    COMMIT,
    EVENT_BITS,
    FINISH_SERVICE,
    FLUSH,
    HOST,
    IDLE,
    READ,
    WRITE,
)
from tracer.analysis.flushlayer.timed.volatile_cache import end_epochs, flush, to_disk
from tracer.probes.compiled import compiled_lean

FINISHED_ALL, NO_ROOM, PAUSED = 0, 1, 2
"""The reasons for which `run` returns."""


@compiled_lean
def run(w: Any, most_events: int) -> int:
    """Processes events until all bios are done, an array is too short, or `most_events` are."""
    clock, bio = w.clock[0], w.bio
    for _ in range(most_events):
        if (
            clock.free_parts < clock.part_margin
            or clock.heap_size + clock.heap_margin > w.heap.shape[0]
        ):
            return NO_ROOM
        some = clock.heap_size > 0
        following = clock.next_bio
        arrival = not clock.closed and following < bio.shape[0]
        if arrival and some and w.heap[0].at <= bio[following].ts:
            arrival = False
        at = clock.now
        if arrival:
            at = bio[following].ts
        elif some:
            at = w.heap[0].at
        if clock.touches > 0 and (at > clock.now or not (arrival or some)):
            start(w)
            continue
        if arrival:
            clock.now = at
            clock.next_bio += 1
            _arrive(w, following)
        elif some:
            clock.now = at
            _event(w, pop(w))
        else:
            return FINISHED_ALL
    return PAUSED


@compiled_lean
def _event(w: Any, what: int) -> None:
    kind = what & ((1 << EVENT_BITS) - 1)
    row = what >> EVENT_BITS
    if kind == FINISH_SERVICE:
        _served(w, row)
    elif kind == ARRIVE:
        _arrive(w, row)
    elif kind == ACKNOWLEDGE:
        finish(w, row)
    elif kind == AGE:
        w.layer[row].age_armed = 0
        destage(w, row)
    elif kind == COMMIT:
        w.layer[row].commit_armed = 0
        w.layer[row].committed = w.layer[row].writes
        destage(w, row)
        for disk in range(w.line.shape[0] - 1):
            destage_idle(w, disk)
    elif kind == IDLE:
        w.line[row].idle_armed = 0
        destage_idle(w, row)


@compiled_lean
def _arrive(w: Any, m: int) -> None:
    bio = w.bio
    bio[m].arrived = w.clock[0].now
    if w.clock[0].closed and bio[m].next >= 0:
        unblock(w, bio[m].next)
    _phase(w, m)
    if bio[m].op == FLUSH:
        flush(w, m)
    elif bio[m].op == READ:
        _read(w, m)
    elif bio[m].home_layer >= 0:
        _write(w, m)
    else:
        if w.layer.shape[0] > 0:
            _drop(w, m)
        to_disk(w, m)


@compiled_lean
def _phase(w: Any, m: int) -> None:
    """Notes the phase of the bio's tenant; destages if no tenant now waits for the disk."""
    tenant, waits = w.bio[m].tenant, w.bio[m].waits
    change = waits - w.tenant[tenant]
    if change == 0:
        return
    w.tenant[tenant] = waits
    w.clock[0].waiting_tenants += change
    if w.clock[0].waiting_tenants == 0:
        for layer in range(w.layer.shape[0]):
            destage(w, layer)


@compiled_lean
def _page_begin(w: Any, m: int, k: int) -> int:
    """Returns the first sector of bio m in its k-th page; for k = PAGES, the end of the bio."""
    bio = w.bio
    if k == 0:
        return int(bio[m].sector)
    if k == bio[m].pages:
        return int(bio[m].sector + bio[m].sectors)
    if w.ahead.shape[0] > 0:
        return int(bio[m].sector + w.ahead[bio[m].first + k])
    return int((bio[m].sector // PAGE_SECTORS + k) * PAGE_SECTORS)


@compiled_lean
def _page_base(w: Any, m: int, k: int) -> int:
    """Returns the sector at which the k-th page of bio m begins; the bio may begin after it."""
    bio = w.bio
    if w.ahead.shape[0] > 0:
        i = bio[m].first + k
        return int(bio[m].sector + w.ahead[i] - np.int64(w.within[i]))
    return int((bio[m].sector // PAGE_SECTORS + k) * PAGE_SECTORS)


@compiled_lean
def _write(w: Any, m: int) -> None:
    """Puts a bio's pages into its layer, which makes room first; then the medium writes them."""
    bio = w.bio
    layer = bio[m].home_layer
    if w.rule[0].around and _is_full_for(w, m):
        w.layer[layer].around += bio[m].pages
        pass_around(w, m, layer + 1)
        _drop(w, m)
        to_disk(w, m)
        return
    waits = 0
    for k in range(bio[m].pages):
        i = bio[m].first + k
        page: Any = np.int64(w.page[i])
        if w.slot[page].home >= 0:
            touch(w, page)
        else:
            waits += _make_room(w, layer, i, m)
            enter(w, layer, page)
        begin = _page_begin(w, m, k)
        sectors = _page_begin(w, m, k + 1) - begin
        base = _page_base(w, m, k)
        bio[m].hits += write_page(w, page, bio[m].device, base, begin, sectors)
    bio[m].evictions = waits
    if waits:
        bio[m].needs_room = 1
        bio[m].pending = waits
    else:
        _to_medium(w, m)
    _written(w, m)


@compiled_lean
def _written(w: Any, m: int) -> None:
    """Commits and destages in each layer that bio m wrote to: its tenant's, and other parts that
    had its pages."""
    before: Any = np.int64(-1)
    for k in range(w.bio[m].pages):
        page: Any = np.int64(w.page[w.bio[m].first + k])
        home = w.slot[page].home
        if home < 0 or home == before:
            continue
        if w.bio[m].fua:
            w.layer[home].committed = w.layer[home].writes
        written(w, home, page)
        before = home


@compiled_lean
def _is_full_for(w: Any, m: int) -> bool:
    """Returns whether a bio needs more slots than are neither dirty nor in flight."""
    layer = w.bio[m].home_layer
    needs = 0
    for k in range(w.bio[m].pages):
        needs += 1 - w.slot[w.page[w.bio[m].first + k]].dirty
    row = w.layer[layer]
    return bool(needs > row.capacity - row.dirties - row.flying)


@compiled_lean
def _make_room(w: Any, layer: int, access: int, m: int) -> int:
    """Frees a slot for a page access. Returns 1 if bio m has to wait for the disk, else 0."""
    if w.layer[layer].used < w.layer[layer].capacity:
        return 0
    victim: Any = np.int64(w.evicted[access]) if w.evicted.shape[0] > 0 else np.int64(-1)
    if victim < 0 or w.slot[victim].home != layer:
        victim = np.int64(least_recent(w, layer))
    return int(evict(w, victim, m))


@compiled_lean
def _read(w: Any, m: int) -> None:
    """Reads a bio's resident pages from the medium and, if any page is missing, the whole bio from
    the disk."""
    bio = w.bio
    hits, held = 0, 0
    for k in range(bio[m].pages if w.layer.shape[0] > 0 else 0):
        home = w.slot[w.page[bio[m].first + k]].home
        if home >= 0:
            hits += 1
            held += _page_begin(w, m, k + 1) - _page_begin(w, m, k)
            w.layer[home].read_hits += 1
    misses = bio[m].pages - hits
    bio[m].hits = hits
    bio[m].pending = (1 if hits else 0) + (1 if misses else 0)
    if bio[m].pending == 0:
        finish(w, m)
        return
    if misses:
        submit(w, bio[m].device, READ, bio[m].sector, bio[m].sectors, 0, HOST, m)
        w.line[bio[m].device].last_host = w.clock[0].now
    if hits:
        submit(w, w.line.shape[0] - 1, READ, -1, held, 0, HOST, m)
    if w.clock[0].reads_enter and bio[m].home_layer >= 0:
        _keep_read(w, m)


@compiled_lean
def _keep_read(w: Any, m: int) -> None:
    """Gives the pages of a read slots, as clean pages; the read does not wait for the room.

    The medium writes those that enter once the read is complete (`_part_done`).
    """
    layer = w.bio[m].home_layer
    for k in range(w.bio[m].pages):
        i = w.bio[m].first + k
        page: Any = np.int64(w.page[i])
        if w.slot[page].home >= 0:
            touch(w, page)
        else:
            _make_room(w, layer, i, -1)
            enter(w, layer, page)
            w.layer[layer].filled += 1
            w.bio[m].fills += _page_begin(w, m, k + 1) - _page_begin(w, m, k)


@compiled_lean
def _to_medium(w: Any, m: int) -> None:
    w.bio[m].needs_room = 0
    if w.bio[m].sectors == 0:
        finish(w, m)
        return
    w.bio[m].pending = 1
    fua = w.bio[m].fua
    submit(w, w.line.shape[0] - 1, WRITE, -1, w.bio[m].sectors, fua, HOST, m)


@compiled_lean
def _drop(w: Any, m: int) -> None:
    """Removes the pages of a bio from the layers: the bio bypasses them, so their copy is stale.

    A page with dirty sectors that the bio does not write stays, with these.
    """
    bio = w.bio
    for k in range(bio[m].pages):
        page: Any = np.int64(w.page[bio[m].first + k])
        home = w.slot[page].home
        if home < 0:
            continue
        if w.slot[page].dirty:
            base = _page_base(w, m, k)
            if _cut(w, page, _page_begin(w, m, k) - base, _page_begin(w, m, k + 1) - base):
                continue
            w.layer[home].overwritten += 1
            bio[m].hits += 1
            clean(w, page)
        leave(w, page)


@compiled_lean
def _cut(w: Any, page: int, begin: int, end: int) -> bool:
    """Cuts the sectors of a page from begin to end off its dirty part; returns if any is left.

    Sectors count from the begin of the page: a file's page may have moved on the disk. The part
    stays one range: a cut in its middle takes nothing off.
    """
    slot = w.slot
    first = slot[page].place - slot[page].base
    last = first + slot[page].span
    if begin <= first and end >= last:
        return False
    if begin <= first < end:
        slot[page].place += end - first
        slot[page].span = last - end
    elif begin < last <= end:
        slot[page].span = begin - first
    return True


@compiled_lean
def _served(w: Any, row: int) -> None:
    """Ends every part of a request that a device has finished."""
    device = w.part[row].device
    free_server(w, device)
    while row >= 0:
        kind, owner = w.part[row].kind, w.part[row].owner
        layer, epoch = w.part[row].layer, w.part[row].epoch
        size = w.part[row].own_sectors * service.SECTOR_BYTES
        following = release(w, row)
        count(w, device, -1)
        if kind == BACKGROUND:
            w.layer[layer].flying -= 1
            if w.slot[owner].flight == row:
                w.slot[owner].flight = -1
                if w.rule[0].leaves and not w.slot[owner].dirty:
                    leave(w, owner)
            destage(w, layer)
        elif kind == CACHED:
            w.line[device].cache_used -= size
            w.line[device].cache_out -= 1
            w.epoch[epoch].out -= 1
            end_epochs(w, device)
        elif owner >= 0:
            _part_done(w, owner)
        if kind in (HOST, CACHED):
            w.line[device].last_host = w.clock[0].now
        row = following
    w.clock[0].last_end = w.clock[0].now
    if device < w.line.shape[0] - 1:
        destage_idle(w, device)


@compiled_lean
def _part_done(w: Any, m: int) -> None:
    bio = w.bio
    bio[m].pending -= 1
    if bio[m].pending > 0:
        return
    if bio[m].needs_room:
        _to_medium(w, m)
    else:
        if bio[m].fills:
            submit(w, w.line.shape[0] - 1, WRITE, -1, bio[m].fills, 0, HOST, -1)
        finish(w, m)
