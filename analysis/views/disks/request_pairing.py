"""Pairing of the events of block requests: bio queued, request inserted, issued, completed.

Events come in the order in which they were recorded. Waiting bios, waiting requests and requests in
flight are entries of one hash table by device, operation and first sector. Memory therefore grows
with the number of requests under way, not with the length of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.views.disks.request_entries import (
    AGE,
    ANY,
    ENTRY,
    FREE,
    INSERTED,
    NONE,
    NOT_INSERTED,
    UNKNOWN,
    UNKNOWN_ERROR,
    USED,
    Ints,
    bucket_of,
    free,
    in_flight_at,
    link,
    newest_in_flight_at,
    older_at,
    put,
    remove,
    sent_back_at,
    set_place,
    take,
    waiting_at,
)
from tracer.probes.compiled import compiled

KINDS = (
    *("bio_queue", "backmerge", "frontmerge", "insert"),
    *("rq_merge", "issue", "requeue", "complete"),
)
"""Events that are paired. An event's code is its index here."""
_QUEUE, _BACKMERGE, _FRONTMERGE, _INSERT, _RQ_MERGE, _ISSUE, _REQUEUE, _COMPLETE = range(len(KINDS))

FLUSH = 0
"""Code of the operation that flushes a device's cache. A flush has no first sector."""

EVENT = np.dtype(
    [
        ("row", "i8"),  # row in the table block
        ("ts", "i8"),  # ns
        ("kind", "i8"),  # code of KINDS
        ("device", "i8"),
        ("operation", "i8"),
        ("sector", "u8"),
        ("sectors", "i8"),
        ("error", "i8"),
    ]
)
REQUEST = np.dtype(
    [
        ("began", "i8"),  # the row of its first event
        ("row", "i8"),  # the row of its last issue
        ("first", "i8"),  # the row of its first issue
        ("queue_ns", "i8"),
        ("insert_ns", "i8"),
        ("again_ns", "i8"),  # time at which it was inserted again, after it was sent back
        ("complete_ns", "i8"),
        ("error", "i8"),
        ("run", "i8"),  # requests that may have taken one another's bio share a run
    ]
)
_MOST_ENTRIES = 1 << 20
"""Most entries that are kept. A machine never has more under way. Beyond it, the oldest half is
dropped."""
_RUN, _DONE, _CROSSED = range(3, 6)
"""More indices into the state: number of runs, of requests handed out, and of requests that took
an older bio than a request before them."""


