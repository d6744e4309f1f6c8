"""The waits of kind `sync` and the naive ones agree on jobs and journals drawn at random."""

import itertools
import random
from typing import Any

import pytest

from tests.oracles.drawing import batches, grouped, rows_of_view
from tests.oracles.sync_parts import ALIKE, sync_waits_of
from tracer.analysis.views.catalogue import VIEWS

pytestmark = pytest.mark.slow

CASES_OF_A_TRACE = 20
NUMBERS = 20
"""Thread numbers in each case; the first case's are from NUMBERS on."""
LENGTH = 300
"""Time, in ns, in which the commits of a case begin."""
TABLES = ("processes", "syscalls", "off_cpu", "journal", "block", "file_writes")
MISSING = (None, None, None, None, None, "journal", "block", "file_writes")
"""Tables that a trace may lack; None: it has all."""
STEPS = ("commit_start", "commit_flushing", "commit_logging", "commit_end")
CALLS = ("fsync", "fsync", "fdatasync", "msync", "sync", "syncfs", "write", "pwrite64")
TENANT, SECOND, STRANGER, JOURNALS, FLUSHER, WORKER = 0, 4, 8, (10, 11), 12, 13
"""Threads of a case: a job with two, another job, nobody's process, and kernel threads."""

Row = dict[str, Any]


