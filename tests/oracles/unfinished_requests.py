"""Requests and waits of which the end was not recorded, and what is known of them.

It is written from docs/explain.md and docs/record.md, not from the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

Row = dict[str, Any]
Served = dict[tuple[str, str, str], tuple[int, int]]
"""Requests and bytes by the disk, the operation and the name of the program."""

MS = 10**6
KIB, SECTOR = 1 << 10, 512
JOB, PEER, TENANT, COPY = 100, 200, 300, 301
COMMS = {JOB: "train", PEER: "peer", TENANT: "postgres", COPY: "cp"}
DISKS = ("8:0", "8:16")
PARTS = {"8:1": ("8:0", 2048), "8:2": ("8:0", 1 << 20)}
"""Partitions, each with its disk and its first sector."""
VOLUME, BELOW = "253:0", "8:16"
"""A logical volume and the disk below it."""
TARGETS = [{"name": COMMS[pid], "role": "target", "kind": "pid", "pid": pid} for pid in (JOB, PEER)]
MANIFEST = [
    *({"dev": dev, "name": f"d{dev}", "bytes": 1 << 40} for dev in DISKS),
    *(
        {"dev": dev, "name": f"d{dev}", "bytes": 1 << 29, "partition_of": disk, "start": start}
        for dev, (disk, start) in PARTS.items()
    ),
    {"dev": VOLUME, "name": "lv", "bytes": 1 << 40, "on": [BELOW]},
]


def threads() -> list[Row]:
    """Returns the rows of the processes."""
    roles = {pid: {"role": "target", "target": COMMS[pid]} for pid in (JOB, PEER)}
    return [
        {"pid": pid, "tid": pid, "ppid": 1, "comm": comm} | roles.get(pid, {"role": "other"})
        for pid, comm in COMMS.items()
    ]


@dataclass
class Request:
    """A request that a disk serves; `until` is None if no event tells its end."""

    disk: str
    operation: str
    comm: str
    size: int
    since: int
    until: int | None


@dataclass
class Gap:
    """A loss: of events of the machine, of the targets, or of no events."""

    stream: str
    start: int
    end: int | None

    def row(self) -> Row:
        """Returns the row of the table `loss`."""
        row = {"stream": self.stream, "cpu": 0, "cause": "overrun", "count": 3}
        return row | {"from": self.start, "to": self.end}


class Recording:
    """Steps of a job that each wait for a disk, and requests of everybody, some unfinished."""

    def __init__(self, seed: int, steps: int, gaps: int) -> None:
        self.numbers = Random(seed)
        self.tables: dict[str, list[Row]] = {
            name: [] for name in ("phases", "syscalls", "off_cpu", "block")
        }
        self.tables["processes"] = threads()
        self.requests: list[Request] = []
        self.waits: list[tuple[int, int, str]] = []
        """Begin, end and disk of each wait."""
        self.sector, self.now = 0, 10 * MS
        for number in range(steps):
            self._step(number)
        self.end = self.now + 30 * MS
        for _ in range(6 * steps):
            self._request_of_others()
        self.gaps = [self._gap() for _ in range(gaps)]
        self.tables["loss"] = [gap.row() for gap in self.gaps]
        mark = {"name": "train", "start": 9 * MS, "end": self.now, "pid": JOB, "tid": JOB}
        self.tables["phases"].insert(0, mark)
        self.tables["block"].sort(key=lambda row: row["ts"])

    def _step(self, number: int) -> None:
        numbers, begin = self.numbers, self.now
        asleep = begin + numbers.randrange(1, 4) * MS
        woken = asleep + numbers.randrange(10, 40) * MS
        self.now = woken + numbers.randrange(1, 4) * MS
        mark = {"pid": JOB, "tid": JOB, "epoch": 0, "step": number}
        self.tables["phases"] += [
            {"name": "step", "start": begin, "end": self.now, **mark},
            {"name": "fetch", "start": begin, "end": woken, **mark},
        ]
        disk = self.request(JOB, numbers.choice((*DISKS, *PARTS, VOLUME)), asleep, woken, "R", 64)
        call = {"ts": asleep, "dur_ns": woken - asleep, "name": "pread64", "ret": 64 * KIB}
        self.tables["syscalls"].append(call | {"pid": JOB, "tid": JOB})
        self.tables["off_cpu"].append(
            {"ts": asleep, "dur_ns": woken - asleep, "pid": JOB, "tid": JOB, "state": "D",
             "cpu": 0, "wake_ns": woken, "waker_tid": 0, "waker_pid": 0, "interrupt": True,
             "run_delay_ns": 0, "ran_cpu": 0, "ran_tid": 0}
        )  # fmt: skip
        self.waits.append((asleep, woken, disk))

    def _request_of_others(self) -> None:
        """Draws a request of any time and length; some have the very times of a wait."""
        numbers = self.numbers
        since = numbers.randrange(MS, self.end)
        until: int | None = since + numbers.choice((1, MS, 20 * MS, 90 * MS))
        asleep, woken, _ = numbers.choice(self.waits)
        if numbers.random() < 0.3:
            since, until = numbers.choice(
                ((asleep, woken), (asleep - MS, asleep), (woken, woken + MS), (woken - 1, woken))
            )
        if numbers.random() < 0.4 or (until is not None and until > self.end):
            until = None
        dev = numbers.choice((*DISKS, *PARTS, VOLUME))
        rwbs = numbers.choice(("R", "W", "RA", "WS"))
        partial = until is None and numbers.random() < 0.3
        tid = numbers.choice((JOB, PEER, TENANT, COPY))
        self.request(tid, dev, since, until, rwbs, 8 * numbers.randrange(1, 99), partial)

    def request(
        self, tid: int, dev: str, since: int, until: int | None, rwbs: str, kib: int,
        partial: bool = False,
    ) -> str:  # fmt: skip
        """Logs a request that is queued and issued at a time; returns its disk.

        `partial`: the disk has completed half of it, and the rest has no end.
        """
        self.sector += 4096
        by = {"pid": tid, "tid": tid, "comm": COMMS[tid]}
        place = {"dev": dev, "sector": self.sector, "nr_sector": kib * KIB // SECTOR, "rwbs": rwbs}
        if dev == VOLUME:
            self._log(since, "bio_queue", by, place)
            self._log(until, "complete", by, place)
            origin = {"from_dev": dev, "from_sector": self.sector}
            place |= {"dev": BELOW, "sector": self.sector + 384}
            self._log(since, "remap", by, place | origin)
        elif dev in PARTS:
            disk, start = PARTS[dev]
            origin = {"from_dev": dev, "from_sector": self.sector}
            place |= {"dev": disk, "sector": self.sector + start}
            self._log(since, "remap", by, place | origin)
            self._log(since, "bio_queue", by, place)
        else:
            self._log(since, "bio_queue", by, place)
        self._log(since, "issue", by, place)
        if partial:
            half = place | {"nr_sector": place["nr_sector"] // 2}
            self._log(since + 1, "complete", {"pid": 0, "tid": 0}, half)
        self._log(until, "complete", {"pid": 0, "tid": 0}, place)
        disk, operation = place["dev"], "read" if rwbs[0] == "R" else "write"
        size = kib * KIB
        self.requests.append(Request(disk, operation, COMMS[tid], size, since, until))
        return disk

    def _log(self, ts: int | None, event: str, by: Row, place: Row) -> None:
        if ts is not None:
            self.tables["block"].append({"ts": ts, "event": event, **by, **place})

    def _gap(self) -> Gap:
        """Draws a loss; some begin or end with a wait or with a request."""
        numbers = self.numbers
        moments = [one.since for one in self.requests] + [
            ts for a, b, _ in self.waits for ts in (a, b)
        ]
        start = numbers.choice((numbers.randrange(MS, self.end), numbers.choice(moments)))
        end: int | None = start + numbers.choice((1, MS, 30 * MS))
        if numbers.random() < 0.1:
            end = None
        stream = numbers.choice(
            ("ftrace-machine", "ftrace-machine", "ftrace-target", "python_stacks", "files")
        )
        return Gap(stream, start, end)

    def ended(self, request: Request) -> int:
        """Returns the end of a request, or the time until which it may have lasted."""
        if request.until is not None:
            return request.until
        lost = [gap.end or self.end for gap in self.gaps if "machine" in gap.stream]
        return min((ts for ts in lost if ts >= request.since), default=self.end)

    def served(self, begin: int, end: int, disk: str) -> Served:
        """Sums up the requests of a disk that overlap a time."""
        found = Served()
        for one in self.requests:
            if one.disk == disk and one.since < end and self.ended(one) > begin:
                key = one.disk, one.operation, one.comm
                requests, size = found.get(key, (0, 0))
                found[key] = requests + 1, size + one.size
        return found


KINDS = {
    "disk": ("pread64", "read", "readv"),
    "lock": ("futex",),
    "child": ("wait4", "waitid"),
    "timer": ("clock_nanosleep", "nanosleep"),
    "sync": ("fsync", "fdatasync"),
    "fault": (),
    "cpu": ("read", "futex"),
}
"""The causes of waits, with the calls in which they happen."""


@dataclass
class Wait:
    """A wait of a thread; `dur_ns` is None if its end is not known."""

    tid: int
    ts: int
    dur_ns: int | None
    kind: str
    detail: str | None


class Waiting:
    """Threads of two jobs and of a tenant, all of which wait when the recording ends."""

    def __init__(self, seed: int) -> None:
        self.numbers = Random(seed)
        self.tables: dict[str, list[Row]] = {
            name: [] for name in ("syscalls", "off_cpu", "block", "page_faults", "loss")
        }
        self.sector, self.end = 0, 500 * MS
        self.waits: list[Wait] = []
        processes = []
        for tid, target in ((100, "train"), (101, "train"), (102, "train"), (200, "peer"),
                            (201, "peer"), (300, None)):  # fmt: skip
            pid = tid - tid % 100
            row = {"pid": pid, "tid": tid, "ppid": 1, "comm": f"t{tid}", "target": target}
            processes.append(row | {"role": "target" if target else "other"})
            self._thread(pid, tid, target is not None)
        self.tables["processes"] = processes
        for name, rows in self.tables.items():
            if name not in ("processes", "loss"):
                rows.sort(key=lambda row: row["ts"] + (row.get("dur_ns") or 0))

    def _thread(self, pid: int, tid: int, is_target: bool) -> None:
        """Lays out waits one after another; the last one, or one at a loss, has no end."""
        numbers, now = self.numbers, MS
        by = {"pid": pid, "tid": tid}
        if is_target and numbers.random() < 0.4:
            until = now + numbers.choice((1, MS))
            row = {"ts": now, "dur_ns": until - now, "state": None, "ran_tid": 0, "ran_cpu": 0}
            self.tables["off_cpu"].append(by | row)
            self.waits.append(Wait(tid, now, until - now, "other", None))
            now = until + MS
        for n in reversed(range(numbers.randrange(1, 5))):
            kind = numbers.choice(list(KINDS))
            long = numbers.choice((1000, MS, 7 * MS))
            now = self._wait(by, kind, now, long if n else None, is_target)
            now += numbers.choice((1, MS))

    def _wait(self, by: Row, kind: str, ts: int, long: int | None, is_target: bool) -> int:
        """Lays out a wait; returns its end."""
        numbers = self.numbers
        detail = None
        late = numbers.choice((0, 0, 50))
        """ns between the begin of the call, its bio, and the sleep; often they have one time."""
        asleep = ts + 2 * late
        end = None if long is None else asleep + long
        if KINDS[kind]:
            name = numbers.choice(KINDS[kind])
            call = {"ts": ts, "name": name, "dur_ns": None if end is None else end - ts}
            self.tables["syscalls"].append(by | call | {"ret": None if end is None else 1})
        if kind == "disk":
            detail = self._bios(by, ts + late, end)
        if kind == "fault":
            fault = {"ts": ts, "kind": "major", "user": True, "file": "/data/x"}
            self.tables["page_faults"].append(by | fault)
        if not is_target:
            return asleep + (long or 0)
        row = by | {"ts": asleep, "dur_ns": long, "cpu": by["tid"]}
        row["state"] = {"disk": "D", "fault": "D", "sync": "D", "cpu": "R"}.get(kind, "S")
        if end is not None:
            row |= {"ran_cpu": by["tid"], "ran_tid": 0}
            row["run_delay_ns"] = long if kind == "cpu" else 0
            if kind == "cpu":
                row["ran_tid"] = 900
            else:
                row |= {"wake_ns": end, "waker_tid": 0, "waker_pid": 0, "interrupt": True}
        self.tables["off_cpu"].append(row)
        self.waits.append(Wait(by["tid"], asleep, long, kind, detail))
        return asleep + (long or 0)

    def _bios(self, by: Row, ts: int, end: int | None) -> str:
        """Queues one read or several of a disk; returns the disk."""
        dev = self.numbers.choice((*DISKS, *PARTS, VOLUME))
        disk, start = PARTS.get(dev, (dev, 0))
        for _ in range(self.numbers.choice((1, 1, 3))):
            self.sector += 4096
            place = {"dev": disk, "sector": self.sector + start, "nr_sector": 8, "rwbs": "R"}
            self.tables["block"].append(by | place | {"ts": ts, "event": "bio_queue"})
            if dev == VOLUME:
                origin = {"from_dev": VOLUME, "from_sector": self.sector}
                lower = by | place | {"dev": BELOW, "ts": ts}
                self.tables["block"].append(lower | origin | {"event": "remap"})
                place |= {"dev": BELOW}
            self.tables["block"].append(by | place | {"ts": ts, "event": "issue"})
            if end is not None:
                done = {"pid": 0, "tid": 0, "ts": end, "event": "complete"}
                self.tables["block"].append(place | done)
        return disk
