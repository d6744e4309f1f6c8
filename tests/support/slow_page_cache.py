"""Models of a page cache in plain Python, from their rules: slow, and plain to see right."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import isqrt

from tests.support.slow_read_ahead import ReadAhead, Reader, largest
from tracer.analysis.memory.page_runs import FAULT, REMOVE, WRITE


@dataclass(eq=False)
class Folio:
    """Pages that are in a list together."""

    file: int
    index: int
    order: int
    tenant: int
    active: bool = False
    referenced: bool = False
    workingset: bool = False
    marker: bool = False
    young: bool = False
    unused: set[int] = field(default_factory=set)
    mapped: set[int] = field(default_factory=set)

    @property
    def size(self):
        return 2**self.order

    def map(self, index):
        self.mapped.add(index)
        self.unused.discard(index)
        self.young = True


@dataclass
class Tenant:
    """A memory cgroup: its lists, oldest first."""

    inactive: list[Folio] = field(default_factory=list)
    active: list[Folio] = field(default_factory=list)

    def sizes(self):
        return sum(f.size for f in self.inactive), sum(f.size for f in self.active)


@dataclass
class Limit:
    """A cgroup with a memory limit, the cgroups below it, and its counters."""

    capacity: int
    tenants: list[Tenant]
    waiting: list[Tenant] = field(default_factory=list)  # of a walk that has stopped
    age: int = 0
    refaults: int = 0
    seen: int = 0
    known: tuple[int, int, int] = (0, 0, 0)

    def sizes(self):
        return [sum(both) for both in zip(*(one.sizes() for one in self.tenants), strict=True)]


class SlowCache:
    """A page cache: the kernel's two lists, or LRU."""

    def __init__(self, capacities, kernel, exact, limits, page_kib=4):
        self.tenants = [Tenant() for _ in limits]
        self.limits = [
            Limit(capacity, [t for t, its in zip(self.tenants, limits, strict=True) if its == n])
            for n, capacity in enumerate(capacities)
        ]
        self.limit_of = [self.limits[number] for number in limits]
        self.kernel, self.exact = kernel, exact
        self.gib_bits = {4: 18, 16: 16, 64: 14}[page_kib]
        self.folios = {}  # by (file, index)
        self.shadows = {}
        self.totals = [Counter() for _ in limits]
        self.read = 0

    def publish(self, limit):
        limit.known = (*limit.sizes(), limit.refaults)

    def evict(self, folio):
        tenant, limit = self.tenants[folio.tenant], self.limit_of[folio.tenant]
        (tenant.active if folio.active else tenant.inactive).remove(folio)
        for index in range(folio.index, folio.index + folio.size):
            del self.folios[folio.file, index]
            self.shadows[folio.file, index] = limit, limit.age, folio.workingset
        limit.age += folio.size
        self.totals[folio.tenant]["evicted"] += folio.size
        self.totals[folio.tenant]["unused"] += len(folio.unused)
        return folio.size

    def remove(self, file, index):
        """Takes the folio of a page out of the cache, and forgets an eviction of the page."""
        folio = self.folios.get((file, index))
        if folio:
            tenant = self.tenants[folio.tenant]
            (tenant.active if folio.active else tenant.inactive).remove(folio)
            for at in range(folio.index, folio.index + folio.size):
                del self.folios[file, at]
            self.totals[folio.tenant]["unused"] += len(folio.unused)
        self.shadows.pop((file, index), None)

    def has_room(self, number, pages):
        limit = self.limit_of[number]
        if pages > limit.capacity:
            return False
        for _ in range(16 if self.kernel else 10**9):
            if sum(limit.sizes()) + pages <= limit.capacity:
                return True
            if self.kernel:
                self.reclaim(limit, max(32, pages))
            else:
                self.evict(self.tenants[number].inactive[0])
        return sum(limit.sizes()) + pages <= limit.capacity

    def reclaim(self, limit, target):
        for attempt in range(3):
            force = attempt == 2
            freed, passed_over = 0, False
            for priority in range(12, -1, -1):
                more, passed = self.walk(limit, priority, target, freed, attempt > 0, force)
                freed += more
                passed_over |= passed
                if freed >= target:
                    break
            limit.seen = limit.known[2]
            if freed or (attempt == 1 and not passed_over):
                return

    def walk(self, limit, priority, target, freed_before, full, force):
        if self.exact:
            self.publish(limit)
        inactive, active, refaults = limit.known
        gib = (inactive + active) >> self.gib_bits
        low = inactive * (isqrt(10 * gib) if gib else 1) < active
        deactivate = force or refaults != limit.seen or low
        freed, passed_over = 0, False
        if full:
            left = list(limit.tenants)
        else:
            limit.waiting = left = limit.waiting or list(limit.tenants)
        while left and (full or freed_before + freed < target):
            more, passed = self.shrink(left.pop(0), priority, target, deactivate)
            freed += more
            passed_over |= passed
        return freed, passed_over

    def shrink(self, tenant, priority, target, deactivate):
        number = next(n for n, one in enumerate(self.tenants) if one is tenant)
        inactive, active = (size >> priority for size in tenant.sizes())
        freed, passed = 0, False
        while (inactive or active) and freed < target:
            if inactive:
                freed += self.shrink_inactive(number, min(32, inactive))
                inactive -= min(32, inactive)
            if active:
                if deactivate:
                    self.shrink_active(tenant, min(32, active))
                passed |= not deactivate
                active -= min(32, active)
        return freed, passed

    @staticmethod
    def isolate(folios, pages):
        taken = []
        while folios and sum(f.size for f in taken) < pages:
            taken.append(folios.pop(0))
        return taken

    def shrink_inactive(self, number, pages):
        tenant = self.tenants[number]
        taken = self.isolate(tenant.inactive, pages)
        freed, kept = 0, []
        for folio in taken:
            if folio.young:
                kept.append((folio, folio.referenced))
                folio.young, folio.referenced = False, True
            else:
                tenant.inactive.append(folio)
                freed += self.evict(folio)
        for folio, activate in kept:
            if activate:
                folio.active = True
                tenant.active.append(folio)
                self.limit_of[number].age += folio.size
                self.totals[number]["activated"] += folio.size
            else:
                tenant.inactive.append(folio)
        return freed

    def shrink_active(self, tenant, pages):
        for folio in self.isolate(tenant.active, pages):
            folio.active = folio.young = False
            folio.workingset = True
            tenant.inactive.append(folio)

    def add(self, file, index, order, number, read):
        """Adds a folio to the cache; returns None if there is no room for it."""
        if not self.has_room(number, 2**order):
            return None
        tenant = self.tenants[number]
        folio = Folio(file, index, order, number)
        pages = range(index, index + folio.size)
        shadows = [self.shadows.pop((file, p)) for p in pages if (file, p) in self.shadows]
        if read:
            self.read += folio.size
            folio.unused = set(pages)
            if shadows and self.kernel:
                self.totals[number]["refaulted"] += folio.size
                before, age, workingset = shadows[-1]
                if self.exact:
                    self.publish(before)
                if before.age - age <= before.known[1]:
                    folio.active, folio.workingset = True, workingset
                    self.limit_of[number].age += folio.size
                    self.limit_of[number].refaults += folio.size
                    self.totals[number]["activated"] += folio.size
        for p in pages:
            self.folios[file, p] = folio
        (tenant.active if folio.active else tenant.inactive).append(folio)
        return folio

    def mark_accessed(self, folio):
        tenant = self.tenants[folio.tenant]
        if not self.kernel:
            tenant.inactive.remove(folio)
            tenant.inactive.append(folio)
        elif not folio.referenced:
            folio.referenced = True
        elif not folio.active:
            tenant.inactive.remove(folio)
            tenant.active.append(folio)
            folio.active, folio.referenced = True, False
            self.limit_of[folio.tenant].age += folio.size
            self.totals[folio.tenant]["activated"] += folio.size


