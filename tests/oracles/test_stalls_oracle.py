"""The view `stalls` and the naive one agree on calls and events drawn at random."""

import random
from typing import Any

from analysis.views.stalls import STALLS
from tests.oracles.drawing import batches, grouped, rows_of_view
from tests.oracles.stalls import stalls_of

CASES_OF_A_TRACE = 100
NUMBERS = 20
"""Of threads, for each case."""
COLUMNS = (
    *("ts", "dur_ns", "tid", "kind", "call", "certainty", "role", "target", "container"),
    *("phase", "stage", "epoch", "step"),
)
TABLES = (
    *("processes", "syscalls", "dirty", "block", "page_faults", "file_writes", "phases"),
)
CALLS = (
    *("read", "pread64", "write", "pwritev2", "copy_file_range", "openat", "close", "rename"),
    *("fsync", "msync", "syncfs", "sync_file_range", "io_submit", "io_uring_enter", "readahead"),
    *("futex", "mmap", "io_getevents", "sendfile"),
)


class Case:
    """Threads of a job, of its child and of others, each at one thing at a time."""

    def __init__(self, case: int, numbers: random.Random, marks: bool) -> None:
        self.numbers, self.base = numbers, NUMBERS * (case + 1)
        self.tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.now, self.last = 1000 * self.base, ""
        self.marks = marks
        self.process(0, "target", numbers.choice("ab"), threads=2)
        self.process(4, "child", "a", threads=2)
        self.process(8, "daemon", numbers.choice([None, "d"]), threads=1)
        self.process(10, "flusher", None, threads=1)
        self.process(11, "other", None, threads=2)

    def process(self, at: int, role: str, target: str | None, threads: int) -> None:
        container = self.numbers.choice([None, "c1", "c2"])
        for thread in range(threads):
            row = {"pid": self.base + at, "tid": self.base + at + thread, "comm": role}
            row |= {"role": role, "target": target, "container_id": container}
            self.tables["processes"].append(row)
            if self.numbers.random() < 0.1:  # its number was another one's before
                other = {"role": "other", "target": None, "comm": "sh"}
                again = self.numbers.choice([other, {"container_id": "c3"}, {"target": "z"}])
                self.tables["processes"].append(row | again)

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
                event = numbers.choice(["balance_dirty_pages", "balance_dirty_pages", "dirty_folio"])
                self.log("dirty", thread, event=event, pause_ns=pause)
            case "sync":
                event = numbers.choice(["fsync_start", "fsync_start", "fsync_end"])
                self.log("file_writes", thread, event=event, ino=11)
            case "direct":
                event = numbers.choice(["direct_start", "direct_start", "direct_end"])
                self.log("file_writes", thread, event=event, ino=11)
            case "queue":
                event = numbers.choice(["bio_queue", "bio_queue", "rq_issue", "rq_complete"])
                rwbs = numbers.choice(["R", "RA", "RM", "W", "WS", "FF", "D"])
                self.log("block", thread, event=event, rwbs=rwbs, sector=8, nr_sector=8)
            case "fault":
                kind = numbers.choice(["major", "minor", "unknown"])
                self.log("page_faults", thread, kind=kind, user=numbers.random() < 0.5)

    def mark(self) -> None:
        """Phases of some of the threads, over all that the case does."""
        begun, ended = self.before, self.now
        for at, names in ((0, ["train", "step"]), (1, ["inference"]), (4, ["fetch"])):
            if not self.marks or self.numbers.random() < 0.4:
                continue
            pid = self.base + at - at % 4
            inside: dict[str, Any] = {"epoch": None, "step": None}
            start, end = begun, ended
            for depth in range(self.numbers.randrange(1, 4)):
                start = self.numbers.randrange(start, end)
                end = self.numbers.randrange(start + 1, end + 1)
                name = self.numbers.choice(names)
                inside = {"epoch": inside["epoch"], "step": inside["step"]}
                if name == "train":
                    inside["epoch"] = depth
                if name == "step":
                    inside["step"] = self.numbers.randrange(9)
                row = {"start": start, "end": end, "pid": pid, "tid": self.base + at}
                self.tables["phases"].append(row | {"name": name, "source": "script"} | inside)
                if end - start < 2:
                    break

    def run(self) -> dict[str, list[dict[str, Any]]]:
        self.before = self.now
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
        lost = [call for call in self.tables["syscalls"] if self.numbers.random() < 0.05]
        self.tables["syscalls"] = [c for c in self.tables["syscalls"] if c not in lost]
        self.now += 10
        self.mark()
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
