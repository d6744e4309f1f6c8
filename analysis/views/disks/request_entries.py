"""Hash table of waiting and in-flight requests, by device, operation and first sector.

A bucket is a chain of entries, the newest first. The array `state` holds the number of entries ever
made, the first free entry and the number of entries in use.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.probes.compiled import compiled

Ints = NDArray[np.int64]
Entries = NDArray[np.void]

UNKNOWN = np.iinfo(np.int64).min
"""An unknown time."""
UNKNOWN_ERROR = 1 << 40
"""An unknown error. Known errors have 32 bits."""

ENTRY = np.dtype(
    [
        ("next", "i8"),  # the next older entry of its bucket
        ("used", "?"),
        ("in_flight", "?"),
        ("sent_back", "?"),
        ("passed", "?"),  # a newer entry of the same place was issued before it
        ("device", "i8"),
        ("operation", "i8"),
        ("sector", "u8"),  # first sector of the part that is not done
        ("sectors", "i8"),  # length of the part that is not done
        ("began", "i8"),  # the row of its first event
        ("row", "i8"),  # the row of its last issue
        ("first", "i8"),  # the row of its first issue
        ("issue_ns", "i8"),
        ("queue_ns", "i8"),
        ("insert_ns", "i8"),
        ("again_ns", "i8"),  # time at which it was inserted again, after it was sent back
        ("error", "i8"),
        ("run", "i8"),  # requests that may have taken one another's bio share a run
        ("age", "i8"),  # number of the entry, in order of creation or last renewal
    ],
    align=True,
)
NONE = -1
"""No entry."""
AGE, FREE, USED = range(3)
"""Indices into the state: entries ever made, the first free entry, entries in use."""
ANY, INSERTED, NOT_INSERTED = range(3)
"""Kinds of waiting entries that a search can be limited to."""
_MOST_LOOKED_AT = 256
"""Most entries of a bucket that a search visits. No disk has more at one place."""


@compiled
def bucket_of(device: int, operation: int, sector: np.uint64, buckets: int) -> int:
    mixed = np.uint64(sector) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(device * 64 + operation + 1) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(32)
    return int(mixed % np.uint64(buckets))


@compiled
def link(entries: Entries, count: int, buckets: Ints) -> None:
    """Puts the first `count` entries, which are ordered by age, into their buckets."""
    for at in range(count):
        entry = entries[at]
        bucket = bucket_of(entry["device"], entry["operation"], entry["sector"], len(buckets))
        entries[at]["next"] = buckets[bucket]
        buckets[bucket] = at


@compiled
def take(entries: Entries, state: Ints) -> int:
    """Takes a free entry into use and returns it."""
    at = int(state[FREE])
    state[FREE] = entries[at]["next"]
    state[USED] += 1
    entries[at]["used"] = True
    entries[at]["in_flight"] = False
    entries[at]["sent_back"] = entries[at]["passed"] = False
    entries[at]["age"] = state[AGE]
    entries[at]["queue_ns"] = entries[at]["insert_ns"] = UNKNOWN
    entries[at]["again_ns"] = UNKNOWN
    entries[at]["error"] = UNKNOWN_ERROR
    entries[at]["first"] = NONE
    state[AGE] += 1
    return at


@compiled
def put(entries: Entries, at: int, buckets: Ints) -> None:
    """Puts an entry into its bucket as the newest one."""
    entry = entries[at]
    bucket = bucket_of(entry["device"], entry["operation"], entry["sector"], len(buckets))
    entries[at]["next"] = buckets[bucket]
    buckets[bucket] = at


@compiled
def remove(entries: Entries, at: int, buckets: Ints) -> None:
    """Removes an entry from its bucket."""
    entry = entries[at]
    bucket = bucket_of(entry["device"], entry["operation"], entry["sector"], len(buckets))
    here = buckets[bucket]
    if here == at:
        buckets[bucket] = entries[at]["next"]
        return
    while entries[here]["next"] != at:
        here = entries[here]["next"]
    entries[here]["next"] = entries[at]["next"]


@compiled
def free(entries: Entries, at: int, buckets: Ints, state: Ints) -> None:
    """Removes an entry from its bucket and makes it free."""
    remove(entries, at, buckets)
    entries[at]["used"] = False
    entries[at]["next"] = state[FREE]
    state[FREE] = at
    state[USED] -= 1


@compiled
def set_place(
    entries: Entries,
    at: int,
    device: int,
    operation: int,
    sector: np.uint64,
    sectors: int,
) -> None:
    entries[at]["device"] = device
    entries[at]["operation"] = operation
    entries[at]["sector"] = sector
    entries[at]["sectors"] = sectors


@compiled
def _is_at(entry: Entries, device: int, operation: int, sector: np.uint64) -> bool:
    return bool(
        entry["device"] == device
        and entry["operation"] == operation
        and entry["sector"] == np.uint64(sector)
    )


@compiled
def waiting_at(
    entries: Entries,
    start: int,
    device: int,
    operation: int,
    sector: np.uint64,
    which: int,
) -> int:
    """Finds the newest entry that waits at a place, from the entry `start` of its bucket on.

    Requests that were sent back are left out. Returns NONE if there is no such entry.
    """
    at = start
    for _ in range(_MOST_LOOKED_AT):
        if at == NONE:
            break
        waits = not (entries[at]["in_flight"] or entries[at]["sent_back"])
        if waits and _is_at(entries[at], device, operation, sector):
            inserted = entries[at]["insert_ns"] != UNKNOWN
            if which == ANY or inserted == (which == INSERTED):
                return at
        at = entries[at]["next"]
    return NONE


@compiled
def sent_back_at(
    entries: Entries,
    start: int,
    device: int,
    operation: int,
    sector: np.uint64,
    least: int,
    most: int,
) -> int:
    """Finds the request, from `least` to `most` sectors long, that was sent back first."""
    found = NONE
    at = start
    for _ in range(_MOST_LOOKED_AT):
        if at == NONE:
            break
        fits = entries[at]["sent_back"] and least <= entries[at]["sectors"] <= most
        if fits and _is_at(entries[at], device, operation, sector):
            found = at
        at = entries[at]["next"]
    return found


@compiled
def older_at(
    entries: Entries,
    start: int,
    device: int,
    operation: int,
    sector: np.uint64,
    age: int,
) -> int:
    """Finds an entry that waits at a place and is older than `age`."""
    at = start
    for _ in range(_MOST_LOOKED_AT):
        if at == NONE:
            break
        waits = not (entries[at]["in_flight"] or entries[at]["sent_back"])
        waits = waits and entries[at]["age"] < age
        if waits and _is_at(entries[at], device, operation, sector):
            return at
        at = entries[at]["next"]
    return NONE


@compiled
def in_flight_at(
    entries: Entries,
    start: int,
    device: int,
    operation: int,
    sector: np.uint64,
    sectors: int,
) -> tuple[int, int, int]:
    """Finds the oldest request in flight at a place among those that fit a length best.

    Returns that entry, the number of requests that fit equally well, and the fit: 2 if the request
    has this length, 1 if it is longer, 0 if there is none.
    """
    found, count, best = NONE, 0, 0
    at = start
    for _ in range(_MOST_LOOKED_AT):
        if at == NONE:
            break
        if entries[at]["in_flight"] and _is_at(entries[at], device, operation, sector):
            length = entries[at]["sectors"]
            fits = 2 if length == sectors else 1 if length > sectors else 0
            if fits > best:
                found, count, best = at, 1, fits
            elif fits == best and fits:
                count += 1
                if entries[at]["age"] < entries[found]["age"]:
                    found = at
        at = entries[at]["next"]
    return found, count, best


@compiled
def newest_in_flight_at(
    entries: Entries,
    start: int,
    device: int,
    operation: int,
    sector: np.uint64,
    sectors: int,
) -> int:
    """Finds the in-flight request of this length that was issued last."""
    found = NONE
    at = start
    for _ in range(_MOST_LOOKED_AT):
        if at == NONE:
            break
        fits = entries[at]["in_flight"] and entries[at]["sectors"] == sectors
        if fits and _is_at(entries[at], device, operation, sector):
            newer = found == NONE or entries[at]["age"] > entries[found]["age"]
            found = at if newer else found
        at = entries[at]["next"]
    return found
