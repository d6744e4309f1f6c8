"""The kernel's lists of file pages, and reclaim at a memory limit, worked out naively.

It is written from docs/predict.md (The kernel's model) and from the parts of Linux 6.18 that it
names, not from the code of `tracer predict`. Each folio has one page, and nothing is swapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Name = tuple[Any, int]
"""File, and page of the file."""
BATCH = 32
"""Pages reclaimed and scanned at a time: SWAP_CLUSTER_MAX."""
FIRST_PRIORITY = 12
"""DEF_PRIORITY."""
TRIES = 16
"""MAX_RECLAIM_RETRIES."""
GIB = 1 << 18
"""Pages of 1 GiB."""


@dataclass
class Page:
    """A cached page."""

    tenant: int
    """The one that brought it in first, and is charged for it."""
    active: bool = False
    referenced: bool = False
    """It was accessed once: PG_referenced."""
    touched: bool = False
    """It was accessed through its mapping: the accessed bit of a page table."""
    mapped: bool = False
    marker: bool = False
    """Access of it begins the next read-ahead: PG_readahead."""


@dataclass
class Statistics:
    """Pages of a limit's lists, and pages that became active as they were read again."""

    inactive: int = 0
    active: int = 0
    activated: int = 0


@dataclass
class Limit:
    """The cgroup that has a memory limit."""

    capacity: int
    tenants: list[int]
    age: int = 0
    """Pages evicted or activated so far: nonresident_age."""
    cached: int = 0
    own: int = 0
    """Pages of the processes' own memory."""
    activated: int = 0
    seen: int = 0
    """Those that the last reclaim knew of at its end (snapshot_refaults)."""
    known: Statistics = field(default_factory=Statistics)
    turn: int = 0
    """Place of the tenant at which the next reclaim begins."""


@dataclass
class Reclaim:
    """A reclaim under way: struct scan_control."""

    reclaimed: int = 0
    whole: bool = False
    """It leaves no tenant out: memcg_full_walk."""
    forced: bool = False
    skipped: bool = False
    """It would have scanned an active list, but had no reason to."""


