"""A layer, its medium and a disk, simulated slowly and simply: what the fast model must equal.

Both devices serve one after another; the layer is least recently used and destages only to make
room; every time of service is flat. The medium writes pages that enter by a read after the read.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tracer.analysis.flushlayer.timed.requests import Requests


def response_times(
    requests: Requests, capacity: int, disk_ns: int, page_ns: int, keeps_reads: bool
) -> list[int]:
    """Response time of each bio; flushes take none."""
    events: list[tuple[int, int, Callable[[int], None]]] = []
    free = {"disk": 0, "medium": 0}
    finished = [0] * len(requests)
    layer: OrderedDict[int, bool] = OrderedDict()  # page: dirty; the least recent first

    def work(device: str, now: int, took: int, then: Callable[[int], None]) -> None:
        free[device] = max(free[device], now) + took
        heapq.heappush(events, (free[device], len(seen), then))
        seen.append(None)

    def end(m: int) -> Callable[[int], None]:
        def at(now: int) -> None:
            finished[m] = max(finished[m], now)

        return at

    def countdown(number: int, then: Callable[[int], None]) -> Callable[[int], None]:
        left = [number]

        def one(now: int) -> None:
            left[0] -= 1
            if left[0] == 0:
                then(now)

        return one

    def make_room(now: int, then: Callable[[int], None]) -> None:
        if len(layer) < capacity:
            return
        _, dirty = layer.popitem(last=False)
        if dirty:
            work("disk", now, disk_ns, then)

    def write(m: int, now: int, pages: list[int]) -> None:
        waits: list[int] = []
        enters = lambda at: work("medium", at, page_ns * len(pages), end(m))  # noqa: E731
        # The number of pages to wait for is known once all of them are in.
        last: dict[str, Any] = {}
        for page in pages:
            if page in layer:
                layer.move_to_end(page)
            else:
                before = len(seen)
                make_room(now, lambda at: last["then"](at))
                waits += [page] * (len(seen) - before)
            layer[page] = True
        last["then"] = countdown(len(waits), enters)
        if not waits:
            enters(now)

    def read(m: int, now: int, pages: list[int]) -> None:
        hits = [page for page in pages if page in layer]
        entered: list[int] = []

        def over(at: int) -> None:
            end(m)(at)
            if entered:
                work("medium", at, page_ns * len(entered), lambda at: None)

        part = countdown((len(hits) < len(pages)) + bool(hits), over)
        if len(hits) < len(pages):
            work("disk", now, disk_ns, part)
        if hits:
            work("medium", now, page_ns * len(hits), part)
        for page in pages if keeps_reads else ():
            if page in layer:
                layer.move_to_end(page)
            else:
                make_room(now, lambda at: None)
                layer[page] = False
                entered.append(page)

    seen: list[None] = []
    arrivals = list(zip(requests.ts.tolist(), range(len(requests)), strict=True))
    while arrivals or events:
        if events and (not arrivals or events[0][0] <= arrivals[0][0]):
            at, _, then = heapq.heappop(events)
            then(at)
            continue
        now, m = arrivals.pop(0)
        first = int(requests.first[m])
        pages = requests.page[first : first + int(requests.pages[m])].tolist()
        finished[m] = now
        if requests.op[m] == 0:
            write(m, now, pages)
        elif requests.op[m] == 1:
            read(m, now, pages)
    return [end - at for end, at in zip(finished, requests.ts.tolist(), strict=True)]
