"""`tracer explain` tells what the disks served during the longest waits for storage.

The truth is the sum over requests laid out on disks, partitions and volumes. It is written from
docs/explain.md and docs/architecture.md, not from the code.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.fuzz.verbs import called
from tests.oracles.drawing import SEED
from tests.support.traces import make_trace

pytestmark = pytest.mark.slow

STEPS, MOST = 40, 5
TABLES = ("processes", "phases", "syscalls", "off_cpu", "block")
MS, MIB = 10**6, 1 << 20
SECTORS = MIB // 512
JOB, WORKER, COPY, SYNC, FLUSHER = 100, 101, 300, 301, 50
COMMS = {JOB: "train", WORKER: "loader", COPY: "cp", SYNC: "rsync", FLUSHER: "kworker/u8:1"}
PARTS = {"8:1": ("8:0", 2048), "8:2": ("8:0", 10_000_000)}
ON = {
    "253:0": ["8:2", "8:16"],
    "253:1": ["8:1"],
    "9:0": ["8:16", "8:32"],
    "253:2": ["9:0"],
    "253:3": ["253:1"],
}
"""Logical volumes, one of them on two disks, an array of two disks, and volumes on these."""
KERNEL = (FLUSHER,)
DISKS = ("8:0", "8:16", "8:32", "8:48")
APART = 20
"""Nanoseconds that the events of a request take until it is issued, at most."""
LENGTH = 9_000_000
"""Sectors of each partition; a disk has more."""
TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": JOB}]

Row = dict[str, Any]
Served = dict[tuple[str, str, str], tuple[int, int]]
"""Requests and bytes by the disk, the operation and the name of the program."""


def below(dev: str) -> set[str]:
    """Returns the disks that a device lies on."""
    if dev in PARTS:
        return {PARTS[dev][0]}
    return {disk for lower in ON[dev] for disk in below(lower)} if dev in ON else {dev}


def manifest_disks() -> list[Row]:
    """Returns the devices as a manifest has them."""
    rows: list[Row] = [{"dev": dev, "name": f"d{dev}", "bytes": 512 << 26} for dev in DISKS]
    for dev, (disk, start) in PARTS.items():
        row = {"dev": dev, "name": f"d{dev}", "partition_of": disk, "start": start}
        rows.append(row | {"bytes": 512 * LENGTH})
    return rows + [
        {"dev": d, "name": f"d{d}", "bytes": 512 * LENGTH, "on": on} for d, on in ON.items()
    ]


def count(served: Served, disk: str, rwbs: str, tid: int, mib: int) -> None:
    """Counts a request that a disk serves in a wait."""
    key = disk, "read" if rwbs[0] == "R" else "write", COMMS[tid]
    requests, size = served.get(key, (0, 0))
    served[key] = requests + 1, size + mib * MIB


class Steps:
    """Steps of a job that each wait once for a disk, and requests of all programs."""

    def __init__(self, seed: int, steps: int) -> None:
        """Draws the steps."""
        self.numbers = random.Random(seed)
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.sector = 0
        self.waits: dict[int, Served] = {}
        """By the begin of each step's wait, what its disks served in it."""
        for tid, comm in COMMS.items():
            mine = tid in (JOB, WORKER)
            row = {"pid": JOB if mine else tid, "tid": tid, "comm": comm}
            row |= {"ppid": 2 if tid in KERNEL else 1, "target": "job" if mine else None}
            row["role"] = "target" if mine else "flusher" if tid == FLUSHER else "other"
            self.tables["processes"].append(row)
        self.now = MS
        for number in range(steps):
            self._step(number, self.numbers.randrange(20, 90) * MS)
            self.now += self.numbers.randrange(MS)
        mark = {"name": "train", "start": MS - 1, "end": self.now, "pid": JOB, "tid": JOB}
        self.tables["phases"].insert(0, mark)
        for name, rows in self.tables.items():
            if name not in ("processes", "phases"):
                rows.sort(key=lambda row: row["ts"] + row.get("dur_ns", 0))

    def _step(self, number: int, length: int) -> None:
        """Lays out a step with a wait of this length."""
        begin, asleep = self.now, self.now + 10 * MS
        woken, end = asleep + length, asleep + length + 10 * MS
        self.now = end
        mark = {"pid": JOB, "tid": JOB, "epoch": 0, "step": number}
        self.tables["phases"] += [
            {"name": "step", "start": begin, "end": end, **mark},
            {"name": "fetch", "start": begin + 1, "end": woken + 2, **mark},
        ]
        dev = self.numbers.choice([*PARTS, *ON, "8:32"])
        served = self._others(number, dev, asleep, woken)
        disk = self._request(JOB, dev, asleep - APART, woken - 1, "R", 1)
        count(served, disk, "R", JOB, 1)
        call = {"ts": begin + 5 * MS, "dur_ns": woken + 1 - begin - 5 * MS, "name": "pread64"}
        self.tables["syscalls"].append(call | {"pid": JOB, "tid": JOB, "ret": MIB})
        self.tables["off_cpu"].append(
            {"ts": asleep, "dur_ns": length, "pid": JOB, "tid": JOB, "state": "D", "cpu": 0,
             "wake_ns": woken, "waker_tid": 0, "waker_pid": 0, "interrupt": True,
             "run_delay_ns": 0, "ran_cpu": 0, "ran_tid": 0}
        )  # fmt: skip
        self.waits[asleep] = served

    def _others(self, number: int, dev: str, asleep: int, woken: int) -> Served:
        """Lays out requests of others to any device, in the wait and before it."""
        numbers, served = self.numbers, Served()
        for _ in range(numbers.choice([0, 3, 16])):
            inside = numbers.random() < 0.7
            window = range(asleep + 2, woken) if inside else range(asleep - 8 * MS, asleep)
            since, until = sorted(numbers.sample(window[::APART], 2))
            tid = numbers.choice([WORKER, COPY, SYNC, FLUSHER])
            rwbs = "W" if tid == FLUSHER else numbers.choice(["R", "W", "RA", "WS"])
            other, mib = numbers.choice([*PARTS, *ON, *DISKS]), numbers.choice([1, 2, 5, 40])
            disk = self._request(tid, other, since, until, rwbs, mib)
            if inside and disk in below(dev):
                count(served, disk, rwbs, tid, mib)
        return served

    def _request(
        self, tid: int, dev: str, since: int, until: int | None, rwbs: str, mib: int
    ) -> str:
        """A thread reads or writes a device; the disk below has a request. Returns the disk."""
        self.sector += 2 * 40 * SECTORS
        sector, at = self.sector % (LENGTH - 40 * SECTORS), since
        origin: Row = {}
        while True:
            if dev in PARTS:
                dev, sector = PARTS[dev][0], sector + PARTS[dev][1]
            place = {"dev": dev, "sector": sector, "nr_sector": mib * SECTORS, "rwbs": rwbs}
            if origin:
                self._log(tid, at, "remap", place | origin)
            self._log(tid, at + 1, "bio_queue", place)
            if dev not in ON:
                break
            self._log(0, until, "complete", place)
            origin, at = {"from_dev": dev, "from_sector": sector}, at + 2
            dev = self.numbers.choice(ON[dev])
        self._log(tid, at + 2, "issue", place)
        self._log(0, until, "complete", place)
        return dev

    def _log(self, tid: int, ts: int | None, event: str, place: Row) -> None:
        if ts is not None:
            by = {"pid": JOB if tid == WORKER else tid, "tid": tid, "comm": COMMS.get(tid)}
            self.tables["block"].append({"ts": ts, "event": event, **by, **place})

    @property
    def manifest(self) -> Row:
        """The facts that go with the tables."""
        clock = {"name": "mono", "start_ns": 0, "end_ns": self.now + 90 * MS}
        return {"targets": TARGETS, "disks": manifest_disks(), "clock": clock}