class Case:
    """Two jobs that sync files on two disks, and the journals of these disks."""

    def __init__(self, case: int, numbers: random.Random) -> None:
        self.numbers, self.base = numbers, NUMBERS * (case + 1)
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.taken: set[int] = set()
        """Times of steps, bios and completions, whose order matters."""
        self.tells_interrupts = numbers.random() < 0.7
        self.disks = [f"8:{32 * case}", f"8:{32 * case + 16}"]
        self.volumes = [self.disks[0], f"8:{32 * case + 17}"]
        """The file systems' devices: a disk, and a partition of the other one."""

    def run(self) -> dict[str, list[Row]]:
        for at, role, target in (
            (TENANT, "target", "a"), (SECOND, "target", "b"), (STRANGER, "other", None),
            (FLUSHER, "flusher", None), (WORKER, "other", None),
            *((at, "journal", None) for at in JOURNALS),
        ):  # fmt: skip
            self.process(at, role, target)
        second = self.tables["processes"][0] | {"tid": self.base + TENANT + 1}
        self.tables["processes"].append(second)
        for journal in (0, 1):
            self.commits(journal)
        for at in (TENANT, TENANT + 1, SECOND):
            self.job(at)
        return self.tables

    def process(self, at: int, role: str, target: str | None) -> None:
        number = self.base + at
        row = {"pid": number, "tid": number, "ppid": 2 if at >= min(JOURNALS) else 1}
        row |= {"role": role, "target": target, "comm": f"{role}{at}"}
        self.tables["processes"].append(row)

    def log(self, table: str, at: int, ts: int, event: str = "", **more: Any) -> None:
        tid = self.base + at
        pid = tid - 1 if at == TENANT + 1 else tid
        row = {"ts": ts, "pid": pid, "tid": tid} | ({"event": event} if event else {})
        self.tables[table].append(row | more)

    def times(self, begin: int, end: int, number: int) -> list[int]:
        """Returns at most so many times that nothing else has, in order."""
        free = sorted(set(range(begin, end)) - self.taken)
        found = sorted(self.numbers.sample(free, min(number, len(free))))
        self.taken |= set(found)
        return found

    # The journal's threads, and the disks

    def commits(self, journal: int) -> None:
        """Commits one after the other; some steps are missing, as at the begin of a recording."""
        numbers, now = self.numbers, 0
        lossy = numbers.random() < 0.3
        for number in range(numbers.choice([0, 1, 2, 3, 5])):
            now += numbers.randrange(1, 60)
            marks = []
            for name in STEPS:
                now += numbers.choice([1, 2, 10, 30])
                while now in self.taken:
                    now += 1
                self.taken.add(now)
                marks.append(now)
                if not lossy or numbers.random() < 0.8:
                    at = JOURNALS[journal]
                    more = {"dev": self.volumes[journal], "transaction_id": number}
                    self.log("journal", at, now, name, **more)
            self.bios(journal, marks[1], marks[2], numbers.choice([0, 0, 2]), False)
            self.bios(journal, marks[2], marks[3], numbers.choice([0, 1, 2, 4]), True)
            self.bios(journal, marks[3], marks[3] + 9, numbers.choice([0, 0, 1]), False)

    def bios(self, journal: int, begin: int, end: int, number: int, logging: bool) -> None:
        """Bios of a journal's thread and of others at a time, and when they are complete."""
        numbers, dev = self.numbers, self.disks[journal]
        drawn = []
        for place, ts in enumerate(self.times(begin, end, number)):
            sector, length = 8 * numbers.randrange(12), numbers.choice([8, 8, 16])
            rwbs = numbers.choice(["WS", "WSM", "W"])
            if place == number - 1 and logging:
                rwbs = numbers.choice(["FWFS", "FWFS", "FWS", "WS"])
            drawn.append((JOURNALS[journal], ts, rwbs, sector, length))
        if drawn and numbers.random() < 0.2:  # a bio after the record
            for ts in self.times(drawn[-1][1] + 1, end, 1):
                rwbs = numbers.choice(["WFS", "FWFS"])
                drawn.append((JOURNALS[journal], ts, rwbs, 8 * numbers.randrange(12), 8))
        for ts in self.times(begin, end, numbers.choice([0, 0, 1, 2])):
            at = numbers.choice([TENANT, FLUSHER, WORKER, JOURNALS[1 - journal]])
            rwbs = numbers.choice(["WS", "FWFS", "WS" if at == TENANT else "R"])
            drawn.append((at, ts, rwbs, 8 * numbers.randrange(12), 8))
        done = []
        for at, ts, rwbs, sector, length in drawn:
            more = {"dev": dev, "rwbs": rwbs, "sector": sector, "nr_sector": length}
            self.log("block", at, ts, "bio_queue", **more)
            if numbers.random() < 0.9:
                done.append((ts, sector, sector + length))
        done.sort(key=lambda one: one[1])
        while done:
            ts, first, last = done.pop()
            while done and done[-1][2] >= first and numbers.random() < 0.7:  # one request
                earlier = done.pop()
                ts, first = max(ts, earlier[0]), earlier[1]
                last = max(last, earlier[2])
            cuts = [first, last]
            if last - first > 8 and numbers.random() < 0.4:  # the device takes it in two requests
                cuts.insert(1, first + 8)
            for begun, ended in itertools.pairwise(cuts):
                until = ts + 1 + numbers.choice([3, 10, 60])
                for when in self.times(ts + 1, until, 1):
                    at = numbers.choice([WORKER, TENANT, JOURNALS[journal]])
                    disk = dev if numbers.random() < 0.95 else self.disks[1 - journal]
                    more = {"dev": disk, "rwbs": "WS", "sector": begun, "nr_sector": ended - begun}
                    self.log("block", at, when, "complete", **more)

    # The jobs

    def job(self, at: int) -> None:
        """A thread's calls one after the other, and its sleeps within them and between them."""
        numbers, now = self.numbers, 0
        while now < LENGTH:
            now += numbers.choice([1, 2, 30])
            name, begun = numbers.choice(CALLS), now
            now = self.before_a_sleep(at, name, now + 1)
            for _ in range(numbers.choice([0, 1, 1, 2])):
                now = self.any_sleep(at, name, now + numbers.choice([0, 1, 20]))
                now = self.before_a_sleep(at, "", now)
            now += numbers.choice([1, 2, 10])
            took = now - begun if numbers.random() < 0.95 else None
            self.log("syscalls", at, begun, name=name, dur_ns=took)
        last = self.tables["off_cpu"][-1] if self.tables["off_cpu"] else None
        if last is not None and last["tid"] == self.base + at and numbers.random() < 0.4:
            self.tables["off_cpu"][-1] = last | {"dur_ns": None, "run_delay_ns": None}

    def before_a_sleep(self, at: int, name: str, now: int) -> int:
        """Events of a thread in a call; returns a later time."""
        numbers, volume = self.numbers, self.numbers.choice(self.volumes)
        if name and name not in ("sync", "syncfs") and numbers.random() < 0.7:
            event = numbers.choice(["fsync_start", "fsync_start", "fsync_start", "fsync"])
            self.log("file_writes", at, now, event, dev=volume, ino=12)
            now += numbers.choice([1, 3])
        for _ in range(numbers.choice([0, 0, 0, 1, 2])):
            match numbers.choice(["flush", "bio", "fast"]):
                case "flush":
                    more = {"rwbs": numbers.choice(["F", "FF", "FWS", "N"]), "nr_sector": 0}
                    more |= {"dev": numbers.choice(self.disks), "sector": 0}
                    self.log("block", at, now, "bio_queue", **more)
                case "bio":
                    more = {"rwbs": numbers.choice(["WS", "FWFS"]), "nr_sector": 8}
                    more |= {"dev": numbers.choice(self.disks), "sector": 8}
                    self.log("block", at, now, "bio_queue", **more)
                case "fast":
                    if name in ("fsync", "fdatasync"):
                        self.log("file_writes", at, now, "fast_commit_start", dev=volume)
            now += numbers.choice([1, 3])
        return now

    def any_sleep(self, at: int, name: str, now: int) -> int:
        """A time off the CPU in a call, whoever ends it; returns when the thread runs again."""
        numbers = self.numbers
        wakers = (*JOURNALS, *JOURNALS, None, TENANT, SECOND, STRANGER, FLUSHER, WORKER)
        waker = numbers.choice([one for one in wakers if one != at])
        state = numbers.choice(["D", "D", "D", "D", "D|K", "S", "R", "R+"])
        if name not in ("fsync", "fdatasync", "msync", "sync", "syncfs") and state == "S":
            state = "D"
        return self.sleep(at, now, waker, state)

    def sleep(self, at: int, now: int, waker: int | None, state: str) -> int:
        numbers = self.numbers
        length, delay = numbers.choice([0, 1, 20, 60, 150]), numbers.choice([0, 0, 1, 20])
        end = now + length
        marks = [one["ts"] for one in self.tables["journal"] if now < one["ts"] < end + 60]
        if marks and length and numbers.random() < 0.3:  # a step and the wake-up at one time
            end = numbers.choice(marks)
        tid = self.base + at
        pid = tid - 1 if at == TENANT + 1 else tid
        row = {"ts": now, "dur_ns": end + delay - now, "pid": pid, "tid": tid, "state": state}
        row |= {"wake_ns": None, "waker_tid": None, "interrupt": None, "run_delay_ns": None}
        if state.startswith("R"):
            row["run_delay_ns"] = row["dur_ns"]
        elif waker is not None or numbers.random() < 0.5:
            number = 0 if waker is None else self.base + waker  # 0: an idle CPU
            interrupt = waker is None or numbers.random() < 0.25
            row |= {"wake_ns": end, "waker_tid": number, "waker_pid": number}
            row |= {"interrupt": interrupt if self.tells_interrupts else None}
            row |= {"run_delay_ns": delay}
            if waker == TENANT + 1:
                row["waker_pid"] = number - 1
        self.tables["off_cpu"].append(row)
        return end + delay + 1


