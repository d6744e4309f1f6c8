"""The view `write_waits`, worked out naively: sets of times, one event after the other.

It is written from the documentation (docstrings), not from the view's code. Left out are
asynchronous transfers and reads of disks.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tracer.analysis.views.calls_by_kind import (
    ENDINGS,
    IDLE,
    READ,
    SUBMIT,
    SYNC,
    UNMOUNT,
    WRITE,
)

Row = dict[str, Any]
Span = tuple[int, int]
Key = tuple[str | None, str]
BRIEF_NS = 100_000
WRITING = (*WRITE, *SUBMIT, *ENDINGS)


def write_waits_of(tables: dict[str, list[Row]], begun: int, ended: int) -> dict[Key, list[Span]]:
    """The times in which a job may have waited, by target (None: all) and kind, in order."""
    found: dict[Key, list[Span]] = defaultdict(list)
    gaps = [(row["from"], row["to"]) for row in tables["loss"]]
    # While events were lost a disk may have had anything to do.
    writing = joined([*writes_to_do(tables["block"], ended), *gaps])

    def add(target: str | None, kind: str, begin: int, end: int) -> None:
        begin, end = max(begin, begun), min(end, ended)
        if begin < end:
            for whose in {target, None}:
                for name in (kind, "any"):
                    found[whose, name].append((begin, end))

    jobs = [row for row in tables["processes"] if row["target"] is not None]
    for thread in jobs:
        since, until = when_its_number(thread, tables["processes"])

        def of_thread(
            table: str, tid: int = thread["tid"], since: int = since, until: int = until
        ) -> list[Row]:
            rows = tables[table]
            return [row for row in rows if row["tid"] == tid and since <= row["ts"] < until]

        calls = of_thread("syscalls")
        gone = min(until, thread["end_ns"] if thread["end_ns"] is not None else ended)
        for call, after in zip(calls, [*calls[1:], None], strict=False):
            begin, end = call["ts"], end_of(call, after, gone)
            brief = call["dur_ns"] is not None and call["dur_ns"] < BRIEF_NS
            kind = kind_of(call["name"])
            if kind in ("disk", "read"):
                # No disk has a read to do here, but while events were lost it may have had one.
                for one, other in within(writing if kind == "disk" else gaps, begin, end):
                    add(thread["target"], "disk", one, other)
            elif kind == "sync" or (kind and (not brief or during(writing, begin, end))):
                add(thread["target"], kind, begin, end)
        if thread["start_ns"] is None:
            first = calls[0]["ts"] if calls else None
            for one, other in within(writing, begun, first) if first is not None else ():
                add(thread["target"], "begun", one, other)
        for begin, end in faults_of(of_thread("page_faults"), calls, gone):
            for one, other in within(writing, begin, end):
                add(thread["target"], "disk", one, other)
        for row in of_thread("dirty"):
            if (row["pause_ns"] or 0) > 0:
                add(thread["target"], "throttle", row["ts"], row["ts"] + row["pause_ns"])
    for begin, end in gaps:
        for target in {row["target"] for row in jobs}:
            add(target, "lost", begin, end)
    return {key: joined(spans) for key, spans in found.items()}


def when_its_number(thread: Row, processes: list[Row]) -> Span:
    """Returns the time in which the number is this thread's. The first thread also has the time
    before."""
    starts = sorted(row["start_ns"] or 0 for row in processes if row["tid"] == thread["tid"])
    start = thread["start_ns"] or 0
    later = [other for other in starts if other > start]
    return (-1 << 62) if start == starts[0] else start, min(later, default=1 << 62)


def end_of(call: Row, after: Row | None, gone: int) -> int:
    if call["dur_ns"] is not None and call["name"] not in UNMOUNT:
        return call["ts"] + call["dur_ns"]
    return after["ts"] if after is not None else gone


def kind_of(name: str) -> str | None:
    if name in (*SYNC, *UNMOUNT):
        return "sync"
    if name in WRITING:
        return "write"
    if name in READ:
        return "read"
    return None if name in IDLE else "disk"


def faults_of(faults: list[Row], calls: list[Row], gone: int) -> list[Span]:
    """Page faults that read, or may have written to a mapped file, until the next one or call."""
    mine = [
        row["ts"]
        for row in faults
        if row["kind"] == "major" or (row["access"] in ("write", None) and row["file"] is not None)
    ]
    ends = sorted([*mine, *(call["ts"] for call in calls), gone])
    return [(ts, next((end for end in ends if end > ts), gone)) for ts in mine]


def writes_to_do(block: list[Row], ended: int) -> list[Span]:
    """Returns the time from queue to completion of each write."""
    spans = []
    for number, row in enumerate(block):
        if row["event"] == "bio_queue":
            place = (row["dev"], row["sector"])
            end = next(
                (
                    one["ts"]
                    for one in block[number:]
                    if one["event"] == "complete" and (one["dev"], one["sector"]) == place
                ),
                ended,
            )
            spans.append((row["ts"], end))
    return spans


def joined(spans: list[Span]) -> list[Span]:
    """The union, as spans that do not touch."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def during(spans: list[Span], begin: int, end: int) -> bool:
    return any(one < end and begin < other for one, other in spans)


def within(spans: list[Span], begin: int, end: int) -> list[Span]:
    """Returns the times that lie in both."""
    return [
        (max(one, begin), min(other, end)) for one, other in spans if one < end and begin < other
    ]
