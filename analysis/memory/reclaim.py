"""Room for new pages: what a cache evicts at its limit.

The kernel's two lists, as mm/memcontrol.c and mm/vmscan.c of Linux 6.18 keep them for the file
pages of a memory cgroup with a limit, and of those below it, without MGLRU and without swap:

- a charge that does not fit reclaims at least 32 pages (try_charge_memcg, SWAP_CLUSTER_MAX);
- at a limit of several tenants, reclaim takes them in turn: it goes on with the tenant after the
  last one, up to the last tenant or until enough is reclaimed; if nothing was, it takes all
  (shrink_node_memcgs, mem_cgroup_iter);
- priorities go from 12 down to 0; each scans the tenant's lists' sizes >> priority, 32 pages or one
  larger folio of a list at a time, until enough is reclaimed (do_try_to_free_pages, get_scan_count,
  shrink_lruvec);
- the active list is scanned only if it is larger than the inactive one (times a ratio that grows
  with the memory), or if pages were activated as they were read again since the last reclaim
  (prepare_scan_control, inactive_is_low), all tenants of the limit together, by statistics that are
  brought up to date every 2 s (flush_memcg_stats_dwork), by a given clock, or always;
- an inactive folio that was accessed through its mapping gets another round, the second time in the
  active list; others go (folio_check_references);
- an active folio becomes inactive, and is marked as part of the working set (shrink_active_list).

Dirty pages are clean by the time they are the oldest: the flusher has written them. Pages under
read are not locked, and those that a read copies may be evicted by its own read-ahead. Mappings of
code (VM_EXEC) are treated like others, and a mapping lasts until the page is evicted. Shadow
entries are kept for ever.
"""

from __future__ import annotations

from typing import Any

from tracer.analysis.memory.cache import (
    ACTIVE,
    ALL,
    NONE,
    REFERENCED,
    WORKINGSET,
    YOUNG,
    Cache,
    evict,
    pages_of,
    publish,
    put_newest,
    take,
)
from tracer.probes.compiled import compiled_lean

CLUSTER = 32
"""Pages reclaimed and scanned at a time (SWAP_CLUSTER_MAX)."""
PRIORITY = 12
"""The first priority (DEF_PRIORITY)."""
RETRIES = 16
"""Tries of one charge (MAX_RECLAIM_RETRIES)."""
ALL_TENANTS = -1
"""Given for a number of pages, it leaves no tenant out (memcg_full_walk)."""


@compiled_lean
def make_room(cache: Cache, tenant: int, pages: int) -> Any:
    """Evicts until `pages` more fit below a tenant's limit. Returns False if they cannot."""
    memory, limit = cache.memory, cache.limit
    number = memory[tenant].limit
    if pages > limit[number].capacity:
        return False
    most = limit[number].capacity - pages
    if not cache.setting[0].kernel:
        while limit[number].cached > most:
            evict(cache, memory[tenant].oldest_inactive)
        return True
    for _ in range(RETRIES):
        if limit[number].cached <= most:
            break
        _reclaim(cache, number, max(pages, CLUSTER))
    return limit[number].cached <= most


@compiled_lean
def set_capacity(cache: Cache, number: int, pages: int) -> None:
    """Gives a limit another number of pages for files, since the processes' own memory changes.

    That memory is charged page by page, so each reclaim is one of CLUSTER pages.
    """
    limit = cache.limit
    limit[number].capacity = pages
    while limit[number].cached > pages:
        before = limit[number].cached
        for _ in range(RETRIES):
            if limit[number].cached > pages:
                _reclaim(cache, number, CLUSTER)
        if limit[number].cached == before:
            break


@compiled_lean
def _reclaim(cache: Cache, number: int, target: int) -> None:
    force = False
    for attempt in range(3):
        skipped = False
        reclaimed = 0
        for priority in range(PRIORITY, -1, -1):
            wanted = target - reclaimed if attempt == 0 else ALL_TENANTS
            more, passed = _shrink_node(cache, number, priority, target, wanted, force)
            reclaimed += more
            skipped |= passed
            if reclaimed >= target:
                break
        cache.limit[number].refaults_seen = cache.limit[number].known_refaults
        if reclaimed or (attempt == 1 and not skipped):
            break
        force = attempt == 1


