"""Replacement policies as their papers tell them, with lists: slow, and plain to see right.

A policy knows which pages are `in` it, and does three things: `use` a resident page, `admit` one
(and give up another where it is full, which it returns), `remove` one.
"""

from __future__ import annotations

from dataclasses import dataclass

WRITE, READ, PAST, LOOK = range(4)


class Fifo:
    def __init__(self, capacity, stream):
        self.capacity = capacity
        self.queue = []  # oldest first

    def __contains__(self, page):
        return page in self.queue

    def use(self, page):
        pass

    def victim(self):
        return self.queue[0]

    def admit(self, page):
        victim = None
        if len(self.queue) == self.capacity:
            victim = self.victim()
            self.remove(victim)
        self.queue.append(page)
        return victim

    def remove(self, page):
        self.queue.remove(page)


class Lru(Fifo):
    def use(self, page):
        self.queue.remove(page)
        self.queue.append(page)


class Clock(Fifo):
    def __init__(self, capacity, stream):
        super().__init__(capacity, stream)
        self.used = set()

    def use(self, page):
        self.used.add(page)

    def victim(self):
        while self.queue[0] in self.used:
            self.used.remove(self.queue[0])
            self.queue.append(self.queue.pop(0))
        return self.queue[0]

    def remove(self, page):
        super().remove(page)
        self.used.discard(page)


class Sieve(Fifo):
    def __init__(self, capacity, stream):
        super().__init__(capacity, stream)
        self.used = set()
        self.hand = None  # a page; None: the oldest there is when it is needed

    def use(self, page):
        self.used.add(page)

    def newer(self, page):
        at = self.queue.index(page) + 1
        return self.queue[at] if at < len(self.queue) else None

    def victim(self):
        at = self.hand if self.hand is not None else self.queue[0]
        while at in self.used:
            self.used.remove(at)
            at = self.newer(at)
            at = self.queue[0] if at is None else at
        self.hand = at
        return at

    def remove(self, page):
        if page == self.hand:
            self.hand = self.newer(page)
        super().remove(page)
        self.used.discard(page)


class Lfu(Fifo):
    def __init__(self, capacity, stream):
        super().__init__(capacity, stream)
        self.uses = {}

    def use(self, page):
        self.uses[page] += 1
        self.queue.remove(page)
        self.queue.append(page)

    def victim(self):
        return min(self.queue, key=lambda page: self.uses[page])  # the first of several

    def admit(self, page):
        victim = super().admit(page)
        self.uses[page] = 1
        return victim


class Slru:
    def __init__(self, capacity, stream):
        self.capacity = capacity
        self.most_protected = int(capacity * 0.8)
        self.probationary, self.protected = [], []

    def __contains__(self, page):
        return page in self.probationary or page in self.protected

    def use(self, page):
        self.remove(page)
        self.protected.append(page)
        if len(self.protected) > self.most_protected:
            self.probationary.append(self.protected.pop(0))

    def admit(self, page):
        victim = None
        if len(self.probationary) + len(self.protected) == self.capacity:
            victim = self.probationary.pop(0)
        self.probationary.append(page)
        return victim

    def remove(self, page):
        (self.probationary if page in self.probationary else self.protected).remove(page)


class TwoQ:
    def __init__(self, capacity, stream):
        self.capacity = capacity
        self.k_in, self.k_out = capacity // 4, capacity // 2
        self.a1_in, self.a1_out, self.a_m = [], [], []

    def __contains__(self, page):
        return page in self.a1_in or page in self.a_m

    def use(self, page):
        if page in self.a_m:
            self.a_m.remove(page)
            self.a_m.append(page)

    def admit(self, page):
        remembered = page in self.a1_out
        if remembered:
            self.a1_out.remove(page)
        victim = None
        if len(self.a1_in) + len(self.a_m) == self.capacity:
            if len(self.a1_in) > self.k_in:
                victim = self.a1_in.pop(0)
                self.a1_out.append(victim)
                if len(self.a1_out) > self.k_out:
                    self.a1_out.pop(0)
            else:
                victim = self.a_m.pop(0)
        (self.a_m if remembered else self.a1_in).append(page)
        return victim

    def remove(self, page):
        (self.a1_in if page in self.a1_in else self.a_m).remove(page)