@dataclass
class File:
    """A file as one tenant accesses it."""

    cache: SlowCache
    number: int
    size: int
    tenant: int

    def folio_at(self, index):
        return self.cache.folios.get((self.number, index))

    def add(self, index, order, read=True):
        return self.cache.add(self.number, index, order, self.tenant, read)

    def pass_through(self):
        self.cache.read += 1


def read_run(file, ahead, index, pages):
    end = index + pages
    at_first = {at: file.folio_at(at) for at in range(index, end)}
    missed = 0
    for at in range(index, end):
        missed += at_first[at] is None or file.folio_at(at) is not at_first[at]
        if file.folio_at(at) is None:
            ahead.sync(at, end - at, index)
            if file.folio_at(at) is None and file.add(at, 0) is None:
                file.pass_through()
        folio = file.folio_at(at)
        if folio and folio.marker:
            ahead.on(folio, folio.index, end - folio.index)
        folio = file.folio_at(at)
        if folio:
            folio.unused.discard(at)
            ended = ahead.reader.ended
            same = ended is not None and file.folio_at(ended) is folio
            if at == folio.index if at > index else not (file.cache.kernel and same):
                file.cache.mark_accessed(folio)
    ahead.reader.ended = end - 1
    return missed


def fault_run(file, ahead, index, pages):
    missed = 0
    for at in range(index, index + pages):
        missed += not ahead.fault(at)
        if not file.cache.kernel and file.folio_at(at):
            file.cache.mark_accessed(file.folio_at(at))
    return missed


