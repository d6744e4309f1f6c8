"""The view `requests`, worked out naively: lists are walked, one event after the other.

It is written from the documentation of the view, not from its code.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
FLUSH = "flush"


def operation(rwbs: str) -> str:
    """The operation of `rwbs`; F in front of another operation asks for a flush before it."""
    if len(rwbs) > 1 and rwbs[0] == "F" and rwbs[1] != "F":
        rwbs = rwbs[1:]
    return {"R": "read", "W": "write", "D": "discard", "F": FLUSH}.get(rwbs[:1], "other")


def at_once(event: Event) -> bool:
    """Returns whether the event belongs to a request without sectors."""
    return operation(event["rwbs"]) in (FLUSH, "other")


@dataclass(eq=False)
class Request:
    """A request: its issues (place and event), the part that is left, and how it ended."""

    issues: list[tuple[int, Event]]
    sector: int
    left: int
    error: int | None = None
    complete_ns: int | None = None
    completed: int | None = None
    inserts: list[tuple[int, int]] = field(default_factory=list)
    """Place and time of its inserts."""


def pair(
    arrivals: list[tuple[int, Any]], takers: list[int], removers: list[int]
) -> dict[int, tuple[int, Any]]:
    """Each taker's arrival: of more arrivals than takers the latest, the oldest for the first.

    Takers are places; arrivals are places with a value. Takers without an arrival are left out.
    A remover takes the latest one away.
    """
    values = dict(arrivals)
    waiting: list[int] = []
    taken: list[int] = []
    served: list[int] = []
    removed: dict[int, tuple[int, Any]] = {}
    for place in sorted([*values, *takers, *removers]):
        if place in values:
            waiting.append(place)
        elif waiting:
            if place in removers:
                latest = waiting.pop()
                removed[place] = latest, values[latest]
            else:
                taken.append(waiting.pop())
                served.append(place)
    found = {taker: (p, values[p]) for taker, p in zip(served, sorted(taken), strict=True)}
    return found | removed


def walk(
    events: list[tuple[int, Event]], gaps: list[tuple[int, int]]
) -> tuple[list[Request], list[Request]]:
    """The requests of one disk and operation; those sent back and not issued again."""
    requests: list[Request] = []
    flight: list[Request] = []
    sent_back: list[Request] = []
    for place, event in events:
        sector = 0 if operation(event["rwbs"]) == FLUSH else event["sector"]
        length, ts = event["nr_sector"], event["ts"]
        here = [r for r in flight if r.sector == sector]
        fit = [r for r in here if r.left == length] or [r for r in here if r.left > length]
        if event["event"] == "issue":
            back = [r for r in sent_back if r.sector == sector]
            again = [r for r in back if r.left == length] or [r for r in back if r.left < length]
            if again:
                request = again[0]
                sent_back.remove(request)
                request.issues.append((place, event))
                request.left = length
            else:
                request = Request([(place, event)], sector, length)
            requests.append(request)
            flight.append(request)
        elif event["event"] == "insert":
            again = [r for r in sent_back if (r.sector, r.left) == (sector, length)]
            if again:
                again[0].inserts.append((place, ts))
        elif event["event"] == "requeue" and fit and fit[0].left == length:
            flight.remove(fit[-1])
            requests.remove(fit[-1])
            sent_back.append(fit[-1])
        elif event["event"] == "complete" and fit and (length > 0 or at_once(event)):
            since = fit[0].issues[-1][1]["ts"]
            if len(fit) > 1 and any(end > since and start < ts for start, end in gaps):
                flight = [r for r in flight if r not in fit]
                continue
            done = fit[0]
            done.error = done.error or event.get("error")
            done.sector += length
            done.left -= length
            if done.left == 0:
                done.complete_ns, done.completed = ts, place
                flight.remove(done)
    return requests, sent_back


def enter(events: list[tuple[int, Event]], requests: list[Request]) -> dict[Request, int]:
    """Returns the queue times of these requests' bios; sets the insertion times.

    A bio merged in front moves the request that waited behind it to its own sector, so sectors
    are looked at from the last one down.
    """
    at: dict[int, dict[str, list]] = defaultdict(lambda: defaultdict(list))
    inserted_again = {place for request in requests for place, _ in request.inserts}
    for place, event in events:
        if event["event"] in ("bio_queue", "insert") and place not in inserted_again:
            at[event["sector"]][event["event"]].append((place, event["ts"]))
        elif event["event"] == "frontmerge":
            behind = event["sector"] + event["nr_sector"]
            at[behind]["in_front"].append((place, event["sector"]))
        elif event["event"] in ("backmerge", "rq_merge"):
            at[event["sector"]][event["event"]].append(place)
    for request in requests:
        place, event = request.issues[0]
        at[event["sector"]]["issue"].append((place, request))
    queued = {}
    for sector in sorted(at, reverse=True):
        here = at[sector]
        fronts = dict(here["in_front"])
        of_issue = dict(here["issue"])
        inserts = pair(here["insert"], [*of_issue], [*fronts, *here["rq_merge"]])
        begun = {}  # the place of a request's first event, by the place of the event that ends it
        for place, (entered, ts) in inserts.items():
            if place in fronts:
                at[fronts[place]]["insert"].append((place, ts))
            elif place in of_issue:
                of_issue[place].inserts.append((entered, ts))
            begun[place] = entered
        takers = {begun.get(place, place) for place in of_issue}
        gone = {place for place, _ in here["insert"]}
        gone |= {begun.get(place, place) for place in [*fronts, *here["rq_merge"]]}
        gone |= set(here["backmerge"])
        found = pair(here["bio_queue"], [*takers], [*gone - takers])
        for place, request in of_issue.items():
            bio = found.get(begun.get(place, place))
            if bio:
                queued[request] = bio[1]
    return queued


def flushed(events: list[tuple[int, Event]], requests: list[Request]) -> dict[Request, int]:
    """Returns the queue time of the latest bio that waited for each flush.

    A flush that completes has served all bios that were queued before it was issued.
    """
    issued = {request.issues[0][0]: request for request in requests}
    completed = {request.completed: request for request in requests}
    waiting: list[tuple[int, int]] = []
    taken, served = [], []
    for place, event in events:
        if event["event"] == "bio_queue":
            waiting.append((place, event["ts"]))
        elif place in issued and waiting:
            taken.append(waiting.pop())
            served.append(issued[place])
        elif place in completed:
            since = completed[place].issues[-1][0]
            waiting = [bio for bio in waiting if bio[0] > since]
    return {request: ts for request, (_, ts) in zip(served, sorted(taken), strict=True)}


def requests_of(
    block: list[Event], loss: list[Event], disk_of: dict[str, str]
) -> list[dict[str, Any]]:
    """The rows of `requests`: of the table block, the gaps, and the disk of each partition."""
    gaps = [(gap["from"], gap["to"]) for gap in loss]
    streams: dict[tuple[str, str], list[tuple[int, Event]]] = defaultdict(list)
    in_order = sorted(block, key=lambda event: event["ts"])
    for place, event in enumerate({**event, "row": at} for at, event in enumerate(in_order)):
        key = disk_of.get(event["dev"], event["dev"]), operation(event["rwbs"])
        if event["event"] == "bio_queue" and event["nr_sector"] == 0 and event["rwbs"][0] == "F":
            key = key[0], FLUSH
        streams[key].append((place, event))
    rows = []
    for (dev, kind), events in streams.items():
        # Places count the events in the order of recording, which is the order of times.
        numbered = [(number, event) for number, (_, event) in enumerate(events)]
        requests, sent_back = walk([e for e in numbered if e[1]["event"] in DRIVER], gaps)
        find = flushed if kind == FLUSH else enter
        queued = find(numbered, requests + sent_back)
        for request in requests:
            rows.append(row(dev, kind, request, queued.get(request)))
    return rows


DRIVER = ("insert", "issue", "requeue", "complete")


def row(dev: str, kind: str, request: Request, queue_ns: int | None) -> dict[str, Any]:
    """The row of a request."""
    issue = request.issues[-1][1]
    done = request.complete_ns
    return {
        "dev": dev,
        "sector": issue["sector"],
        "nr_sector": issue["nr_sector"],
        "rwbs": issue["rwbs"],
        "operation": kind,
        "pid": issue["pid"],
        "tid": issue["tid"],
        "comm": issue.get("comm"),
        "queue_ns": queue_ns,
        "insert_ns": max(request.inserts, default=(0, None))[1],
        "issue_ns": issue["ts"],
        "complete_ns": done,
        "error": None if done is None else request.error,
        "queue_latency_ns": None if queue_ns is None else issue["ts"] - queue_ns,
        "service_latency_ns": None if done is None else done - issue["ts"],
        "row": issue["row"],
    }