class Arc:
    def __init__(self, capacity, stream):
        self.c = capacity
        self.t1, self.b1, self.t2, self.b2 = [], [], [], []
        self.p = 0.0

    def __contains__(self, page):
        return page in self.t1 or page in self.t2

    def use(self, page):
        self.remove(page)
        self.t2.append(page)

    def replace(self, page):
        over = len(self.t1) > self.p or (page in self.b2 and len(self.t1) == self.p)
        if (self.t1 and over) or not self.t2:
            self.b1.append(self.t1.pop(0))
            return self.b1[-1]
        self.b2.append(self.t2.pop(0))
        return self.b2[-1]

    def full(self):
        return len(self.t1) + len(self.t2) == self.c

    def admit(self, page):
        victim = None
        if page in self.b1:
            self.p = min(float(self.c), self.p + max(len(self.b2) / len(self.b1), 1.0))
            victim = self.replace(page) if self.full() else None
            self.b1.remove(page)
            self.t2.append(page)
        elif page in self.b2:
            self.p = max(0.0, self.p - max(len(self.b1) / len(self.b2), 1.0))
            victim = self.replace(page) if self.full() else None
            self.b2.remove(page)
            self.t2.append(page)
        else:
            if len(self.t1) + len(self.b1) == self.c:
                if len(self.t1) < self.c:
                    self.b1.pop(0)
                    victim = self.replace(page) if self.full() else None
                else:
                    victim = self.t1.pop(0)
            else:
                known = len(self.t1) + len(self.t2) + len(self.b1) + len(self.b2)
                if known == 2 * self.c and self.b2:
                    self.b2.pop(0)
                victim = self.replace(page) if self.full() else None
            self.t1.append(page)
        return victim

    def remove(self, page):
        (self.t1 if page in self.t1 else self.t2).remove(page)


class S3Fifo:
    def __init__(self, capacity, stream):
        self.capacity = capacity
        self.most_small = max(1, int(capacity * 0.1))
        self.most_ghost = int(capacity * 0.9)
        self.small, self.main, self.ghost = [], [], []
        self.uses = {}
        self.filling = True

    def __contains__(self, page):
        return page in self.small or page in self.main

    def use(self, page):
        self.uses[page] = min(3, self.uses[page] + 1)

    def evict(self):
        if len(self.main) > self.capacity - self.most_small or not self.small:
            while self.uses[self.main[0]]:
                self.uses[self.main[0]] -= 1
                self.main.append(self.main.pop(0))
            return self.main.pop(0)
        while self.small:
            page = self.small.pop(0)
            if self.uses[page] < 2:
                self.ghost.append(page)
                if len(self.ghost) > self.most_ghost:
                    self.ghost.pop(0)
                return page
            self.main.append(page)
            self.uses[page] = 0
        return None

    def admit(self, page):
        remembered = page in self.ghost
        if remembered:
            self.ghost.remove(page)
        victim = None
        while len(self.small) + len(self.main) == self.capacity:
            self.filling = False
            victim = self.evict()
        to_main = remembered or (self.filling and len(self.small) >= self.most_small)
        (self.main if to_main else self.small).append(page)
        self.uses[page] = 0
        return victim

    def remove(self, page):
        (self.small if page in self.small else self.main).remove(page)


class Min(Fifo):
    def __init__(self, capacity, stream):
        super().__init__(capacity, stream)
        self.stream = stream
        self.now = 0

    def next_use(self, page):
        for at in range(self.now + 1, len(self.stream)):
            other, kind = self.stream[at]
            if other == page and kind in (WRITE, READ):
                return at
            if other == page and kind == PAST:
                break
        return len(self.stream) + page

    def victim(self):
        return max(self.queue, key=self.next_use)


SLOW = {
    "fifo": Fifo,
    "lru": Lru,
    "clock": Clock,
    "lfu": Lfu,
    "slru": Slru,
    "2q": TwoQ,
    "arc": Arc,
    "sieve": Sieve,
    "s3-fifo": S3Fifo,
    "min": Min,
}


@dataclass
class Run:
    found: list[int]
    victim: list[int]
    destaged: int = 0
    overwritten: int = 0
    dropped: int = 0
    resident: int = 0


def run(policy, capacity, pages, kinds=None):
    """Runs a stream; returns the bits of `found` as `policies.Outcomes` has them."""
    stream = list(zip(pages, kinds or [WRITE] * len(pages), strict=True))
    layer = SLOW[policy](capacity, stream)
    dirty = set()
    told = Run([], [])
    for now, (page, kind) in enumerate(stream):
        layer.now = now
        found, victim = (page in layer) + 2 * (page in dirty), None
        if page in layer:
            if kind == PAST:
                layer.remove(page)
                told.dropped += page in dirty
                dirty.discard(page)
            elif kind != LOOK:
                layer.use(page)
                told.overwritten += kind == WRITE and page in dirty
        elif kind in (WRITE, READ):
            victim = layer.admit(page)
            if victim in dirty:
                found += 4
                told.destaged += 1
                dirty.remove(victim)
        if kind == WRITE:
            dirty.add(page)
        told.found.append(found)
        told.victim.append(-1 if victim is None else victim)
    told.resident = len(dirty)
    return told