class FileLists:
    """The cached pages of several tenants below memory limits."""

    def __init__(
        self, capacities: Sequence[int], limits: Sequence[int], exact: bool = True
    ) -> None:
        """Makes empty lists.

        `capacities`: pages of each limit. `limits`: the limit of each tenant. `exact`: statistics
        are always up to date, not only after `update`.
        """
        self.exact = exact
        self.limits = [
            Limit(capacity, [tenant for tenant, its in enumerate(limits) if its == number])
            for number, capacity in enumerate(capacities)
        ]
        self.limit_of = [self.limits[number] for number in limits]
        self.pages: dict[Name, Page] = {}
        self.inactive: list[dict[Name, Page]] = [{} for _ in limits]
        self.active: list[dict[Name, Page]] = [{} for _ in limits]
        """Lists of each tenant, the oldest page first."""
        self.shadows: dict[Name, tuple[Limit, int]] = {}
        """The limit that evicted a page, and its age then."""
        self.stayed: set[Name] = set()
        """Pages of the call under way that have been cached since it began."""

    def update(self) -> None:
        """Brings the statistics of all limits up to date."""
        for limit in self.limits:
            limit.known = self._counted(limit)

    def _statistics(self, limit: Limit) -> Statistics:
        return self._counted(limit) if self.exact else limit.known

    def _counted(self, limit: Limit) -> Statistics:
        inactive = active = 0
        for tenant in limit.tenants:
            inactive += len(self.inactive[tenant])
            active += len(self.active[tenant])
        return Statistics(inactive, active, limit.activated)

    # Pages that come: mm/filemap.c, mm/workingset.c, mm/swap.c

    def add(self, name: Name, tenant: int, written: bool = False) -> bool:
        """Adds a page (filemap_add_folio). Returns False if there is no room for it."""
        page, limit = Page(tenant), self.limit_of[tenant]
        if not self._charge(limit):
            return False
        limit.cached += 1
        shadow = self.shadows.pop(name, None)
        if shadow and not written:
            evicter, age = shadow
            if evicter.age - age <= self._statistics(evicter).active:  # workingset_refault
                page.active = True
                limit.age += 1
                limit.activated += 1
        self._put(name, page)
        return True

    def mark_accessed(self, name: Name) -> None:
        """Notes an access by a call (folio_mark_accessed)."""
        page = self.pages[name]
        if not page.referenced:
            page.referenced = True
        elif not page.active:
            del self.inactive[page.tenant][name]
            page.active, page.referenced = True, False
            self._put(name, page)
            self.limit_of[page.tenant].age += 1

    def _put(self, name: Name, page: Page) -> None:
        """Puts a page at the new end of its list."""
        self.pages[name] = page
        (self.active if page.active else self.inactive)[page.tenant][name] = page

    # Pages that go: mm/memcontrol.c, mm/vmscan.c

    def remove(self, name: Name) -> None:
        """Takes a page out for a program (mm/truncate.c); no shadow entry of it stays."""
        self.shadows.pop(name, None)
        page = self.pages.pop(name, None)
        if page:
            del (self.active if page.active else self.inactive)[page.tenant][name]
            self.limit_of[page.tenant].cached -= 1

    def set_own(self, number: int, pages: int) -> None:
        """Makes so many pages own memory below a limit. They have their place even without room."""
        limit = self.limits[number]
        while limit.own < pages:
            self._charge(limit)
            limit.own += 1
        limit.own = pages

    def _charge(self, limit: Limit) -> bool:
        """Makes room for a page (try_charge_memcg). Returns False if it cannot."""
        tries = TRIES
        while limit.cached + limit.own + 1 > limit.capacity:
            if not limit.cached:
                return False  # beside own memory that takes all: nothing to reclaim
            if not self._reclaim(limit):
                if tries == 0:
                    return False
                tries -= 1
        return True

    def _reclaim(self, limit: Limit) -> int:
        """Takes pages, at least a batch if it can (do_try_to_free_pages); returns how many."""
        reclaim = Reclaim()
        while True:
            for priority in range(FIRST_PRIORITY, -1, -1):
                if limit.cached >> priority:
                    self._shrink_all(limit, priority, reclaim)
                elif not reclaim.whole:
                    limit.turn = 0  # all tenants had their turns, with no page to scan
                if reclaim.reclaimed >= BATCH:
                    break
            limit.seen = self._statistics(limit).activated
            if reclaim.reclaimed:
                return reclaim.reclaimed
            if not reclaim.whole:
                reclaim.whole = True
            elif reclaim.skipped:
                reclaim.forced, reclaim.skipped = True, False
            else:
                return 0

    def _shrink_all(self, limit: Limit, priority: int, reclaim: Reclaim) -> None:
        """Takes pages of the limit's tenants in turn (shrink_node_memcgs)."""
        now = self._statistics(limit)  # prepare_scan_control
        deactivates = reclaim.forced or now.activated != limit.seen or inactive_is_low(now)
        if reclaim.whole:
            for tenant in limit.tenants:
                self._shrink(tenant, priority, reclaim, deactivates)
            return
        for place in range(limit.turn, len(limit.tenants)):
            self._shrink(limit.tenants[place], priority, reclaim, deactivates)
            if reclaim.reclaimed >= BATCH:
                limit.turn = (place + 1) % len(limit.tenants)
                return
        limit.turn = 0

    def _shrink(self, tenant: int, priority: int, reclaim: Reclaim, deactivates: bool) -> None:
        """Scans a part of a tenant's lists (shrink_lruvec)."""
        inactive = len(self.inactive[tenant]) >> priority
        active = len(self.active[tenant]) >> priority
        reclaimed = 0
        while (inactive or active) and reclaimed < BATCH:
            scanned = min(inactive, BATCH)
            inactive -= scanned
            reclaimed += self._shrink_inactive(tenant, scanned)
            scanned = min(active, BATCH)
            active -= scanned
            if deactivates:
                self._shrink_active(tenant, scanned)
            elif scanned:
                reclaim.skipped = True
        reclaim.reclaimed += reclaimed

    def _shrink_inactive(self, tenant: int, scanned: int) -> int:
        """Evicts inactive pages, or keeps them (shrink_folio_list); returns those evicted."""
        limit, kept = self.limit_of[tenant], []
        oldest = list(self.inactive[tenant])[:scanned]
        for name in oldest:
            page = self.inactive[tenant].pop(name)
            referenced, page.referenced = page.referenced, False
            if page.touched:
                page.touched, page.referenced, page.active = False, True, referenced
                kept.append(name)
            else:
                del self.pages[name]
                self.stayed.discard(name)
                self.shadows[name] = limit, limit.age
                limit.age += 1
                limit.cached -= 1
        for name in kept:  # move_folios_to_lru
            limit.age += self.pages[name].active
            self._put(name, self.pages[name])
        return len(oldest) - len(kept)

    def _shrink_active(self, tenant: int, scanned: int) -> None:
        """Makes active pages inactive (shrink_active_list)."""
        for name in list(self.active[tenant])[:scanned]:
            page = self.active[tenant].pop(name)
            page.touched = page.active = False
            self._put(name, page)


def inactive_is_low(now: Statistics) -> bool:
    """Tells if the inactive list is too small for the active one."""
    gib = (now.inactive + now.active) // GIB
    ratio = int((10 * gib) ** 0.5) if gib else 1
    return now.inactive * ratio < now.active
