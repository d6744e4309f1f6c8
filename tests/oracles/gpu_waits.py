"""Waits for a GPU, worked out naively: every entry and every interval is tried for every moment.

It is written from the documentation (docs/explain.md, docstrings), not from the views' code. Where
the documentation leaves an answer open, each one is allowed: nobody knows where a thread is after
the entry of a function whose return is missing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.oracles.drawn_gpu_calls import STOP
from tracer.probes.events.gpu_calls import END

Row = dict[str, Any]


class Place(NamedTuple):
    """A thread in which a critical path lies, and what the thread does there."""

    tid: int
    kind: str
    detail: str | None


@dataclass
class Call:
    """A call of a function of the driver: its times, and the places of its events in its thread.

    Its end is None if the return is missing.
    """

    row: Row
    at: int
    end: int | None = None
    end_at: int | None = None
    clean: bool = False
    """True: it ended, and no other event within it lacks its partner."""
    inner: bool = False
    """True: it is part of another call that ended."""
    sure: bool = False
    """True: its thread surely was in it until its end, or for the rest of its life."""
    lengths: set[int | None] = field(default_factory=lambda: {None})
    """Lengths that the view may tell."""

    @property
    def name(self) -> str:
        return str(self.row["event"])

    @property
    def begin(self) -> int:
        return int(self.row["ts"])


class Job:
    """The tables of a trace, and answers from them."""

    def __init__(self, tables: dict[str, list[Row]]) -> None:
        self.tables = tables
        self.everybody = not any(row["target"] for row in tables["processes"])
        """True: the whole machine was recorded."""
        self.lives = by_thread(tables["processes"])
        self.off_cpu = by_thread(tables["off_cpu"])
        self.locks = {(r["tid"], r["ts"]) for r in tables["syscalls"] if r["name"] == "futex"}
        self.gaps = [row for row in tables["loss"] if "uprobes" in row["stream"]]
        events: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in tables["gpu_calls"]:
            events[row["tid"], self.life_of(row["tid"], row["ts"], row["pid"])].append(row)
        self.calls = {thread: self.pair(rows) for thread, rows in events.items()}
        """Calls of the driver by thread number and begin of the thread's life."""

    # Calls of the driver

    def pair(self, rows: list[Row]) -> list[Call]:
        """Pairs each return of a thread with the latest entry of its function that has none."""
        calls: list[Call] = []
        inside: list[Call] = []
        odd = set()
        for at, row in enumerate(rows):
            name = row["event"].removesuffix(END)
            if name == row["event"]:
                calls.append(Call(row, at))
                inside.append(calls[-1])
            elif name in [call.name for call in inside]:
                while inside[-1].name != name:
                    odd.add(inside.pop().at)
                call = inside.pop()
                call.end, call.end_at = row["ts"], at
            else:
                odd.add(at)
        odd |= {call.at for call in inside}
        for call in calls:
            self.judge(call, calls, odd, len(rows))
        return calls

    def judge(self, call: Call, calls: list[Call], odd: set[int], count: int) -> None:
        """Tells what is known of a call. The end of a gap is no event that is missing."""
        for outer in calls:
            if outer.end_at is not None and outer.at < call.at < outer.end_at:
                call.inner = True
        if call.end is None:
            call.sure = call.at == count - 1 and not self.lost(call.begin, STOP)
        else:
            assert call.end_at is not None
            call.clean = not odd & set(range(call.at, call.end_at))
            call.sure = call.clean and not self.lost(call.begin, call.end)
            if call.sure:
                call.lengths = {call.end - call.begin}
            elif not self.lost(call.begin + 1, call.end - 1):
                call.lengths |= {call.end - call.begin}

    def lost_after(self, ts: int) -> bool:
        """Returns whether events of the targets' threads may be lost after a time.

        A loss of names of files is none of events.
        """
        others = ("machine", "files")
        gaps = [row for row in self.tables["loss"] if not any(o in row["stream"] for o in others)]
        return any(row["to"] is None or row["to"] > ts for row in gaps)

    def lost(self, begin: int, end: int) -> bool:
        return any(gap["from"] <= end and gap["to"] >= begin for gap in self.gaps)

    def life_of(self, tid: int, ts: int, pid: int | None = None) -> int:
        """Returns the begin of the life of the thread that has a number at a time."""
        return max(
            int(row.get("start_ns", 0))
            for row in self.lives[tid]
            if row.get("start_ns", 0) <= ts and pid in (None, row["pid"])
        )

    def inside(self, tid: int, ts: int) -> tuple[set[str], bool]:
        """Returns the functions that a thread may be in at a time, and whether it surely is in one.

        An event at this time has happened. A call within another one is part of it.
        """
        calls = self.calls.get((tid, self.life_of(tid, ts)), [])
        found = [one for one in calls if one.begin <= ts and (one.end is None or ts < one.end)]
        surely = [one.name for one in found if one.sure and not one.inner]
        return set(surely[:1] or [one.name for one in found]), bool(surely)

    # Intervals off the CPU

    def interval(self, tid: int, ts: int) -> Row | None:
        """Returns the interval in which a thread is off the CPU at a time."""
        life = self.life_of(tid, ts)
        for row in self.off_cpu[tid]:
            end = STOP if row["dur_ns"] is None else row["ts"] + row["dur_ns"]
            if row["ts"] <= ts < end and self.life_of(tid, row["ts"], row["pid"]) == life:
                return row
        return None

    def is_sleep(self, row: Row) -> bool:
        return row["state"] in ("S", "D")

    def target_at(self, tid: int, ts: int) -> str | None:
        life = self.life_of(tid, ts)
        return next(r["target"] for r in self.lives[tid] if r.get("start_ns", 0) == life)

    # The critical path

    def places(self, tid: int, ts: int) -> set[Place]:
        """Returns where a path that comes to a thread may lie at a time."""
        functions, sure = self.inside(tid, ts)
        row = self.interval(tid, ts)
        if row is None:
            spins = {Place(tid, "gpu", name) for name in functions}
            return spins | (set() if sure else {Place(tid, "run", None)})
        if not self.is_sleep(row) or (row.get("wake_ns") is not None and row["wake_ns"] <= ts):
            return {Place(tid, "cpu", None)}
        functions, sure = self.inside(tid, row["ts"])
        asleep = {Place(tid, "gpu", name) for name in functions}
        return asleep | (set() if sure else self.places_asleep(tid, ts, row))

    def places_asleep(self, tid: int, ts: int, row: Row) -> set[Place]:
        """Returns the places of a path at a sleep that may be outside the driver."""
        waker, woken = row.get("waker_tid"), row.get("wake_ns")
        known = waker and woken is not None
        follows = known and (self.everybody or self.target_at(waker, woken) is not None)
        if not follows or self.life_of(waker, woken) > ts:
            return {Place(tid, "", None)}
        # The driver itself makes other calls.
        known = row["dur_ns"] is not None and (tid, row["ts"]) in self.locks
        return self.places(waker, ts) | (set() if known else {Place(tid, "", None)})

    def edges(self) -> list[int]:
        """Returns the times at which anything may change."""
        found = set()
        for row in self.tables["off_cpu"]:
            found |= {row["ts"], row.get("wake_ns"), row["ts"] + (row["dur_ns"] or 0)}
        for row in self.tables["phases"]:
            found |= {row["start"], row["end"]}
        for row in self.tables["loss"]:  # a turn on a CPU is known until then
            found |= {row["from"], row["to"]}
        found |= {row["ts"] for row in self.tables["gpu_calls"]}
        found |= {row.get("start_ns") for row in self.tables["processes"]}
        return sorted(found - {None})


def by_thread(rows: list[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["tid"]].append(row)
    return found
