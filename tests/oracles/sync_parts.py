"""The waits of kind `sync` in the view `waits`, worked out naively: one nanosecond after the other.

It is written from the documentation (docs/explain.md, docstrings), not from the view's code. Left
out are lost events, numbers that two threads had, calls that also read, sleeps outside of calls,
and flushes that a journal's thread requests without a write.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

Row = dict[str, Any]
SYNC_CALLS = ("fsync", "fdatasync", "msync", "sync_file_range", "sync", "syncfs")
SYNC_EVENTS = ("fsync_start", "fsync")
KTHREADD = 2
NEVER = 1 << 62
ALIKE = ("tid", "call", "state", "by_tid", "target")
"""Columns in which the parts of a sleep do not differ."""


def sync_waits_of(tables: dict[str, list[Row]]) -> list[Row]:
    """Returns the waits of kind sync: ts, dur_ns, detail and ALIKE. Neighbours differ in detail."""
    return [part for sleep in tables["off_cpu"] for part in Sleep(sleep, tables).parts()]


class Sleep:
    """A time off the CPU, and what happened before it in the same call."""

    def __init__(self, row: Row, tables: dict[str, list[Row]]) -> None:
        self.row, self.tables = row, tables
        self.threads = {one["tid"]: one for one in tables["processes"]}
        self.target = self.threads[row["tid"]]["target"]
        self.uninterruptible = "D" in (row["state"] or "")
        self.call = self.call_around()
        waker = self.threads.get(row["waker_tid"])
        # A thread in whose context an interrupt wakes has no part in it.
        self.waker = None if row["interrupt"] is True else waker
        self.ended_by_a_user = (
            row["interrupt"] is False
            and waker is not None
            and KTHREADD not in (waker["tid"], waker["ppid"])
        )

    def woken_by(self, role: str) -> bool:
        return self.waker is not None and self.waker["role"] == role

    def call_around(self) -> Row | None:
        """Returns the call that the thread is in; one that did not return lasts until the next."""
        calls = [one for one in self.tables["syscalls"] if one["tid"] == self.row["tid"]]
        begun = [one for one in calls if one["ts"] <= self.row["ts"]]
        if not begun:
            return None
        call = max(begun, key=lambda one: one["ts"])
        end = NEVER if call["dur_ns"] is None else call["ts"] + call["dur_ns"]
        return call if self.row["ts"] < end else None

    def before(self, table: str) -> list[Row]:
        """Returns the thread's own events in the same call before the sleep."""
        if self.call is None:
            return []
        return [
            one
            for one in self.tables.get(table, [])
            if one["tid"] == self.row["tid"] and self.call["ts"] <= one["ts"] <= self.row["ts"]
        ]

    def is_sync(self) -> bool:
        if self.target is None or self.row["state"].startswith("R"):
            return False
        if self.woken_by("journal"):
            return True
        if self.call is None:
            return False
        if self.call["name"] in SYNC_CALLS:
            return True
        return any(one["event"] in SYNC_EVENTS for one in self.before("file_writes"))

    def detail(self, ns: int) -> str | None:
        """Returns the detail of the wait at a time."""
        if self.woken_by("journal"):
            return step(self.tables, self.row["waker_tid"], ns)
        if not self.uninterruptible or self.ended_by_a_user:
            return None
        emptied = any(is_flush(one) and one["nr_sector"] == 0 for one in self.before("block"))
        if emptied and not self.woken_by("flusher"):
            return "flush"
        said = {one["event"] for one in self.before("file_writes")}
        if "fast_commit_start" in said:
            return "journal"
        return "pages" if "fsync_start" in said else None

    def parts(self) -> list[Row]:
        """Returns the waits that the sleep consists of; the time after the wake-up is in none."""
        if not self.is_sync():
            return []
        # If it is not known whether an interrupt woke it, only a journal's thread is named.
        known = self.row["interrupt"] is False or self.woken_by("journal")
        named = self.row["waker_tid"] if known else None
        alike = {
            "tid": self.row["tid"],
            "call": self.call and self.call["name"],
            "state": self.row["state"],
            "by_tid": named,
            "target": self.target,
        }
        begun = self.row["ts"]
        if self.row["dur_ns"] is None:
            # Nothing can be split whose end is not known.
            whole = "journal" if self.woken_by("journal") else self.detail(begun)
            return [{"ts": begun, "dur_ns": None, "detail": whole, **alike}]
        woken = begun + self.row["dur_ns"] - (self.row["run_delay_ns"] or 0)
        found = []
        for detail, each in groupby(range(begun, woken), self.detail):
            times = list(each)
            found.append({"ts": times[0], "dur_ns": len(times), "detail": detail, **alike})
        return found


def step(tables: dict[str, list[Row]], tid: int, ns: int) -> str:
    """Returns the detail, at a time, of a wait for a journal's thread."""
    marks = [one for one in tables.get("journal", []) if one["tid"] == tid]
    last = max((one for one in marks if one["ts"] <= ns), key=lambda one: one["ts"], default=None)
    after = min((one for one in marks if one["ts"] > ns), key=lambda one: one["ts"], default=None)
    if last is None or last["event"] in ("commit_start", "commit_end"):
        return "journal"
    if last["event"] == "commit_flushing":
        return "data"
    if after is None or after["event"] != "commit_end":
        return "journal"
    earlier = [one for one in marks if one["ts"] < last["ts"]]
    before = max(earlier, key=lambda one: one["ts"], default=None)
    begun = last["ts"]
    if before is not None and before["event"] == "commit_flushing":
        begun = before["ts"]
    block = [one for one in tables.get("block", []) if begun <= one["ts"] < after["ts"]]
    return step_of_logging(block, tid, last["ts"], ns)


def step_of_logging(block: list[Row], tid: int, logging: int, ns: int) -> str:
    """Returns the same for a time between commit_logging and commit_end.

    `block` has the block events since commit_flushing.
    """
    queued = [one for one in block if one["event"] == "bio_queue" and one["tid"] == tid]
    own = [one for one in queued if one["ts"] >= logging]
    if not own:
        return "journal"
    record = next((one for one in own if is_flush(one)), own[-1])
    if ns >= record["ts"]:
        return "flush" if is_flush(record) else "journal"
    # The thread waits for its data first, then for the journal's blocks, then for others' data.
    if any(ns < ts for ts in ends([one for one in queued if one["ts"] < logging], block)):
        return "data"
    known = ends([one for one in queued if one["ts"] < record["ts"]], block)
    return "data" if known and max(known) <= ns else "journal"


def ends(bios: list[Row], block: list[Row]) -> list[int]:
    """Returns when bios with sectors were complete, without those of which no event tells it."""
    found = [completed(one, block) for one in bios if one["nr_sector"] > 0]
    return [ts for ts in found if ts is not None]


def completed(bio: Row, block: list[Row]) -> int | None:
    """Returns when all sectors of a bio were complete; None: no event tells it of one of them."""
    found = []
    for sector in range(bio["sector"], bio["sector"] + bio["nr_sector"]):
        covering = [
            one["ts"]
            for one in block
            if one["event"] == "complete"
            and one["dev"] == bio["dev"]
            and one["ts"] > bio["ts"]
            and one["sector"] <= sector < one["sector"] + one["nr_sector"]
        ]
        if not covering:
            return None
        found.append(min(covering))
    return max(found)


def is_flush(bio: Row) -> bool:
    return bio["event"] == "bio_queue" and bio["rwbs"].startswith("F")
