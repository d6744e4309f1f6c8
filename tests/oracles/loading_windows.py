"""Two jobs at a time whose workers load data, window by window, each window's waits of one cause.

It is written from docs/findings.md, docs/explain.md and docs/phases.md, not from their code.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from tests.oracles.throttled import MS, PERIOD, SERIES, WINDOW

Row = dict[str, Any]

WINDOWS = 6
HOG = 900
JOBS = (100, 200)
KINDS = ("disk", "cpu", "throttled", "lock", "fault", "memory", "unknown", "pipe", "run")
READS = ("read", "pread64")
END = (WINDOWS + 1) * WINDOW
TABLES = ("processes", "phases", "syscalls", "off_cpu", "block", "page_faults", "reclaim",
          "samples")  # fmt: skip


class Loading:
    """The tables of a recording, and what the workers' time was spent on (ns).

    `loading_ns` is the length of the workers' fetches, `reading_ns` that of the read calls in them,
    and `spent` what these calls were spent on. A worker's time outside of its calls is `work`.
    """

    def __init__(self, seed: int, kinds: int = 3) -> None:
        self.numbers = numbers = Random(seed)
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.loading_ns = self.reading_ns = self.sector = 0
        self.spent: Counter[str] = Counter()
        self.fetches: list[tuple[int, int, int, Counter[str]]] = []
        """Thread that waits, begin, end, and what the time was spent on."""
        self.long = numbers.choice((20, 60, 90)) * MS
        """Length of a read call: from a fifth of the loading time on."""
        self.process(HOG, "other", None)
        for pid in JOBS:
            self._job(pid, numbers.sample(KINDS, kinds))
        self._after()
        for name, rows in self.tables.items():
            if name == "phases":
                rows.sort(key=lambda row: (row["start"], -row["end"]))
            elif name != "processes":
                rows.sort(key=lambda row: row["ts"] + (row.get("dur_ns") or 0))

    @property
    def manifest(self) -> Row:
        """The facts that go with the tables."""
        return {
            "clock": {"name": "mono", "start_ns": 0, "end_ns": END},
            "host": {"machine": "x86_64", "cpus": 64, "memory_bytes": 1 << 30},
            "duration_s": END / 1e9,
            "disks": [{"dev": "8:0", "name": "sda"}],
            "targets": [
                {"name": f"job{pid}", "role": "target", "kind": "pid", "pid": pid} for pid in JOBS
            ],
        }

    def process(self, pid: int, role: str, target: str | None, ppid: int = 1) -> None:
        row = {"pid": pid, "tid": pid, "ppid": ppid, "role": role, "target": target}
        row["cgroup"] = f"/{target}" if target else "/"
        self.tables["processes"].append(row | {"comm": f"t{pid}"})

    def phase(self, pid: int, name: str, start: int, end: int, **more: Any) -> None:
        row = {"pid": pid, "tid": pid, "name": name, "start": start, "end": end}
        self.tables["phases"].append(row | {"source": "script"} | more)

    def log(self, table: str, tid: int, ts: int, **more: Any) -> None:
        self.tables[table].append({"ts": ts, "pid": tid, "tid": tid} | more)

    def _off(self, tid: int, start: int, end: int, state: str, waker: int | None = None) -> None:
        """A thread is off its CPU; without a waker, it could run, and HOG had the CPU."""
        row: Row = {"dur_ns": end - start, "state": state, "cpu": tid, "ran_cpu": tid}
        if waker is None:
            row |= {"run_delay_ns": end - start, "ran_tid": HOG}
        else:
            row |= {"run_delay_ns": 0, "ran_tid": 0, "wake_ns": end, "waker_tid": waker}
            row |= {"waker_pid": waker, "interrupt": waker == 0}
        self.log("off_cpu", tid, start, **row)

    def _job(self, pid: int, kinds: list[str]) -> None:
        worker = pid + 1
        self.process(pid, "target", f"job{pid}")
        self.process(worker, "child", f"job{pid}", pid)
        total = periods = 0
        self._sample(pid, 0, 0, 0, 0)
        for window in range(WINDOWS):
            begin, kind = window * WINDOW, self.numbers.choice(kinds)
            fetched = begin + 4 * PERIOD
            spent: Counter[str] = Counter()
            for number in range(4):
                self._period(worker, begin + number * PERIOD, kind, spent)
            more = spent["throttled"]
            total += more + (MS if more else 0)  # the kernel rounds
            periods += WINDOW // PERIOD if more else 0
            self._sample(pid, begin + WINDOW, total, periods, more)
            numbered = {"epoch": 0, "step": window}
            self.phase(worker, "fetch", begin, fetched, **numbered)
            self.phase(pid, "step", begin, begin + WINDOW, **numbered)
            self.phase(pid, "fetch", begin, fetched, **numbered)
            self.phase(pid, "forward", fetched, fetched + 10 * MS, **numbered)
            self.phase(pid, "backward", fetched + 10 * MS, fetched + 90 * MS, **numbered)
            self._off(pid, begin, fetched, "S", worker)
            self.log("syscalls", pid, begin, name="poll", dur_ns=fetched - begin, ret=1)
            self._off(worker, fetched, begin + WINDOW, "S", pid)
            self.log("syscalls", worker, fetched, name="read", dur_ns=PERIOD, ret=1)
            self.fetches.append((pid, begin, fetched, spent))
        self.phase(pid, "train", 0, WINDOWS * WINDOW)

    def _period(self, tid: int, begin: int, kind: str, spent: Counter[str]) -> None:
        """A read call from its begin on, then work without a call."""
        start = begin + MS
        slept = start + self.numbers.choice((0, 1, 5)) * MS + 1
        woken = start + self.long - self.numbers.choice((1, MS, 9 * MS))
        waited = woken - slept if kind != "run" else 0
        if kind == "unknown":
            self.log("syscalls", tid, start, name="ioctl", dur_ns=self.long, ret=1)
        elif kind != "fault":  # it touches a mapped file, and makes no call
            name = self.numbers.choice(READS)
            self.log("syscalls", tid, start, name=name, dur_ns=self.long, ret=1)
            for cause, length in ((kind, waited), ("run", self.long - waited)):
                self.spent[cause] += length
            self.reading_ns += self.long
        spent[kind if waited else "work"] += waited
        spent["work"] += PERIOD - waited
        self.loading_ns += PERIOD
        if kind in ("cpu", "throttled"):
            self._off(tid, slept, woken, "R+")
        elif kind in ("disk", "fault", "memory"):
            self._off(tid, slept, woken, "D", 0)
        elif kind == "lock":
            self._off(tid, slept, woken, "D", HOG)
        elif kind == "pipe":
            self._off(tid, slept, woken, "S", HOG)
        elif kind == "unknown":
            self._off(tid, slept, woken, "S", 0)
        if kind in ("disk", "fault"):
            self._bios(tid, slept, woken)
        if kind == "fault":
            self.log("page_faults", tid, slept - 1, kind="major", user=True, file="/data/x")
        if kind == "memory":
            self.log("reclaim", tid, slept - 1, event="direct_begin")
            self.log("reclaim", tid, woken, event="direct_end", nr_reclaimed=32)

    def _bios(self, tid: int, start: int, end: int) -> None:
        self.sector += 4096
        at = {"dev": "8:0", "sector": self.sector, "nr_sector": 8, "rwbs": "R"}
        for event, ts, by in (
            ("bio_queue", start - 1, tid),
            ("issue", start - 1, tid),
            ("complete", end, 0),
        ):
            self.log("block", by, ts, event=event, **at)

    def _sample(self, pid: int, ts: int, total: int, periods: int, more: int) -> None:
        """A sample of a job's cgroup: throttled for `more` ns since the sample before."""
        rate = WINDOW / PERIOD / (WINDOW / 1e9) if more else 0.0
        values = (periods, rate, total / 1e9, 100 * more / WINDOW)
        for name, value in zip(SERIES, values, strict=True):
            if ts or name in ("cgroup_nr_throttled", "cgroup_throttled_time"):
                row = {"ts": ts, "target": f"job{pid}", "instance": f"/job{pid}", "name": name}
                self.tables["samples"].append(row | {"value": float(value)})

    def _after(self) -> None:
        """Reads that do not count: of the tenant, and of a fetch after the trainings."""
        late = WINDOWS * WINDOW + 9 * MS
        for tid in (HOG, JOBS[0] + 1):
            self.log("syscalls", tid, late, name="read", dur_ns=300 * MS, ret=1)
            self._off(tid, late + MS, late + 290 * MS, "S", 0)
        self.phase(JOBS[0] + 1, "fetch", late, late + 300 * MS, epoch=1, step=WINDOWS)
