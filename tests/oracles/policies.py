"""Replacement policies, worked out naively from the papers that define them.

Each is a generator of hits: one for each page, in order. A page is brought in when it is missed,
and one is evicted first if the layer is full. docs/what-if.md names the policies; where a paper
leaves a choice, that of libCacheSim is taken, with whose hits the page says they agree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

Hits = Iterator[bool]
Policy = Callable[[list[Any], int], Hits]


def fifo(pages: list[Any], capacity: int) -> Hits:
    """First in, first out."""
    layer: OrderedDict[Any, None] = OrderedDict()
    for page in pages:
        yield page in layer
        if page not in layer:
            if len(layer) == capacity:
                layer.popitem(last=False)
            layer[page] = None


def lru(pages: list[Any], capacity: int) -> Hits:
    """The page used longest ago goes."""
    layer: OrderedDict[Any, None] = OrderedDict()
    for page in pages:
        yield page in layer
        if page not in layer and len(layer) == capacity:
            layer.popitem(last=False)
        layer[page] = None
        layer.move_to_end(page)


def clock(pages: list[Any], capacity: int) -> Hits:
    """Corbató 1968: the hand passes pages used since it passed them last, one chance for each."""
    layer: OrderedDict[Any, bool] = OrderedDict()  # the next page under the hand first
    for page in pages:
        yield page in layer
        if page in layer:
            layer[page] = True
            continue
        while len(layer) == capacity:
            candidate, used = layer.popitem(last=False)
            if used:
                layer[candidate] = False
        layer[page] = False


def lfu(pages: list[Any], capacity: int) -> Hits:
    """The page used least often since it came goes; of several, the one used longest ago."""
    layer: dict[Any, tuple[int, int]] = {}  # uses, and the place of the last one
    for place, page in enumerate(pages):
        yield page in layer
        if page not in layer and len(layer) == capacity:
            del layer[min(layer, key=layer.__getitem__)]
        layer[page] = layer.get(page, (0, 0))[0] + 1, place


def slru(pages: list[Any], capacity: int, share: float = 0.8) -> Hits:
    """Karedla, Love and Wherry 1994: a page that is hit is protected.

    The protected segment has a share of the capacity; its oldest page goes back to the other one.
    """
    probation: OrderedDict[Any, None] = OrderedDict()
    protected: OrderedDict[Any, None] = OrderedDict()
    most = int(capacity * share)
    for page in pages:
        hit = page in probation or page in protected
        yield hit
        if not hit:
            if len(probation) + len(protected) == capacity:
                (probation or protected).popitem(last=False)
            probation[page] = None
            continue
        probation.pop(page, None)
        protected[page] = None
        protected.move_to_end(page)
        if len(protected) > most:
            probation[protected.popitem(last=False)[0]] = None


def two_q(pages: list[Any], capacity: int) -> Hits:
    """Johnson and Shasha 1994, full version: Kin is a quarter, Kout a half of the capacity."""
    k_in, k_out = capacity // 4, capacity // 2
    a1_in: OrderedDict[Any, None] = OrderedDict()
    a1_out: OrderedDict[Any, None] = OrderedDict()
    a_m: OrderedDict[Any, None] = OrderedDict()
    for page in pages:
        hit = page in a1_in or page in a_m
        yield hit
        if page in a_m:
            a_m.move_to_end(page)
        if hit:
            continue
        was_out = a1_out.pop(page, page) is None
        if len(a1_in) + len(a_m) == capacity:
            if len(a1_in) > k_in:
                if len(a1_out) == k_out:
                    a1_out.popitem(last=False)
                a1_out[a1_in.popitem(last=False)[0]] = None
            else:
                a_m.popitem(last=False)
        (a_m if was_out else a1_in)[page] = None


def arc(pages: list[Any], capacity: int, whole: bool = False) -> Hits:
    """Megiddo and Modha 2003, Figure 4; `whole`: the target moves by whole pages."""
    t1: OrderedDict[Any, None] = OrderedDict()
    b1: OrderedDict[Any, None] = OrderedDict()
    t2: OrderedDict[Any, None] = OrderedDict()
    b2: OrderedDict[Any, None] = OrderedDict()
    target = 0.0

    def replace(in_b2: bool) -> None:
        if t1 and (len(t1) > target or (in_b2 and len(t1) == target)):
            b1[t1.popitem(last=False)[0]] = None
        else:
            b2[t2.popitem(last=False)[0]] = None

    def step(others: int, own: int) -> float:
        return max(others // own if whole else others / own, 1)

    for page in pages:
        yield page in t1 or page in t2
        if page in t1 or page in t2:
            t1.pop(page, None)
            t2[page] = None
            t2.move_to_end(page)
        elif page in b1:
            target = min(target + step(len(b2), len(b1)), capacity)
            replace(False)
            del b1[page]
            t2[page] = None
        elif page in b2:
            target = max(target - step(len(b1), len(b2)), 0)
            replace(True)
            del b2[page]
            t2[page] = None
        else:
            if len(t1) + len(b1) == capacity:
                if len(t1) < capacity:
                    b1.popitem(last=False)
                    replace(False)
                else:
                    t1.popitem(last=False)
            elif len(t1) + len(t2) + len(b1) + len(b2) >= capacity:
                if len(t1) + len(t2) + len(b1) + len(b2) == 2 * capacity:
                    b2.popitem(last=False)
                replace(False)
            t1[page] = None


def sieve(pages: list[Any], capacity: int) -> Hits:
    """Zhang et al. 2024: a queue that no hit reorders; the hand evicts, and stays where it is."""
    queue: list[Any] = []  # the oldest page first
    visited: dict[Any, bool] = {}
    hand = 0
    for page in pages:
        yield page in visited
        if page in visited:
            visited[page] = True
            continue
        if len(queue) == capacity:
            while visited[queue[hand]]:
                visited[queue[hand]] = False
                hand = (hand + 1) % len(queue)
            del visited[queue.pop(hand)]
            if hand == len(queue):
                hand = 0
        queue.append(page)
        visited[page] = False


def s3_fifo(pages: list[Any], capacity: int, fill_main: bool = True) -> Hits:
    """Yang et al. 2023: a small queue of a tenth, a main one, and names of as many pages.

    A page of the small queue that was used twice since it came goes to the main one. `fill_main`:
    the main queue takes what the small one has no room for until a page is evicted, as in
    libCacheSim since 2024; in the paper, the small queue takes all new pages.
    """
    most_small, most_ghosts = int(capacity * 0.1), int(capacity * 0.9)
    most_main = capacity - most_small
    small: OrderedDict[Any, int] = OrderedDict()
    main: OrderedDict[Any, int] = OrderedDict()
    ghosts: OrderedDict[Any, None] = OrderedDict()
    evicted = False
    for page in pages:
        hit = page in small or page in main
        yield hit
        if hit:
            queue = small if page in small else main
            queue[page] = min(queue[page] + 1, 3)
            continue
        known = ghosts.pop(page, page) is None
        while len(small) + len(main) == capacity:
            evicted = True
            if small and len(main) <= most_main:
                moved = True
                while moved and small:
                    candidate, uses = small.popitem(last=False)
                    moved = uses >= 2
                    if moved:
                        main[candidate] = 0
                    else:
                        if len(ghosts) == most_ghosts:
                            ghosts.popitem(last=False)
                        ghosts[candidate] = None
                continue
            candidate, uses = main.popitem(last=False)
            while uses:
                main[candidate] = uses - 1
                candidate, uses = main.popitem(last=False)
        if known or (fill_main and not evicted and len(small) >= most_small):
            main[page] = 0
        else:
            small[page] = 0


def best(pages: list[Any], capacity: int) -> Hits:
    """Belady 1966: the page whose next use is the farthest away goes."""
    after: list[float] = [float("inf")] * len(pages)
    seen: dict[Any, int] = {}
    for place in reversed(range(len(pages))):
        after[place] = seen.get(pages[place], float("inf"))
        seen[pages[place]] = place
    layer: dict[Any, float] = {}
    for place, page in enumerate(pages):
        yield page in layer
        if page not in layer and len(layer) == capacity:
            del layer[max(layer, key=layer.__getitem__)]
        layer[page] = after[place]


POLICIES: dict[str, Policy] = {
    "fifo": fifo, "lru": lru, "clock": clock, "lfu": lfu, "slru": slru, "2q": two_q, "arc": arc,
    "sieve": sieve, "s3-fifo": s3_fifo, "min": best,
}  # fmt: skip
LEAST = {"2q": 4, "s3-fifo": 10, "slru": 2}
"""The least capacity with which each queue of a policy has a page."""


def disk_writes(policy: str, pages: list[Any], capacity: int) -> tuple[int, int]:
    """Pages that the layer hands on to the disk, and those left in it at the end.

    Each page of the stream is a write, so each one in the layer is dirty.
    """
    if capacity == 0:
        return len(pages), 0
    missed = len(pages) - sum(POLICIES[policy](pages, capacity))
    left = min(capacity, len(set(pages)))
    return missed - left, left
