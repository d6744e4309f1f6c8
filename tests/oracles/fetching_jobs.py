"""Jobs that train in steps, each laid out nanosecond by nanosecond.

A job lays out its steps one after another. In each fetch it either makes the batch itself or sleeps
until a worker wakes it, and the worker's time is a row of pieces, each with one cause.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.oracles.data_waits import World

Row = dict[str, Any]

MS = 1_000_000
HOG, HELPER = 90, 5
"""The thread of no target; the distance from a process's number to that of its second thread."""
OTHERS = "a timer, a network, another process"
CALLS = {
    "disk": ("read", "pread64", "readv"),
    "opening": ("openat", "open", "newfstatat", "statx", "getdents64"),
    "lock": ("futex",),
    "helper": ("futex",),
    "timer": ("clock_nanosleep", "nanosleep"),
    "network": ("recvfrom", "recvmsg"),
    "process": ("recvfrom", "read", "wait4"),
    "unknown": ("ioctl",),
    "memory": ("read", "pread64"),
}
CAUSES = {
    "run": "work", "helper": "work", "disk": "disk", "fault": "fault", "opening": "opening",
    "lock": "lock", "cpu": "cpu", "memory": "memory", "timer": OTHERS, "network": OTHERS,
    "process": OTHERS, "unknown": OTHERS,
}  # fmt: skip
"""The causes of a wait for data, by the pieces that a worker's time consists of."""


