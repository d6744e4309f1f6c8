"""The view `stalls`, worked out naively: one event after the other.

It is written from the documentation (docs/phases.md, docstrings), not from the view's code.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tracer.analysis.views.calls_by_kind import SUBMIT, SYNC

Row = dict[str, Any]
NEVER = 1 << 62
ONLY_BEGIN = (*(*SUBMIT, "io_uring_setup", "readahead", "fadvise64", "madvise", "process_madvise"),)
"""Calls that begin transfers and wait for none."""
SYNC_EVENTS = ("fsync_start", "fsync")
STAGES = ("data_load", "model_load", "train", "inference")
WHOSE = {"role": "role", "target": "target", "container": "container_id"}
"""Columns of the view, and where the table processes has them."""
NOBODY = dict.fromkeys(WHOSE)
Lives = dict[int, list[Row]]
Thread = tuple[int, int, int | None]
NO_PHASE = dict.fromkeys(("phase", "stage", "epoch", "step"))


def stalls_of(tables: dict[str, list[Row]]) -> list[Row]:
    """Returns the rows of `stalls`: ts, dur_ns, tid, kind, call, certainty, whose, and the
    phase."""
    lives = lives_of(tables["processes"])
    marked = [ending_with_its_thread(row, lives) for row in tables["phases"]]
    phases = Phases(marked, lives, tables["processes"])
    found = waits_outside_of_calls(tables)
    for call, end in calls_with_ends(tables["syscalls"]):
        kind = kind_of_call(call, end, tables, lives)
        if kind is not None:
            known = call["dur_ns"] is not None
            certainty = "upper bound" if known else "unknown"
            found.append((call, kind, call["name"], call["dur_ns"], certainty))
    return [
        {"ts": event["ts"], "dur_ns": dur_ns, "tid": event["tid"], "kind": kind, "call": name}
        | {"certainty": certainty}
        | {column: owner[column] for column in WHOSE}
        | phases.around(event)
        for event, kind, name, dur_ns, certainty in found
        if (owner := owner_of(lives, event))["target"] is not None
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


def kind_of_call(call: Row, end: int, tables: dict[str, list[Row]], lives: Lives) -> str | None:
    def happened_in(rows: list[Row], *events: str) -> list[Row]:
        return [
            row
            for row in rows
            if row["tid"] == call["tid"]
            and row["event"] in events
            and call["ts"] <= row["ts"] <= end
            and owner_of(lives, row) is owner_of(lives, call)
        ]

    if call["name"] in SYNC:
        return "sync"
    if call["name"] in ONLY_BEGIN:
        return None
    if happened_in(tables["file_writes"], *SYNC_EVENTS):
        return "sync"
    if happened_in(tables["file_writes"], "direct_start"):
        return "direct"
    queued = happened_in(tables["block"], "bio_queue")
    return "read" if any(is_read(row) for row in queued) else None


def is_read(bio: Row) -> bool:
    return bio["nr_sector"] > 0 and bio["rwbs"].removeprefix("F").startswith("R")


def lives_of(processes: list[Row]) -> Lives:
    """The threads that had each number, in order. What two of one start differ in is not known."""
    rows: dict[int, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in processes:
        rows[row["tid"]][first_ns(row)].append(row)
    return {
        tid: [
            {"start": start} | {one: alike([row[of] for row in same]) for one, of in WHOSE.items()}
            for start, same in sorted(by_start.items())
        ]
        for tid, by_start in rows.items()
    }


def first_ns(row: Row) -> int:
    """The time at which the thread of a row began; before the recording: -1."""
    return -1 if row["start_ns"] is None else row["start_ns"]


def owner_of(lives: Lives, event: Row) -> Row:
    """The thread that had the event's number then; the first one also has what was before it."""
    mine = lives.get(event["tid"])
    if not mine:
        return NOBODY
    return [mine[0], *(life for life in mine[1:] if life["start"] <= event["ts"])][-1]


def alike(values: list[str | None]) -> str | None:
    return values[0] if len(set(values)) == 1 else None


def ending_with_its_thread(phase: Row, lives: Lives) -> Row:
    """The phase; one that nobody ended lasts at most until another thread has the number."""
    if phase["end"] is not None:
        return phase
    owner = owner_of(lives, {"tid": phase["tid"], "ts": phase["start"]})
    later = lives.get(phase["tid"], [])
    following = [life["start"] for life in later if life["start"] > owner.get("start", NEVER)]
    return phase | {"end": max(phase["start"], min(following))} if following else phase


