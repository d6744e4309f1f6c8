"""The event loop of the timed model, compiled: arrivals of bios and completions of requests."""

from __future__ import annotations

from typing import Any

from tracer.analysis.flushlayer.timed import service
from tracer.analysis.flushlayer.timed.completion import finish, unblock
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
    AGE_ARMED,
    ARRIVE,
    ARRIVED,
    BACKGROUND,
    CACHE_OUT,
    CACHE_USED,
    CACHED,
    CAPACITY,
    CLOSED,
    COMMIT,
    COMMIT_ARMED,
    COMMITTED,
    DEVICE,
    DIRTY,
    E_OUT,
    EVENT_BITS,
    EVICTIONS,
    FINISH_SERVICE,
    FIRST,
    FLIGHT,
    FLUSH,
    FLYING,
    FREE_PARTS,
    FUA,
    HEAP_MARGIN,
    HEAP_SIZE,
    HITS,
    HOME,
    HOME_LAYER,
    HOST,
    IDLE,
    IDLE_ARMED,
    LAST_END,
    LAST_HOST,
    NEEDS_ROOM,
    NEXT,
    NEXT_BIO,
    NOW,
    OP,
    OVERWRITTEN,
    P_DEVICE,
    P_EPOCH,
    P_KIND,
    P_LAYER,
    P_OWN_SECTORS,
    P_OWNER,
    PAGES,
    PART_MARGIN,
    PENDING,
    READ,
    READ_HITS,
    READS_ENTER,
    SECTOR,
    SECTORS,
    SPAN,
    TENANT,
    TOUCHES,
    TS,
    USED,
    WAITING_TENANTS,
    WAITS,
    WRITE,
    WRITES,
)
from tracer.analysis.flushlayer.timed.volatile_cache import end_epochs, flush, to_disk
from tracer.probes.compiled import compiled_lean

FINISHED_ALL, NO_ROOM, PAUSED = 0, 1, 2
"""The reasons for which `run` returns."""


@compiled_lean
def run(w: Any, most_events: int) -> int:
    """Processes events until all bios are done, an array is too short, or `most_events` passed."""
    clock, bio = w.clock, w.bio
    for _ in range(most_events):
        if (
            clock[FREE_PARTS] < clock[PART_MARGIN]
            or clock[HEAP_SIZE] + clock[HEAP_MARGIN] > w.heap.shape[0]
        ):
            return NO_ROOM
        some = clock[HEAP_SIZE] > 0
        following = clock[NEXT_BIO]
        arrival = not clock[CLOSED] and following < bio.shape[0]
        if arrival and some and w.heap[0, 0] <= bio[following, TS]:
            arrival = False
        at = clock[NOW]
        if arrival:
            at = bio[following, TS]
        elif some:
            at = w.heap[0, 0]
        if clock[TOUCHES] > 0 and (at > clock[NOW] or not (arrival or some)):
            start(w)
            continue
        if arrival:
            clock[NOW] = at
            clock[NEXT_BIO] += 1
            _arrive(w, following)
        elif some:
            clock[NOW] = at
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
        w.layer[row, AGE_ARMED] = 0
        destage(w, row)
    elif kind == COMMIT:
        w.layer[row, COMMIT_ARMED] = 0
        w.layer[row, COMMITTED] = w.layer[row, WRITES]
        destage(w, row)
        for disk in range(w.line.shape[0] - 1):
            destage_idle(w, disk)
    elif kind == IDLE:
        w.line[row, IDLE_ARMED] = 0
        destage_idle(w, row)


@compiled_lean
def _arrive(w: Any, m: int) -> None:
    bio = w.bio
    bio[m, ARRIVED] = w.clock[NOW]
    if w.clock[CLOSED] and bio[m, NEXT] >= 0:
        unblock(w, bio[m, NEXT])
    _phase(w, m)
    if bio[m, OP] == FLUSH:
        flush(w, m)
    elif bio[m, OP] == READ:
        _read(w, m)
    elif bio[m, HOME_LAYER] >= 0:
        _write(w, m)
    else:
        if w.layer.shape[0] > 0:
            _drop(w, m)
        to_disk(w, m)


@compiled_lean
def _phase(w: Any, m: int) -> None:
    """Notes the phase of the bio's tenant; destages if no tenant now waits for the disk."""
    tenant, waits = w.bio[m, TENANT], w.bio[m, WAITS]
    change = waits - w.tenant[tenant]
    if change == 0:
        return
    w.tenant[tenant] = waits
    w.clock[WAITING_TENANTS] += change
    if w.clock[WAITING_TENANTS] == 0:
        for layer in range(w.layer.shape[0]):
            destage(w, layer)