class Job:
    """A training process and its workers."""

    def __init__(self, world: World, pid: int) -> None:
        self.world, self.numbers, self.pid = world, world.numbers, pid
        self.dev = f"254:{pid // 100 - 1}"
        world.process(pid, "target", f"job{pid}")
        self.workers = [pid + 10 * (n + 1) for n in range(self.numbers.randrange(4))]
        for worker in self.workers:
            world.process(worker, "child", f"job{pid}", pid)
        kinds = list(CAUSES)
        self.kinds = self.numbers.sample(kinds, self.numbers.randrange(1, 4))
        if self.numbers.random() < 0.2:
            self.kinds = kinds
        self.elsewhere = self.numbers.choice(kinds)
        """The kind of wait outside of the waits for data."""
        self.free = dict.fromkeys(self.workers, 0)
        self.now = world.length(20)
        self.served: set[int] = set()
        """Workers that have made a batch."""
        self.counted: list[Row] = []
        self.fetch_is_inside = self.numbers.random() < 0.5
        self.step = 0

    def phase(self, name: str, start: int, end: int | None, pid: int = 0, **more: Any) -> Row:
        row = {"start": start, "end": end, "pid": pid or self.pid, "tid": pid or self.pid}
        row |= {"name": name, "source": "script"} | more
        self.world.tables["phases"].append(row)
        return row

    def piece(self, tid: int, start: int, end: int, kind: str) -> list[tuple[int, int, str]]:
        """A thread spends a time on one thing; returns the causes of its parts."""
        world, numbers = self.world, self.numbers
        if kind == "run" or not world.waits or end - start < 4:
            return [(start, end, "work")]
        if kind == "cpu":
            world.preempted(tid, start, end)
            return [(start, end, "cpu")]
        quarter = (end - start) // 4
        slept = start + numbers.choice((1, quarter))
        woken = end - numbers.choice((0, 0, quarter))
        waker = {"lock": HOG, "process": HOG, "helper": tid + HELPER}.get(kind, 0)
        deep = kind in ("disk", "opening", "fault", "memory")
        world.asleep(tid, slept, woken, end, "D" if deep else "S", waker)
        if kind in ("disk", "opening", "fault"):
            world.bios(tid, self.dev, slept, woken)
            if world.truth.crowded:
                world.bios(HOG, self.dev, slept, woken, 8000)
            if world.truth.pressed and slept - start > 2:
                world.reclaim(tid, start, slept - 1, "memcg")
        if kind == "fault":
            world.log("page_faults", tid, start, kind="major", user=True, file="/data/x")
        else:
            world.call(tid, start, end, numbers.choice(CALLS[kind]))
        if kind == "memory":
            world.reclaim(tid, slept, woken, "direct")
        return [(start, slept, "work"), (slept, woken, CAUSES[kind]), (woken, end, "cpu")]

    def pieces(self, tid: int, start: int, end: int, kinds: list[str]) -> list[Any]:
        """A thread spends a time on several things, one after another."""
        found, at = [], start
        while at < end:
            until = min(end, at + max(1, self.world.length(40)))
            found += self.piece(tid, at, until, self.numbers.choice(kinds))
            at = until
        return found

    def fetch(self, until: int, numbered: Row) -> list[tuple[int, int, str]]:
        """A fetch from now on; returns what its time is spent on."""
        world, start = self.world, self.now
        if not self.workers:
            return self.pieces(self.pid, start, until, self.kinds)
        spent, at = [], start
        while at < until:
            asked = min(until, at + world.length(5))
            spent.append((at, asked, "work"))
            got = min(until, asked + 1 + world.length(90))
            if not world.waits or got - asked < 4:
                spent.append((asked, got, "work"))
            else:
                worker = min(self.workers, key=self.free.__getitem__)
                late = self.numbers.choice((0, 0, (got - asked) // 4))
                spent += self.awaited(worker, asked, got - late)
                spent.append((got - late, got, "cpu"))
                world.asleep(self.pid, asked, got - late, got, "S", worker)
                world.call(self.pid, asked, got, self.numbers.choice(("read", "poll", "futex")))
                self.phase("fetch", self.free[worker], got - late, worker, **numbered)
                self.free[worker] = got - late
                self.served.add(worker)
            at = got
        return spent

    def awaited(self, worker: int, asked: int, got: int) -> list[tuple[int, int, str]]:
        """A worker makes a batch, perhaps since long; others go on with theirs meanwhile."""
        early = min(self.world.length(60), asked - self.free[worker])
        begun = asked - early
        if begun - self.free[worker] >= 4:  # it had nothing to do
            self.world.asleep(worker, self.free[worker], begun, begun, "S", self.pid)
            self.world.call(worker, self.free[worker], begun, "read")
        self.free[worker] = begun
        made = self.pieces(worker, begun, got, self.kinds)
        for other in self.workers:
            since = max(asked, self.free[other])
            if other != worker and since < got and self.numbers.random() < 0.5:
                self.pieces(other, since, got, [self.elsewhere])
                self.free[other] = got
        return [(max(a, asked), max(b, asked), cause) for a, b, cause in made]

    def train_step(self, counts: bool, **numbers: Any) -> None:
        """A step: its fetch, inside of it or before it, then the computing."""
        world, start = self.world, self.now
        numbered = {"step": self.step} | numbers
        until = start + world.length(150)
        spent = self.fetch(until, numbered)
        self.now = until
        self.phase("fetch", start, until, **numbered)
        if until - start > 10 and self.numbers.random() < 0.2:  # a phase that the script marks
            self.phase("decode", start + 3, until - 3, **numbered)
        begin = start
        if not self.fetch_is_inside:
            begin = self.now
            if self.numbers.random() < 0.1:  # in the step's time, but no wait for its data
                self.now += 1
                self.evaluation()
                begin = self.now
        for part in ("forward", "backward", "optimizer"):
            end = self.now + world.length(40) + 5
            self.pieces(self.pid, self.now, end, ["run", self.elsewhere])
            self.phase(part, self.now, end, **numbered)
            self.now = end
        self.phase("step", begin, self.now, **numbered)
        self.step += 1
        if counts:
            by_cause: Counter[str] = Counter()
            for a, b, cause in spent:
                by_cause[cause] += b - a
            total_ns = self.now - start
            step = {"start": start, "until": until, "spent": by_cause, "total_ns": total_ns}
            self.counted.append(step)
            world.truth.spent += by_cause
            world.truth.total_ns += total_ns

    def other_steps(self, name: str | None) -> None:
        """Steps of an evaluation, or of no stage, that wait for other things."""
        kinds, self.kinds, start = self.kinds, [self.elsewhere], self.now
        for _ in range(self.numbers.randrange(1, 3)):
            self.train_step(counts=False)
        if name:
            self.phase(name, start, self.now)
        self.kinds = kinds
        self.now += self.world.length(3) + 1

    def evaluation(self) -> None:
        """Validation steps."""
        inside, self.fetch_is_inside = self.fetch_is_inside, True
        self.other_steps("eval")
        self.fetch_is_inside = inside

    def run(self) -> None:
        """The job's life: epochs with evaluations between them, and steps in no stage."""
        world = self.world
        if self.numbers.random() < 0.2:
            self.other_steps(None)
        start = self.now
        for epoch in range(self.numbers.choice((1, 2))):
            begun = self.now
            for _ in range(self.numbers.randrange(2, 6)):
                self.train_step(counts=True, epoch=epoch)
                self.now += self.numbers.choice((0, world.length(5)))
            if not self.fetch_is_inside and self.numbers.random() < 0.5:  # it finds no batch
                end = self.now + 20 * MS
                self.pieces(self.pid, self.now, end, [self.elsewhere])
                self.phase("fetch", self.now, end, epoch=epoch)
                self.now = end
            self.phase("epoch", begun, self.now, epoch=epoch)
            self.now += 1
            if self.numbers.random() < 0.4:
                self.evaluation()
        self.phase(world.stage, start, self.now)
        self.now += 1
        if self.numbers.random() < 0.2:
            self.other_steps(None)