def end_of(row: Row) -> int:
    """Returns when a call or a sleep ended; one whose end is not known is the last."""
    return row["ts"] + (1 << 40 if row["dur_ns"] is None else row["dur_ns"])


def in_order(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Returns the tables in the order of a recording."""
    found = {name: sorted(rows, key=lambda row: row.get("ts", 0)) for name, rows in tables.items()}
    for name in ("syscalls", "off_cpu"):
        found[name].sort(key=end_of)
    return found


def drawn(cases: list[random.Random]) -> tuple[dict[str, list[Row]], list[Row]]:
    """Returns the tables of some cases, and the disks of the manifest."""
    tables: dict[str, list[Row]] = {name: [] for name in TABLES}
    tables["processes"].append({"pid": 2, "tid": 2, "ppid": 0, "comm": "kthreadd", "role": "other"})
    disks: list[Row] = []
    missing, idle = cases[0].choice(MISSING), cases[0].random() < 0.1
    for number, numbers in enumerate(cases):
        case = Case(number, numbers)
        for name, rows in case.run().items():
            tables[name] += rows
        disks += [{"dev": dev, "name": f"sd{n}{number}"} for n, dev in enumerate(case.disks)]
        part = {"dev": case.volumes[1], "name": f"sd1{number}p1", "partition_of": case.disks[1]}
        disks.append(part | {"start": 0, "bytes": 1 << 30})
    if idle:
        tables["journal"] = []
    return {name: rows for name, rows in in_order(tables).items() if name != missing}, disks


def case_of(row: Row) -> int:
    return row["tid"] // NUMBERS - 1


def parts(rows: list[Row]) -> list[Row]:
    """Returns the waits of kind sync that have a length, in the oracle's columns."""
    return [
        {name: row[name] for name in ("ts", "dur_ns", "detail", *ALIKE)}
        for row in rows
        if row["kind"] == "sync" and row["dur_ns"] != 0
    ]


def test_the_parts_of_waits_for_an_fsync_are_those_of_the_oracle():
    for cases in batches(CASES_OF_A_TRACE):
        tables, disks = drawn(cases)
        rows = rows_of_view(VIEWS["waits"], tables, disks=disks)
        assert grouped(parts(rows), case_of) == grouped(sync_waits_of(tables), case_of)