@compiled_lean
def _page_begin(bio: Any, m: int, k: int) -> int:
    """Returns the first sector of bio m in its k-th page; for k = PAGES, the end of the bio."""
    if k == 0:
        return int(bio[m, SECTOR])
    if k == bio[m, PAGES]:
        return int(bio[m, SECTOR] + bio[m, SECTORS])
    return int((bio[m, SECTOR] // PAGE_SECTORS + k) * PAGE_SECTORS)


@compiled_lean
def _write(w: Any, m: int) -> None:
    """Puts a bio's pages into its layer, which makes room first; then the medium writes them."""
    bio = w.bio
    layer = bio[m, HOME_LAYER]
    waits = 0
    page = -1
    for k in range(bio[m, PAGES]):
        i = bio[m, FIRST] + k
        page = w.page[i]
        if w.slot[page, HOME] >= 0:
            touch(w, page)
        else:
            waits += _make_room(w, layer, i, m)
            enter(w, layer, page)
        begin = _page_begin(bio, m, k)
        sectors = _page_begin(bio, m, k + 1) - begin
        bio[m, HITS] += write_page(w, page, bio[m, DEVICE], begin, sectors)
    bio[m, EVICTIONS] = waits
    if waits:
        bio[m, NEEDS_ROOM] = 1
        bio[m, PENDING] = waits
    else:
        _to_medium(w, m)
    if page >= 0:
        written(w, layer, page)


@compiled_lean
def _make_room(w: Any, layer: int, access: int, m: int) -> int:
    """Frees a slot for a page access. Returns 1 if bio m has to wait for the disk, else 0."""
    if w.evicted.shape[0] > 0:
        victim = w.evicted[access]
        if victim < 0 or w.slot[victim, HOME] < 0:
            return 0
        return int(evict(w, victim, m))
    if w.layer[layer, USED] < w.layer[layer, CAPACITY]:
        return 0
    return int(evict(w, least_recent(w, layer), m))


@compiled_lean
def _read(w: Any, m: int) -> None:
    """Reads a bio's resident pages from the medium and, if any page is missing, the whole bio from
    the disk."""
    bio = w.bio
    hits, held = 0, 0
    for k in range(bio[m, PAGES] if w.layer.shape[0] > 0 else 0):
        home = w.slot[w.page[bio[m, FIRST] + k], HOME]
        if home >= 0:
            hits += 1
            held += _page_begin(bio, m, k + 1) - _page_begin(bio, m, k)
            w.layer[home, READ_HITS] += 1
    misses = bio[m, PAGES] - hits
    bio[m, HITS] = hits
    bio[m, PENDING] = (1 if hits else 0) + (1 if misses else 0)
    if bio[m, PENDING] == 0:
        finish(w, m)
        return
    if misses:
        submit(w, bio[m, DEVICE], READ, bio[m, SECTOR], bio[m, SECTORS], 0, HOST, m)
        w.line[bio[m, DEVICE], LAST_HOST] = w.clock[NOW]
    if hits:
        submit(w, w.line.shape[0] - 1, READ, -1, held, 0, HOST, m)
    if w.clock[READS_ENTER] and bio[m, HOME_LAYER] >= 0:
        _keep_read(w, m)


@compiled_lean
def _keep_read(w: Any, m: int) -> None:
    """Gives the pages of a read slots, as clean pages; the read does not wait for the room."""
    for k in range(w.bio[m, PAGES]):
        i = w.bio[m, FIRST] + k
        page = w.page[i]
        if w.slot[page, HOME] >= 0:
            touch(w, page)
        else:
            _make_room(w, w.bio[m, HOME_LAYER], i, -1)
            enter(w, w.bio[m, HOME_LAYER], page)


@compiled_lean
def _to_medium(w: Any, m: int) -> None:
    w.bio[m, NEEDS_ROOM] = 0
    if w.bio[m, SECTORS] == 0:
        finish(w, m)
        return
    w.bio[m, PENDING] = 1
    fua = w.bio[m, FUA]
    submit(w, w.line.shape[0] - 1, WRITE, -1, w.bio[m, SECTORS], fua, HOST, m)


@compiled_lean
def _drop(w: Any, m: int) -> None:
    """Removes the pages of a bio from the layers: the bio bypasses them, so their copy is stale."""
    bio = w.bio
    for k in range(bio[m, PAGES]):
        page = w.page[bio[m, FIRST] + k]
        home = w.slot[page, HOME]
        # A write of part of a page does not replace the dirty sectors in the rest of the page.
        sectors = _page_begin(bio, m, k + 1) - _page_begin(bio, m, k)
        if home >= 0 and (not w.slot[page, DIRTY] or sectors >= w.slot[page, SPAN]):
            if w.slot[page, DIRTY]:
                w.layer[home, OVERWRITTEN] += 1
                bio[m, HITS] += 1
                clean(w, page)
            leave(w, page)


@compiled_lean
def _served(w: Any, row: int) -> None:
    """Ends every part of a request that a device has finished."""
    device = w.part[row, P_DEVICE]
    free_server(w, device)
    while row >= 0:
        kind, owner = w.part[row, P_KIND], w.part[row, P_OWNER]
        layer, epoch = w.part[row, P_LAYER], w.part[row, P_EPOCH]
        size = w.part[row, P_OWN_SECTORS] * service.SECTOR_BYTES
        following = release(w, row)
        count(w, device, -1)
        if kind == BACKGROUND:
            w.layer[layer, FLYING] -= 1
            if w.slot[owner, FLIGHT] == row:
                w.slot[owner, FLIGHT] = -1
            destage(w, layer)
        elif kind == CACHED:
            w.line[device, CACHE_USED] -= size
            w.line[device, CACHE_OUT] -= 1
            w.epoch[epoch, E_OUT] -= 1
            end_epochs(w, device)
        elif owner >= 0:
            _part_done(w, owner)
        if kind in (HOST, CACHED):
            w.line[device, LAST_HOST] = w.clock[NOW]
        row = following
    w.clock[LAST_END] = w.clock[NOW]
    if device < w.line.shape[0] - 1:
        destage_idle(w, device)


@compiled_lean
def _part_done(w: Any, m: int) -> None:
    bio = w.bio
    bio[m, PENDING] -= 1
    if bio[m, PENDING] > 0:
        return
    if bio[m, NEEDS_ROOM]:
        _to_medium(w, m)
    else:
        finish(w, m)