@compiled_lean
def _shrink_node(
    cache: Cache, number: int, priority: int, target: int, wanted: int, force: bool
) -> Any:
    # Takes the tenants in turn until `wanted` pages are reclaimed, or all from the first one on if
    # it is ALL_TENANTS. Returns the pages reclaimed, and if active pages were passed over.
    memory, limit = cache.memory, cache.limit
    if cache.setting[0].exact:
        publish(cache, number)
    deactivates = (
        force
        or limit[number].known_refaults != limit[number].refaults_seen
        or inactive_is_low(
            limit[number].known_inactive, limit[number].known_active, cache.setting[0].gib_pages
        )
    )
    tenant = limit[number].turn
    if wanted == ALL_TENANTS or tenant == NONE:
        tenant = limit[number].first
    reclaimed = 0
    skipped = False
    while tenant != NONE:
        more, passed = _shrink(cache, tenant, priority, target, deactivates)
        reclaimed += more
        skipped |= passed
        tenant = memory[tenant].following
        if wanted != ALL_TENANTS:
            limit[number].turn = tenant
            if reclaimed >= wanted:
                break
    return reclaimed, skipped


@compiled_lean
def _shrink(cache: Cache, tenant: int, priority: int, target: int, deactivates: bool) -> Any:
    # Returns the pages reclaimed, and if active pages were passed over (shrink_lruvec).
    memory = cache.memory
    inactive = memory[tenant].inactive >> priority
    active = memory[tenant].active >> priority
    reclaimed = 0
    skipped = False
    while (inactive or active) and reclaimed < target:
        if inactive:
            pages = min(inactive, CLUSTER)
            inactive -= pages
            # Folios may have taken more than was asked for.
            pages = min(pages, memory[tenant].inactive)
            reclaimed += _shrink_inactive(cache, tenant, pages)
        if active:
            pages = min(active, CLUSTER)
            active -= pages
            pages = min(pages, memory[tenant].active)
            if deactivates:
                _shrink_active(cache, tenant, pages)
            else:
                skipped = True
    return reclaimed, skipped


@compiled_lean
def inactive_is_low(inactive: int, active: int, gib_pages: int) -> bool:
    """Tells if the inactive list is too small: its size times the root of 10 times the memory in
    GiB of `gib_pages` pages (1 below 1 GiB) is less than the active list's."""
    gib = (inactive + active) // gib_pages
    ratio = 1
    if gib:
        while (ratio + 1) * (ratio + 1) <= 10 * gib:
            ratio += 1
    return inactive * ratio < active


@compiled_lean
def _shrink_inactive(cache: Cache, tenant: int, pages: int) -> int:
    page, memory = cache.page, cache.memory
    scanned = 0
    reclaimed = 0
    activated = 0
    while scanned < pages:
        p = memory[tenant].oldest_inactive
        size = pages_of(cache, p)
        scanned += size
        if page[p].state & YOUNG:
            take(cache, p)
            if page[p].state & REFERENCED:
                page[p].state |= ACTIVE
                activated += size
            page[p].state = (page[p].state | REFERENCED) & (ALL ^ YOUNG)
            put_newest(cache, p)
        else:
            reclaimed += evict(cache, p)
    # Folios go back to the lists after the evictions of the batch.
    cache.limit[memory[tenant].limit].age += activated
    memory[tenant].activated += activated
    return reclaimed


@compiled_lean
def _shrink_active(cache: Cache, tenant: int, pages: int) -> None:
    page, memory = cache.page, cache.memory
    scanned = 0
    while scanned < pages:
        p = memory[tenant].oldest_active
        scanned += pages_of(cache, p)
        take(cache, p)
        page[p].state = (page[p].state | WORKINGSET) & (ALL ^ ACTIVE ^ YOUNG)
        put_newest(cache, p)
