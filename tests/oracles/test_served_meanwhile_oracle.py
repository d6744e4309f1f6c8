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
from tests.oracles.drawing import first_with, seeds
from tests.support.traces import make_trace

pytestmark = pytest.mark.slow

ONE_SEED = pytest.mark.parametrize("seed", seeds(1))

STEPS, MOST = 24, 5
TABLES = ("processes", "phases", "syscalls", "off_cpu", "block", "dirty", "inode_writeback")
MS, MIB = 10**6, 1 << 20
SECTORS = MIB // 512
JOB, WORKER, COPY, SYNC, FLUSHER, INSIDE, BESIDE = 100, 101, 300, 301, 50, 302, 303
KBLOCKD = 51
"""The thread of the kernel that issues what the block layer could not issue at once."""
COMMS = {JOB: "train", WORKER: "loader", COPY: "cp", SYNC: "rsync", FLUSHER: "kworker/u8:1"}
COMMS |= {INSIDE: "dd", BESIDE: "tar", KBLOCKD: "kworker/1:1H"}
CONTAINER = "3f2a" + 60 * "0"
OWNERS: tuple[tuple[tuple[int, ...], str | None], ...] = (
    ((SYNC,), "rsync"),
    ((INSIDE,), f"container {CONTAINER[:12]}"),
    ((INSIDE, BESIDE), f"container {CONTAINER[:12]}"),
    ((WORKER,), "target job"),
    ((WORKER, JOB), "target job"),
    ((COPY, SYNC), None),
    ((INSIDE, COPY), None),
)
"""Processes that dirty a file, and for whom the flusher then writes it."""
PARTS = {"8:1": ("8:0", 2048), "8:2": ("8:0", 10_000_000)}
ON = {
    "253:0": ["8:2", "8:16"],
    "253:1": ["8:1"],
    "9:0": ["8:16", "8:32"],
    "253:2": ["9:0"],
    "253:3": ["253:1"],
}
"""Logical volumes, one of them on two disks, an array of two disks, and volumes on these."""
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

    DEVICES = (*PARTS, *ON, "8:32")
    """Those that a step may wait for."""

    def __init__(self, seed: int, steps: int) -> None:
        """Draws the steps."""
        self.numbers = random.Random(seed)
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.sector = 0
        self.waits: dict[int, Served] = {}
        """The begin of each step's wait, and what its disks served in it."""
        for tid, comm in COMMS.items():
            mine = tid in (JOB, WORKER)
            row = {"pid": JOB if mine else tid, "tid": tid, "comm": comm}
            row |= {
                "ppid": 2 if tid in (FLUSHER, KBLOCKD) else 1,
                "target": "job" if mine else None,
            }
            row["container_id"] = CONTAINER if tid in (INSIDE, BESIDE) else None
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
        dev = self.numbers.choice(self.DEVICES)
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
        for _ in range(numbers.choice([0, 3, 24])):
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
        while True:
            place = {"dev": dev, "sector": sector, "nr_sector": mib * SECTORS, "rwbs": rwbs}
            if dev in PARTS:
                dev, start = PARTS[dev]
                origin = {"from_dev": place["dev"], "from_sector": sector}
                place |= {"dev": dev, "sector": sector + start}
                self._log(tid, at, "remap", place | origin)
            self._log(tid, at + 1, "bio_queue", place)
            if dev not in ON:
                break
            self._log(0, until, "complete", place)
            below_it = self.numbers.choice(ON[dev])
            lower = place | {"dev": PARTS.get(below_it, (below_it,))[0]}
            self._log(tid, at + 2, "remap", lower | {"from_dev": dev, "from_sector": sector})
            dev, at = below_it, at + 3
        self._serve(tid, at + 2, until, place)
        return dev

    def _serve(self, tid: int, at: int, until: int | None, place: Row) -> None:
        """A thread issues the request of a bio, and the disk completes it."""
        self._log(tid, at, "issue", place)
        self._log(0, until, "complete", place)

    def _log(self, tid: int, ts: int | None, event: str, place: Row) -> None:
        if ts is not None:
            by = {"pid": JOB if tid == WORKER else tid, "tid": tid, "comm": COMMS.get(tid)}
            self.tables["block"].append({"ts": ts, "event": event, **by, **place})

    @property
    def manifest(self) -> Row:
        """The facts that go with the tables."""
        clock = {"name": "mono", "start_ns": 0, "end_ns": self.now + 90 * MS}
        mounts = [
            {"dev": dev, "path": f"/{dev}", "source": "x", "type": "ext4"} for dev in Owned.DEVICES
        ]
        more = {"disks": manifest_disks(), "mounts": mounts}
        return {"targets": TARGETS, "clock": clock, **more}


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


