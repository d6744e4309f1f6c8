"""The view `stalls` and the naive one agree on calls and events drawn at random."""

import random
from typing import Any

import pytest

from tests.oracles.drawing import batches, grouped, rows_of_view
from tests.oracles.stalls import stalls_of
from tracer.analysis.views.waiting.stalls import STALLS

pytestmark = pytest.mark.slow

CASES_OF_A_TRACE = 100
NUMBERS = 20
"""Thread numbers in each case."""
COLUMNS = (
    *("ts", "dur_ns", "tid", "kind", "call", "certainty", "role", "target", "container"),
    *("phase", "stage", "epoch", "step"),
)
TABLES = (*("processes", "syscalls", "dirty", "block", "page_faults", "file_writes", "phases"),)
CALLS = (
    *("read", "pread64", "write", "pwritev2", "copy_file_range", "openat", "close", "rename"),
    *("fsync", "msync", "syncfs", "sync_file_range", "io_submit", "io_uring_enter", "readahead"),
    *("futex", "mmap", "io_getevents", "sendfile", "madvise", "fadvise64", "syscall_999"),
)


class Case:
    """Threads of a job, of its child and of others, each at one thing at a time."""

    def __init__(self, case: int, numbers: random.Random, marks: bool) -> None:
        self.numbers, self.base = numbers, NUMBERS * (case + 1)
        self.tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.now, self.last = 1000 * self.base, ""
        self.marks = marks
        self.process(0, "target", numbers.choice("ab"), threads=2)
        parent = numbers.choice([None, self.base])
        self.process(4, "child", "a", threads=2, ppid=parent)
        self.process(8, "daemon", "d", threads=1)
        self.process(10, "flusher", None, threads=1)
        self.process(11, "other", None, threads=2)

    def process(
        self, at: int, role: str, target: str | None, threads: int, ppid: int | None = None
    ) -> None:
        container = self.numbers.choice([None, "c1", "c2"])
        for thread in range(threads):
            row = {"pid": self.base + at, "tid": self.base + at + thread, "comm": role}
            row |= {"role": role, "target": target, "container_id": container, "start_ns": None}
            row |= {"ppid": ppid}
            self.tables["processes"].append(row)
            if self.numbers.random() < 0.2:  # another thread gets its number, or had it
                other = {"role": "other", "target": None, "comm": "sh"}
                again = self.numbers.choice([other, {"container_id": "c3"}, {"target": "z"}])
                start = self.numbers.choice([None, self.now, self.now + self.numbers.randrange(99)])
                self.tables["processes"].append(row | again | {"start_ns": start})

    def log(self, table: str, row: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Log an event. Only events of one table have one time: rows tell their order."""
        self.now += self.numbers.choice([0, 1, 3]) if self.last == table else 1
        self.last = table
        self.tables[table].append({"ts": self.now} | row | more)
        return self.tables[table][-1]

    def event(self, thread: dict[str, Any]) -> None:
        """Something that a thread may do in a call or outside of one."""
        numbers = self.numbers
        match numbers.choice(["throttle", "sync", "direct", "queue", "queue", "fault"]):
            case "throttle":
                pause = numbers.choice([None, 0, 1, 4_000_000])
                event = numbers.choice(
                    ["balance_dirty_pages", "balance_dirty_pages", "dirty_folio"]
                )
                self.log("dirty", thread, event=event, pause_ns=pause)
            case "sync":
                event = numbers.choice(["fsync_start", "fsync", "fsync_end"])
                self.log("file_writes", thread, event=event, ino=11)
            case "direct":
                event = numbers.choice(["direct_start", "direct_start", "direct_end"])
                self.log("file_writes", thread, event=event, ino=11)
            case "queue":
                event = numbers.choice(["bio_queue", "bio_queue", "bio_queue", "issue", "complete"])
                rwbs = numbers.choice(["R", "RA", "RM", "FRS", "W", "WS", "FF", "D"])
                sectors = numbers.choice([0, 8, 8, 8])
                self.log("block", thread, event=event, rwbs=rwbs, sector=8, nr_sector=sectors)
            case "fault":
                kind = numbers.choice(["major", "minor", "unknown"])
                self.log("page_faults", thread, kind=kind, user=numbers.random() < 0.5)

    def mark(self, begun: int, ended: int) -> None:
        """Phases of some of the threads, in what the case took."""
        if not self.marks:
            return
        for at in (0, 1, 4):
            roots = self.numbers.choice([0, 1, 1, 2])
            middle = self.numbers.randrange(begun, ended)
            for start, end in [(begun, middle), (middle, ended)][-roots:] if roots else ():
                # An odd time of one thread and an even one of the other: one marks longer.
                end -= (end - start - int(at == 0 and end == ended)) % 2
                if start < end:
                    self.nest(at, start, end)
        self.tables["phases"].sort(key=lambda p: (p["start"], -(p["end"] or 1 << 62)))

    def nest(self, at: int, start: int, end: int) -> None:
        """A phase with others in it."""
        names = ["fetch"] if at == 4 else ["train", "epoch", "step", "inference", "fetch"]
        inherited: dict[str, Any] = {"epoch": None, "step": None}
        never_ended = at == 4 and self.numbers.random() < 0.3
        for _ in range(self.numbers.randrange(1, 4)):
            name = self.numbers.choice(names)
            if name in inherited:
                inherited = inherited | {name: self.numbers.randrange(9)}
            row = {"start": start, "end": None if never_ended else end, "source": "script"}
            row |= {"pid": self.base + at - at % 4, "tid": self.base + at, "name": name}
            self.tables["phases"].append(row | inherited)
            if never_ended or end - start < 2:
                return
            start = self.numbers.randrange(start, end - 1)
            end = self.numbers.randrange(start + 1, end + 1)

    def run(self) -> dict[str, list[dict[str, Any]]]:
        begun = self.now
        chosen = self.numbers.sample(self.tables["processes"], 4)
        threads = [{name: row[name] for name in ("pid", "tid")} for row in chosen]
        inside: dict[int, dict[str, Any]] = {}
        for _ in range(self.numbers.choice([0, 3, 30, 60])):
            thread = self.numbers.choice(threads)
            tid = thread["tid"]
            if self.numbers.random() < 0.5:
                self.event(thread)
            elif tid not in inside:
                name = self.numbers.choice(CALLS)
                inside[tid] = self.log("syscalls", thread, name=name, dur_ns=None)
            else:
                call = inside.pop(tid)
                if self.numbers.random() < 0.8:  # or it did not return
                    self.now += self.numbers.choice([0, 1]) if self.last == "syscalls" else 1
                    self.last = "syscalls"
                    call["dur_ns"] = self.now - call["ts"]
                else:
                    self.last = ""  # two like it at one time would be one
        # A call from before the recording, or whose entry was lost, has no row.
        calls = [call for call in self.tables["syscalls"] if self.numbers.random() < 0.95]
        self.tables["syscalls"] = calls
        self.now += 10
        self.mark(begun, self.now)
        return self.tables


def compared(cases: list[random.Random]) -> tuple[dict, dict, list[dict[str, list]]]:
    """Rows of the view and of the oracle by case, and the tables of each case."""
    few = cases[0].random() < 0.5
    drawn = [Case(n, numbers, n == 0 or not few).run() for n, numbers in enumerate(cases)]
    tables = {name: [row for one in drawn for row in one[name]] for name in TABLES}
    rows = rows_of_view(STALLS, tables)
    found = [{name: row[name] for name in COLUMNS} for row in rows]
    return grouped(found, case_of), grouped(stalls_of(tables), case_of), drawn


def case_of(row: dict[str, Any]) -> int:
    return row["tid"] // NUMBERS


def test_the_stalls_of_threads_are_those_of_the_oracle():
    for cases in batches(CASES_OF_A_TRACE):
        found, expected, _ = compared(cases)
        assert found == expected


def test_a_job_that_is_alone_shares_its_phases_with_no_stranger():
    for cases in batches(1, usual=25):
        found, expected, _ = compared(cases)
        assert found == expected