def write_run(file, index, pages, large_folios, max_order):
    at, end = index, index + pages
    while at < end:
        folio = file.folio_at(at)
        if folio:
            folio.unused.discard(at)
            if not file.cache.kernel and at in (index, folio.index):
                file.cache.mark_accessed(folio)
            at += 1
            continue
        order = 0
        while large_folios and order < max_order and at % 2 ** (order + 1) == 0:
            if at + 2 ** (order + 1) > end:
                break
            order += 1
        while order:
            room = file.cache.has_room(file.tenant, 2**order)
            if room and not any(file.folio_at(p) for p in range(at, at + 2**order)):
                break
            order -= 1
        file.add(at, order, read=False)
        at += 2**order


def updates_before(times, clock):
    """Returns the number of updates by each time, the first one `clock` ns after the first time."""
    return [max(0, 1 + (ts - times[0] - clock) // 2_000_000_000) for ts in times]


def simulate(
    runs, capacities, kernel, ra_pages, io_pages, large_folios, limits=None, clock=0, page_kib=4
):
    """Returns missed and read of each run, and the totals of each tenant. `clock`: None: always."""
    own = range(len(capacities)) if limits is None else limits
    cache = SlowCache(capacities, kernel, clock is None or not len(runs.ts), own, page_kib)
    settings = ra_pages, io_pages, large_folios, page_kib
    random = runs.random.tolist() or [False] * runs.readers
    readers = [Reader(flag) for flag in random]
    missed, reads = [], []
    updates = [0, *updates_before(runs.ts.tolist(), clock or 0)]
    for row in range(len(runs.first)):
        if len(runs.ts) and updates[row + 1] > updates[row]:
            for limit in cache.limits:
                cache.publish(limit)
        number = int(runs.file[row])
        file = File(cache, number, int(runs.size_pages[number]), int(runs.tenant[row]))
        ahead = ReadAhead(file, readers[runs.reader[row]], *settings)
        index, pages = int(runs.first[row] - runs.base[number]), int(runs.pages[row])
        cache.read = 0
        if runs.kind[row] == WRITE:
            write_run(file, index, pages, large_folios, largest(page_kib)[1])
            missed.append(0)
        elif runs.kind[row] == REMOVE:
            for at in range(index, index + pages):
                cache.remove(number, at)
            missed.append(0)
        elif runs.kind[row] == FAULT:
            missed.append(fault_run(file, ahead, index, pages))
        else:
            missed.append(read_run(file, ahead, index, pages))
        reads.append(cache.read)
    for folio in set(cache.folios.values()):
        cache.totals[folio.tenant]["unused"] += len(folio.unused)
    return missed, reads, cache.totals