class Pairing:
    """The requests under way, to which events are paired batch by batch.

    A request's entry waits from its bio or its insertion on. An issue takes the request of its
    length that was sent back. Without one, it takes the entry at its place that was inserted last,
    or else the entry that began last. Bios that failed before they became a request (EAGAIN) are
    left over. A completion takes the oldest request in flight of the same place, operation and
    length. Without one, it takes the oldest longer request, which then continues behind the
    completed part.
    """

    def __init__(self, gaps: list[tuple[int, int]]) -> None:
        """Takes `gaps`: the times (from, to in ns) in which events were lost."""
        ordered = np.array(sorted(gaps), np.int64).reshape(-1, 2)
        self._from = np.ascontiguousarray(ordered[:, 0])
        self._to = np.maximum.accumulate(ordered[:, 1]) if len(ordered) else self._from
        self._entries = np.zeros(1024, ENTRY)
        self._buckets = np.full(1024, NONE, np.int64)
        self._state = np.zeros(6, np.int64)
        self._crossed: set[int] = set()
        self._link_free(0)

    def _link_free(self, first: int) -> None:
        """Makes the entries from `first` on free."""
        self._entries["next"][first:] = np.arange(first + 1, len(self._entries) + 1)
        self._entries["next"][-1] = NONE
        self._state[FREE] = first

    def add(self, events: NDArray[np.void]) -> NDArray[np.void]:
        """Pairs events (`EVENT`) and returns the finished requests (`REQUEST`) in any order."""
        done = np.empty(len(events) + int(self._state[USED]), REQUEST)
        self._make_room(len(events))
        crossed = np.empty(len(events), np.int64)
        self._state[_DONE] = self._state[_CROSSED] = 0
        _pair(
            events, self._entries, self._buckets, self._from, self._to, self._state, done, crossed
        )
        self._crossed.update(crossed[: self._state[_CROSSED]].tolist())
        return done[: self._state[_DONE]]

    def _make_room(self, more: int) -> None:
        """Ensures that there are free entries for `more` events."""
        used = int(self._state[USED])
        if used + more <= len(self._entries):
            return
        kept = self._entries[self._entries["used"]]
        size = 1 << int(used + more - 1).bit_length()
        self._entries = np.zeros(size, ENTRY)
        self._entries[:used] = kept[np.argsort(kept["age"], kind="stable")]
        self._link_free(used)
        self._buckets = np.full(size, NONE, np.int64)
        link(self._entries, used, self._buckets)

    def forget(self) -> NDArray[np.void]:
        """Drops the older half of the entries if there are too many, and returns its requests."""
        if self._state[USED] <= _MOST_ENTRIES:
            return np.empty(0, REQUEST)
        kept = self._entries[self._entries["used"]]
        kept = kept[np.argsort(kept["age"], kind="stable")]
        older, newer = kept[: len(kept) // 2], kept[len(kept) // 2 :]
        self._entries = np.zeros(len(newer) + 1, ENTRY)
        self._entries[:-1] = newer
        self._link_free(len(newer))
        self._state[USED] = len(newer)
        self._buckets = np.full(len(self._entries), NONE, np.int64)
        link(self._entries, len(newer), self._buckets)
        return _unfinished(older)

    def end(self) -> NDArray[np.void]:
        """Returns the requests that were never completed (`REQUEST`)."""
        return _unfinished(self._entries[self._entries["used"]])

    @property
    def crossed(self) -> set[int]:
        """Runs whose bios must be assigned anew: the oldest bio to the first issue, and so on."""
        return self._crossed


def _unfinished(entries: NDArray[np.void]) -> NDArray[np.void]:
    """Returns the issued requests. Those that were sent back have a row below 0."""
    issued = entries[entries["in_flight"] | entries["sent_back"]]
    found = np.empty(len(issued), REQUEST)
    for name in ("began", "row", "first", "queue_ns", "insert_ns", "again_ns", "run"):
        found[name] = issued[name]
    found["row"][issued["sent_back"]] = -1 - issued["age"][issued["sent_back"]]
    found["complete_ns"], found["error"] = UNKNOWN, UNKNOWN_ERROR
    return found


def in_batches(pairing: Pairing, batches: Iterator[NDArray[np.void]]) -> Iterator[NDArray[np.void]]:
    """Yields the requests of batches of events. Requests without a completion come last."""
    for events in batches:
        yield pairing.add(events)
        yield pairing.forget()
    yield pairing.end()


@compiled
def _pair(
    events: NDArray[np.void],
    entries: NDArray[np.void],
    buckets: Ints,
    lost_from: Ints,
    lost_to: Ints,
    state: Ints,
    done: NDArray[np.void],
    crossed: Ints,
) -> None:
    for number in range(len(events)):
        event = events[number]
        kind, device, operation = event["kind"], event["device"], event["operation"]
        sector, sectors, ts = event["sector"], event["sectors"], event["ts"]
        first = buckets[bucket_of(device, operation, sector, len(buckets))]
        if kind == _COMPLETE:
            at, count, fits = in_flight_at(entries, first, device, operation, sector, sectors)
            if at == NONE:
                continue
            if event["error"] != UNKNOWN_ERROR and entries[at]["error"] in (0, UNKNOWN_ERROR):
                entries[at]["error"] = event["error"]
            gap = np.searchsorted(lost_from, ts, side="right") - 1
            if count > 1 and gap >= 0 and lost_to[gap] >= entries[at]["issue_ns"]:
                # A completion may be lost, so this one cannot be assigned to a request.
                while at != NONE:
                    _hand_out(entries, at, UNKNOWN, state, done)
                    free(entries, at, buckets, state)
                    first = buckets[bucket_of(device, operation, sector, len(buckets))]
                    at, _, left = in_flight_at(entries, first, device, operation, sector, sectors)
                    if left != fits:
                        break
            elif fits == 1:
                remove(entries, at, buckets)
                entries[at]["sector"] += np.uint64(sectors)
                entries[at]["sectors"] -= sectors
                put(entries, at, buckets)
            else:
                issued = entries[at]["age"]
                _hand_out(entries, at, ts, state, done)
                free(entries, at, buckets, state)
                first = buckets[bucket_of(device, operation, sector, len(buckets))]
                if operation == FLUSH:
                    # This flush served all flushes that waited when it was issued.
                    at = older_at(entries, first, device, operation, sector, issued)
                    while at != NONE:
                        free(entries, at, buckets, state)
                        first = buckets[bucket_of(device, operation, sector, len(buckets))]
                        at = older_at(entries, first, device, operation, sector, issued)
        elif kind in (_QUEUE, _INSERT):
            if kind == _INSERT:
                at = sent_back_at(entries, first, device, operation, sector, sectors, sectors)
                if at != NONE:
                    entries[at]["again_ns"] = ts
                    continue
                at = waiting_at(entries, first, device, operation, sector, NOT_INSERTED)
                if at != NONE:
                    entries[at]["insert_ns"] = ts
                    _renew(entries, at, buckets, state)
                    continue
            before = waiting_at(entries, first, device, operation, sector, ANY)
            at = take(entries, state)
            entries[at]["began"] = event["row"]
            set_place(entries, at, device, operation, sector, sectors)
            if kind == _QUEUE:
                entries[at]["queue_ns"] = ts
            else:
                entries[at]["insert_ns"] = ts
            entries[at]["run"] = _run(entries, before, state)
            put(entries, at, buckets)
        elif kind in (_BACKMERGE, _RQ_MERGE):
            at = NONE
            if kind == _RQ_MERGE:
                at = waiting_at(entries, first, device, operation, sector, INSERTED)
            if at == NONE:
                at = waiting_at(entries, first, device, operation, sector, NOT_INSERTED)
            if at != NONE:
                free(entries, at, buckets, state)
        elif kind == _FRONTMERGE:
            behind = sector + np.uint64(sectors)
            start = buckets[bucket_of(device, operation, behind, len(buckets))]
            former = waiting_at(entries, start, device, operation, behind, INSERTED)
            if former == NONE:
                former = waiting_at(entries, start, device, operation, behind, NOT_INSERTED)
            at = waiting_at(entries, first, device, operation, sector, NOT_INSERTED)
            if former != NONE and former != at:
                if at == NONE:  # the event of its bio is lost
                    before = waiting_at(entries, first, device, operation, sector, ANY)
                    at = take(entries, state)
                    entries[at]["began"] = event["row"]
                    set_place(entries, at, device, operation, sector, sectors)
                    entries[at]["run"] = _run(entries, before, state)
                    put(entries, at, buckets)
                entries[at]["insert_ns"] = entries[former]["insert_ns"]
                free(entries, former, buckets, state)
        elif kind == _ISSUE:
            at = sent_back_at(entries, first, device, operation, sector, sectors, sectors)
            if at == NONE:  # it may have grown
                at = sent_back_at(entries, first, device, operation, sector, 0, sectors)
            if at == NONE:
                at = waiting_at(entries, first, device, operation, sector, INSERTED)
            if at == NONE:
                at = waiting_at(entries, first, device, operation, sector, NOT_INSERTED)
            if at == NONE:
                at = take(entries, state)
                entries[at]["began"] = event["row"]
                entries[at]["run"] = _run(entries, NONE, state)
            else:
                if entries[at]["passed"]:
                    crossed[state[_CROSSED]] = entries[at]["run"]
                    state[_CROSSED] += 1
                below = entries[at]["next"]
                below = waiting_at(entries, below, device, operation, sector, ANY)
                # All entries below a passed entry have been passed already.
                while below != NONE and not entries[below]["passed"]:
                    entries[below]["passed"] = True
                    below = entries[below]["next"]
                    below = waiting_at(entries, below, device, operation, sector, ANY)
                remove(entries, at, buckets)
                entries[at]["age"] = state[AGE]
                state[AGE] += 1
            set_place(entries, at, device, operation, sector, sectors)
            entries[at]["in_flight"] = True
            entries[at]["sent_back"] = False
            entries[at]["row"] = event["row"]
            if entries[at]["first"] == NONE:
                entries[at]["first"] = event["row"]
            entries[at]["issue_ns"] = ts
            put(entries, at, buckets)
        elif kind == _REQUEUE:
            at = newest_in_flight_at(entries, first, device, operation, sector, sectors)
            if at == NONE:
                continue
            entries[at]["in_flight"] = entries[at]["passed"] = False
            entries[at]["sent_back"] = True
            _renew(entries, at, buckets, state)


@compiled
def _renew(entries: NDArray[np.void], at: int, buckets: Ints, state: Ints) -> None:
    """Makes an entry the newest one."""
    remove(entries, at, buckets)
    entries[at]["age"] = state[AGE]
    state[AGE] += 1
    put(entries, at, buckets)


@compiled
def _run(entries: NDArray[np.void], before: int, state: Ints) -> int:
    """Returns the run of the waiting entry `before`, or a new run if there is no such entry."""
    if before != NONE:
        return int(entries[before]["run"])
    state[_RUN] += 1
    return int(state[_RUN])


@compiled
def _hand_out(
    entries: NDArray[np.void], at: int, complete_ns: int, state: Ints, done: NDArray[np.void]
) -> None:
    """Adds a finished request to `done`."""
    number = state[_DONE]
    done[number]["began"] = entries[at]["began"]
    done[number]["row"] = entries[at]["row"]
    done[number]["first"] = entries[at]["first"]
    done[number]["queue_ns"] = entries[at]["queue_ns"]
    done[number]["insert_ns"] = entries[at]["insert_ns"]
    done[number]["again_ns"] = entries[at]["again_ns"]
    done[number]["complete_ns"] = complete_ns
    done[number]["error"] = UNKNOWN_ERROR if complete_ns == UNKNOWN else entries[at]["error"]
    done[number]["run"] = entries[at]["run"]
    state[_DONE] += 1