class Phases:
    """The phases that threads have marked. Each of those that had one number has its own."""

    def __init__(self, rows: list[Row], lives: Lives, processes: list[Row]) -> None:
        self.lives = lives
        self.rows_of: dict[Thread, list[Row]] = defaultdict(list)
        for row in processes:
            self.rows_of[self.process(row, first_ns(row))].append(row)
        self.of_thread: dict[Thread, list[Row]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row["start"]):
            self.of_thread[self.thread(row, row["start"])].append(row)
        self.process_of = {
            thread: self.process(mine[0], mine[0]["start"])
            for thread, mine in self.of_thread.items()
        }
        self.jobs = {
            self.process(row, row["start"]) for row in rows if row["name"] != "fetch"
        } & {*self.process_of.values()}  # fmt: skip
        self.only_job = next(iter(self.jobs)) if len(self.jobs) == 1 else None

    def thread(self, row: Row, ts: int) -> Thread:
        """The process and the thread that had a row's numbers at a time."""
        life = owner_of(self.lives, {"tid": row["tid"], "ts": ts})
        return row["pid"], row["tid"], life.get("start")

    def process(self, row: Row, ts: int) -> Thread:
        return self.thread({"pid": row["pid"], "tid": row["pid"]}, ts)

    def whose(self, event: Row) -> Thread | None:
        """The thread whose phases are those of the event's thread."""
        thread = self.thread(event, event["ts"])
        if thread in self.of_thread:
            return thread
        process = self.process(event, event["ts"])
        found = self.longest(process)
        return found if found or self.is_stranger(process) else self.longest(self.only_job)

    def longest(self, process: Thread | None) -> Thread | None:
        """The thread of a process whose phases last longest."""
        threads = [one for one, of in self.process_of.items() if of == process]
        return max(threads, key=self.marked_ns, default=None)

    def is_stranger(self, process: Thread) -> bool:
        """True for a process that is known, and neither of the only job's target nor its child."""
        job = self.only_job
        if job is None or process not in self.rows_of:
            return False
        threads, of_job = self.threads_of(process), self.threads_of(job)
        targets = {life["target"] for life in of_job} - {None}
        return not (
            any(life["role"] == "flusher" or life["target"] in targets for life in threads)
            or any(self.parent(row, first_ns(row)) == job for row in self.rows_of[process])
        )

    def threads_of(self, process: Thread) -> list[Row]:
        """The lives of the threads of a process."""
        mine = [(row["tid"], first_ns(row)) for row in self.rows_of[process]]
        return [life for tid, start in mine for life in self.lives[tid] if life["start"] == start]

    def parent(self, row: Row, ts: int) -> Thread | None:
        return None if row["ppid"] is None else self.process({"pid": row["ppid"]}, ts)

    def job_of(self, process: Thread) -> Thread | None:
        """The job of a loader's worker, which is a process that only marks `fetch`."""
        if process in self.jobs or process not in self.process_of.values():
            return None
        rows = self.rows_of[process]
        parent = self.parent(rows[0], min(map(first_ns, rows)))
        if parent in self.jobs:
            return parent
        target = self.target_of(process)
        if target is None:
            return self.only_job
        same = [job for job in self.jobs if self.target_of(job) == target]
        return same[0] if len(same) == 1 else None

    def target_of(self, process: Thread) -> str | None:
        """The target that the rows of a process name; None: no target, or several."""
        named = {row["target"] for row in self.rows_of[process]} - {None}
        return named.pop() if len(named) == 1 else None

    def marked_ns(self, thread: Thread) -> int:
        """Returns the time in ns that the thread spent in phases."""
        marked, over = 0, -1
        for phase in self.of_thread[thread]:
            end = NEVER if phase["end"] is None else phase["end"]
            marked += max(0, end - max(over, phase["start"]))
            over = max(over, end)
        return marked

    def around(self, event: Row) -> Row:
        own = self.at(self.whose(event), event["ts"])
        job = self.job_of(self.process(event, event["ts"]))
        if job is None:
            return own
        of_job = self.at(self.longest(job), event["ts"])
        numbers = of_job if own["epoch"] is None and own["step"] is None else own
        stage = own["stage"] or of_job["stage"]
        return own | {"stage": stage, "epoch": numbers["epoch"], "step": numbers["step"]}

    def at(self, thread: Thread | None, ts: int) -> Row:
        """The phase that a thread is in at a time."""
        inside = [
            phase
            for phase in (self.of_thread[thread] if thread else ())
            if phase["start"] <= ts and (phase["end"] is None or ts < phase["end"])
        ]
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
