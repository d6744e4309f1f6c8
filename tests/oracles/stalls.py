"""The view `stalls`, worked out naively: one event after the other.

It is written from the documentation (docs/phases.md, docstrings), not from the view's code.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from analysis.views.calls_by_kind import READ, SUBMIT, SYNC, WRITE

Row = dict[str, Any]
NEVER = 1 << 62
ONLY_BEGIN = (*SUBMIT, "readahead")
"""Calls that begin transfers and wait for none."""
STAGES = ("data_load", "model_load", "train", "inference")
OF_A_TARGET = ("target", "child", "daemon")
NO_PHASE = dict.fromkeys(("phase", "stage", "epoch", "step"))


def stalls_of(tables: dict[str, list[Row]]) -> list[Row]:
    """What `stalls` says: ts, dur_ns, tid, kind, call, certainty, whose, and the phase."""
    owners = owners_of(tables["processes"])
    phases = Phases(tables["phases"])
    found = waits_outside_of_calls(tables)
    for call, end in calls_with_ends(tables["syscalls"]):
        kind = kind_of_call(call, end, tables)
        if kind is not None:
            known = call["dur_ns"] is not None
            certainty = "upper bound" if known else "unknown"
            found.append((call, kind, call["name"], call["dur_ns"], certainty))
    return [
        {"ts": event["ts"], "dur_ns": dur_ns, "tid": event["tid"], "kind": kind, "call": name}
        | {"certainty": certainty}
        | owners[event["tid"]]
        | phases.around(event)
        for event, kind, name, dur_ns, certainty in found
        if is_of_a_target(owners.get(event["tid"]))
    ]


def waits_outside_of_calls(tables: dict[str, list[Row]]) -> list[tuple[Row, str, None, Any, str]]:
    found: list[tuple[Row, str, None, Any, str]] = []
    for row in tables["dirty"]:
        if row["event"] == "balance_dirty_pages" and (row["pause_ns"] or 0) > 0:
            found.append((row, "throttle", None, row["pause_ns"], "exact"))
    for row in tables["page_faults"]:
        if row["kind"] == "major":
            found.append((row, "major_fault", None, None, "unknown"))
    return found


def calls_with_ends(calls: list[Row]) -> list[tuple[Row, int]]:
    """Calls with the time at which each is over: at the latest when its thread makes the next."""
    next_call: dict[int, int] = {}
    found = []
    for call in reversed(calls):
        after = next_call.get(call["tid"], NEVER)
        dur_ns = call["dur_ns"]
        found.append((call, after if dur_ns is None else call["ts"] + dur_ns))
        next_call[call["tid"]] = call["ts"]
    return found


def kind_of_call(call: Row, end: int, tables: dict[str, list[Row]]) -> str | None:
    def happened_in(rows: list[Row], event: str) -> list[Row]:
        return [
            row
            for row in rows
            if row["tid"] == call["tid"]
            and row["event"] == event
            and call["ts"] <= row["ts"] <= end
        ]

    if call["name"] in SYNC:
        return "sync"
    if call["name"] in ONLY_BEGIN:
        return None
    if happened_in(tables["file_writes"], "fsync_start"):
        return "sync"
    if call["name"] in (*READ, *WRITE) and happened_in(tables["file_writes"], "direct_start"):
        return "direct"
    queued = happened_in(tables["block"], "bio_queue")
    return "read" if any(row["rwbs"].startswith("R") for row in queued) else None


def owners_of(processes: list[Row]) -> dict[int, Row]:
    """Whose each thread is; what known things of several of one number differ in is not known."""
    said: dict[int, list[Row]] = defaultdict(list)
    for row in processes:
        said[row["tid"]].append(row)
    columns = {"role": "role", "target": "target", "container": "container_id"}
    return {
        tid: {
            column: said_alike([row[of] for row in rows]) for column, of in columns.items()
        }
        for tid, rows in said.items()
    }


def said_alike(values: list[str | None]) -> str | None:
    known = {value for value in values if value is not None}
    return known.pop() if len(known) == 1 else None


def is_of_a_target(owner: Row | None) -> bool:
    return owner is not None and (owner["target"] is not None or owner["role"] in OF_A_TARGET)


class Phases:
    """The phases that threads have marked."""

    def __init__(self, rows: list[Row]) -> None:
        self.of_thread: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            self.of_thread[row["tid"]].append(row)
        self.process_of = {row["tid"]: row["pid"] for row in rows}

    def whose(self, event: Row) -> int | None:
        """The thread whose phases are those of the event's thread."""
        if event["tid"] in self.of_thread:
            return event["tid"]
        processes = set(self.process_of.values())
        pid = event["pid"]
        if pid not in processes:
            if len(processes) != 1:
                return None
            (pid,) = processes
        threads = [tid for tid, process in self.process_of.items() if process == pid]
        return max(threads, key=self.marked_ns)

    def marked_ns(self, tid: int) -> int:
        """The time from the thread's first mark to its last."""
        phases = self.of_thread[tid]
        return max(p["end"] for p in phases) - min(p["start"] for p in phases)

    def around(self, event: Row) -> Row:
        phases = self.of_thread.get(self.whose(event) or -1, [])
        inside = [p for p in phases if p["start"] <= event["ts"] < p["end"]]
        if not inside:
            return NO_PHASE
        innermost = inside[-1]
        stages = [p["name"] for p in inside if p["name"] in STAGES]
        return {
            "phase": innermost["name"],
            "stage": stages[-1] if stages else None,
            "epoch": innermost["epoch"],
            "step": innermost["step"],
        }