class Edges(Steps):
    """Steps in each of which one request of another program overlaps the wait, or touches it."""

    def _others(self, number: int, dev: str, asleep: int, woken: int) -> Served:
        middle, served = (asleep + woken) // 2, Served()
        since, until, counts = (
            (asleep - MS, middle, True),
            (middle, woken + MS, True),
            (asleep - MS, woken + MS, True),
            (asleep - MS, asleep - 1, False),
            (asleep - MS, asleep, False),
            (woken, woken + MS, False),
        )[number % 6]
        disk = self._request(COPY, min(below(dev)), since, until, "W", 3)
        if counts:
            count(served, disk, "W", COPY, 3)
        return served


def told_by(folder, made: Steps) -> dict[int, Served]:
    """Returns what the explanation says about each wait, by its begin."""
    make_trace(folder, made.tables, **made.manifest).close()
    answer = json.loads(called("explain", folder, "--slowest", 99, "--json"))
    return {
        part["ts"]: {
            (one["dev"], one["operation"], one["comm"]): (one["requests"], one["bytes"])
            for one in part["meanwhile"]
        }
        for step in answer["slowest"]
        for part in step["segments"]
        if part["kind"] == "disk"
    }


def test_the_disks_below_served_what_the_oracle_sums_up(tmp_path):
    """The explanation has the five largest parts."""
    made, many = Steps(SEED, STEPS), 0
    found = told_by(tmp_path / "t", made)
    assert found.keys() == made.waits.keys()
    for begin, served in made.waits.items():
        assert found[begin].items() <= served.items()
        assert len(found[begin]) == min(len(served), MOST)
        least = min(size for _, size in found[begin].values())
        assert all(served[key][1] <= least for key in served.keys() - found[begin].keys())
        many += len(served) > MOST
    assert many > 2


def test_a_request_that_overlaps_a_wait_counts_as_a_whole(tmp_path):
    made = Edges(SEED, 18)
    assert told_by(tmp_path / "t", made) == made.waits
