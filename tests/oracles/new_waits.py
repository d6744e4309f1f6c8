"""The rows of the view `waits` that a sleep of a known cause may have, worked out naively.

It is written from docs/explain.md (Waits, Limits), not from the views' code. Where that is silent,
or where two events have one time, each answer is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
EITHER = "either"
GAPS = ("ftrace-target", "ftrace-machine")
"""Streams of events."""
NO_GAPS = ("files", "descriptors", "python_stacks", "samples", "containers")
"""Streams whose gaps are in names, stacks or samples."""
SENDS = (
    *("sendto", "sendmsg", "sendmmsg", "write", "writev", "connect", "close", "shutdown"),
    *("sendfile", "exit", "exit_group"),
)
RECEIVES = ("recvfrom", "recvmsg", "read", "recvmmsg", "readv")
NEVER = 1 << 62


@dataclass
class Sleep:
    """A time off the CPU, and its drawn cause. `call`: the one it lies in, as the table has it."""

    row: Row
    title: str
    kinds: tuple[str, ...]
    cause: Any
    device: str | None
    call: Row | None = None

    @property
    def end(self) -> int:
        return int(self.row["ts"] + self.row["dur_ns"])


def owner(tables: dict[str, list[Row]], tid: int, ns: int) -> Row | None:
    """Returns the thread that has a number at a time: one that exits still has it."""
    found = [r for r in tables["processes"] if r["tid"] == tid and (r["start_ns"] or 0) <= ns]
    return max(found, key=lambda row: row["start_ns"] or 0, default=None)


def calls_at(tables: dict[str, list[Row]], thread: Row, ns: int) -> tuple[set[str], bool]:
    """Returns the calls that a thread may be in at a time, and whether that is certain."""
    found, certain = set(), True
    for row in tables["syscalls"]:
        end = NEVER if row["dur_ns"] is None else row["ts"] + row["dur_ns"]
        if row["tid"] == thread["tid"] and row["ts"] <= ns <= end:
            found.add(row["name"])
            certain &= row["ts"] < ns < end
    return found, certain


def senders(sleep: Sleep, tables: dict[str, list[Row]]) -> set[int | None]:
    """Returns whom a wait of the kind ipc, which an interrupt ended, may be for."""
    tid, ns = sleep.row["waker_tid"], sleep.row["wake_ns"]
    thread = owner(tables, tid, ns)
    if thread is None or thread["target"] is None:
        return {None}
    wanted = set(SENDS)
    if sleep.call and sleep.call["name"] in SENDS:
        wanted |= set(RECEIVES)
    names, certain = calls_at(tables, thread, ns)
    if not names & wanted:
        return {None}
    return {tid} if certain else {tid, None}


def doubted(call: Row | None, ts: int, gaps: Iterable[Row]) -> set[bool]:
    """Returns whether a sleep may be in a later call than it seems: both, if times are equal."""
    if call is None or call["dur_ns"] is not None:
        return {False}
    found = {False}
    for gap in gaps:
        if gap["stream"] != "ftrace-target":
            continue
        since = -1 if gap["from"] is None else gap["from"]
        until = NEVER if gap["to"] is None else gap["to"]
        if max(since, call["ts"] + 1) <= min(until, ts - 1):
            return {True}
        if since <= ts and until >= call["ts"]:
            found.add(True)
    return found


def allowed(sleep: Sleep, tables: dict[str, list[Row]]) -> set[tuple[str, int | None, str]]:
    """Returns the answers that the time before the wake-up may have: kind, by_tid, certainty."""
    row, cause = sleep.row, sleep.cause
    whose: set[int | None]
    certainty = cause.certainty
    if row["interrupt"] is True:
        certainty = cause.interrupted
        whose = senders(sleep, tables) if sleep.kinds == ("ipc",) else {None}
    elif row["waker_tid"] is None:
        whose, certainty = {None}, EITHER
    elif row["interrupt"] is None:
        named = row["waker_tid"] or None
        whose = {named} if set(sleep.kinds) <= {"ipc", "lock", "child"} else {None}
        certainty = EITHER
    else:
        whose = {row["waker_tid"]}
    found = set()
    for tid in whose:
        for doubt in doubted(sleep.call, row["ts"], tables["loss"]):
            told = {certainty} - {EITHER} or {"exact", "inferred"}
            if row["interrupt"] is True and tid is not None:
                told = {"inferred"}
            if doubt:  # a read that it queued itself does not follow from the call alone
                told = {"inferred"} if not sleep.device else {"exact", "inferred"}
            found |= {(kind, tid, one) for kind in sleep.kinds for one in told}
        if is_of_a_program(sleep, tables):
            found = {("other", tid, "unknown")}
    return found


def is_of_a_program(sleep: Sleep, tables: dict[str, list[Row]]) -> bool:
    """Returns whether a thread of a program ended a wait for libaio, which is for no disk then."""
    row = sleep.row
    waker = row["interrupt"] is False and owner(tables, row["waker_tid"], row["wake_ns"])
    return sleep.title == "libaio" and bool(waker) and waker["ppid"] != 2