class Handed(Steps):
    """Requests that a thread of the kernel issues for all others, two for each bio."""

    def _serve(self, tid: int, at: int, until: int | None, place: Row) -> None:
        half = place["nr_sector"] // 2
        for sector in (place["sector"], place["sector"] + half):
            super()._serve(KBLOCKD, at, until, place | {"sector": sector, "nr_sector": half})


class Owned(Steps):
    """Steps during which the flusher writes a file, which one process dirtied, or several."""

    DEVICES = ("8:32", "253:0")

    def __init__(self, seed: int, steps: int) -> None:
        """Draws the steps."""
        self.whom: dict[int, str | None] = {}
        """The begin of each wait, and for whom the flusher writes in it."""
        super().__init__(seed, steps)

    def _others(self, number: int, dev: str, asleep: int, woken: int) -> Served:
        dirtiers, self.whom[asleep] = OWNERS[number % len(OWNERS)]
        inode = {"dev": dev, "ino": 30 + number}
        for tid in dirtiers:
            pid = JOB if tid == WORKER else tid
            row = {"ts": asleep - MS + tid, "event": "dirty_folio", "pid": pid, "tid": tid}
            self.tables["dirty"].append(row | inode | {"index": 0})
        by = {"pid": FLUSHER, "tid": FLUSHER}
        for event, ts, state in (("start", asleep + 1, 7), ("end", asleep + 100, 0)):
            row = {"ts": ts, "event": event, "state": state, "age": 1}
            self.tables["inode_writeback"].append(by | row | inode)
        disk = self._request(FLUSHER, dev, asleep + 2, woken - 9, "W", 3)
        served = Served()
        count(served, disk, "W", FLUSHER, 3)
        return served


def meanwhile(folder, made: Steps) -> dict[int, list[Row]]:
    """Returns what the explanation says about each wait, by its begin."""
    make_trace(folder, made.tables, **made.manifest).close()
    answer = json.loads(called("explain", folder, "--slowest", 99, "--json"))
    return {
        part["ts"]: part["meanwhile"]
        for step in answer["slowest"]
        for part in step["segments"]
        if part["kind"] == "disk"
    }


def served_by(said: list[Row]) -> Served:
    """Returns the parts that the explanation has of a wait."""
    return {
        (one["dev"], one["operation"], one["comm"]): (one["requests"], one["bytes"]) for one in said
    }


@ONE_SEED
def test_the_disks_below_served_what_the_oracle_sums_up(tmp_path, seed):
    """The explanation has the five largest parts."""
    made = first_with(
        lambda made: any(len(served) > MOST for served in made.waits.values()),
        lambda n: Steps(n, STEPS),
        seed,
    )
    found = {ts: served_by(said) for ts, said in meanwhile(tmp_path / "t", made).items()}
    assert found.keys() == made.waits.keys()
    for begin, served in made.waits.items():
        assert found[begin].items() <= served.items()
        assert len(found[begin]) == min(len(served), MOST)
        least = min(size for _, size in found[begin].values())
        assert all(served[key][1] <= least for key in served.keys() - found[begin].keys())


@ONE_SEED
def test_a_request_that_overlaps_a_wait_counts_as_a_whole(tmp_path, seed):
    made = Edges(seed, 6)
    found = meanwhile(tmp_path / "t", made)
    assert {ts: served_by(said) for ts, said in found.items()} == made.waits


@ONE_SEED
def test_requests_that_kblockd_issues_are_those_of_the_threads_that_queued_them(tmp_path, seed):
    made = Handed(seed, STEPS)
    found = meanwhile(tmp_path / "t", made)
    assert found.keys() == made.waits.keys()
    for begin, said in found.items():
        twice = {key: (2 * count, size) for key, (count, size) in made.waits[begin].items()}
        assert served_by(said).items() <= twice.items()
        assert len(said) == min(len(twice), MOST)
        assert all(one["own"] == (one["comm"] == COMMS[JOB]) for one in said)


@ONE_SEED
def test_the_writes_of_the_flusher_are_for_the_one_who_dirtied_the_file(tmp_path, seed):
    made = Owned(seed, len(OWNERS) + 3)
    found = meanwhile(tmp_path / "t", made)
    assert {ts: served_by(said) for ts, said in found.items()} == made.waits
    whom = {
        ts: [one["for_whom"] for one in said if one["comm"] == COMMS[FLUSHER]]
        for ts, said in found.items()
    }
    assert whom == {ts: [one] for ts, one in made.whom.items()}
