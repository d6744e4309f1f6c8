"""Waits for sockets, locks of files, FIFOs and libaio, drawn at random with their causes.

It is written from docs/explain.md, not from the views' code. The threads of a case sleep in calls
whose cause is drawn first; the tables tell what the kernel would log of it. Peers run all the time,
so an interrupt may come in their calls.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.oracles.new_waits import EITHER, GAPS, NO_GAPS, Sleep

Row = dict[str, Any]
NUMBERS = 20
"""Thread numbers in each case; the first case's are from NUMBERS on."""
LENGTH = 2500
"""Time, in ns, in which the calls of a case begin."""
SPACE = 10_000
"""Time from the begin of a case to that of the next one."""
TABLES = ("processes", "syscalls", "off_cpu", "block", "loss")
MAIN, PEER, OTHER, ENDED, THIRD, STRANGER, KWORKER, KSOFTIRQD = 0, 1, 4, 5, 6, 8, 9, 10
"""Threads of a case: two jobs that sleep, their peers, nobody's process, and kernel threads."""
PEERS = (PEER, ENDED, THIRD)
SENDING = (
    *("sendto", "sendmsg", "sendmmsg", "write", "writev", "connect", "close", "shutdown"),
    "sendfile",
)
RECEIVING = ("recvfrom", "recvmsg", "read", "recvmmsg", "readv")
NEITHER = ("getpid", "futex", "pwrite64", "pread64", "fsync", "openat", "ioctl")
WAITS_TO_RECEIVE = ("recvfrom", "recvmsg", "read", "poll", "epoll_wait", "accept4", "select")
WAITS_TO_SEND = ("sendto", "sendmsg", "write", "connect")
IDLE = 0
IDLE_CPU = -1
"""The context of an interrupt on an idle CPU."""


@dataclass(frozen=True)
class Cause:
    """A reason to sleep: what the tables tell of it, and what the view should."""

    calls: tuple[str, ...]
    kind: tuple[str, ...]
    certainty: str
    """Certainty of a sleep that a thread ended; `EITHER`: the documentation is silent."""
    interrupted: str = EITHER
    """The same of one that an interrupt ended, which names nobody."""
    state: str = "S"
    ret: int = 1
    queues: str | None = None
    """Flags of the bio that the thread queues in the call, before it sleeps."""
    by: tuple[str, ...] = ("thread", "interrupt", "unknown", "nobody")


CAUSES = {
    "receive": Cause(WAITS_TO_RECEIVE, ("ipc",), "exact"),
    "send": Cause(WAITS_TO_SEND, ("ipc",), "exact"),
    "time limit": Cause(
        ("poll", "epoll_wait", "select"), ("timer",), "", "exact", ret=0, by=("interrupt",)
    ),
    "nanosleep": Cause(("clock_nanosleep",), ("timer",), "", "exact", ret=0, by=("interrupt",)),
    "futex": Cause(("futex",), ("lock",), "exact", "inferred"),
    "flock": Cause(("flock",), ("lock",), "exact"),
    "fcntl": Cause(("fcntl",), ("lock",), "inferred", "inferred"),
    "kernel's lock": Cause(("flock", "fcntl"), ("lock",), EITHER, state="D", by=("user",)),
    "fifo": Cause(("open", "openat"), ("ipc",), "inferred", by=("user",)),
    "libaio": Cause(("io_getevents",), ("disk",), "inferred", "inferred"),
    "libaio's time limit": Cause(
        ("io_getevents",), ("timer",), "", "exact", ret=0, by=("interrupt",)
    ),
    "io_uring": Cause(
        ("io_uring_enter",), ("disk",), "", "inferred", queues="R", by=("interrupt",)
    ),
    "read": Cause(
        ("read", "pread64", "openat"), ("disk",), "exact", "exact", state="D", queues="RA",
        by=("interrupt", "kworker"),
    ),
    "child": Cause(("wait4", "waitid"), ("child",), EITHER, by=("user",)),
}  # fmt: skip


class Case:
    """Two jobs that sleep, and peers of theirs that send, receive and end."""

    def __init__(self, case: int, numbers: random.Random) -> None:
        self.numbers, self.base, self.begin = numbers, NUMBERS * (case + 1), SPACE * (case + 1)
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.sleeps: list[Sleep] = []
        self.tells_interrupts = numbers.random() < 0.8
        self.disks = [f"8:{32 * case}", f"8:{32 * case + 16}"]
        self.gone = self.begin + numbers.randrange(LENGTH // 3, LENGTH)
        """The time at which the peer ENDED has ended."""

    def run(self) -> None:
        for at, role, target, start, end in (
            (MAIN, "target", "a", None, None), (OTHER, "target", "b", None, None),
            (ENDED, "child", "b", None, self.gone), (THIRD, "target", "a", None, None),
            (ENDED, "other", None, self.gone + 10, None), (STRANGER, "other", None, None, None),
            (KWORKER, "other", None, None, None), (KSOFTIRQD, "other", None, None, None),
        ):  # fmt: skip
            number, kernel = self.base + at, at in (KWORKER, KSOFTIRQD)
            row = {"pid": number, "tid": number, "ppid": 2 if kernel else 1, "role": role}
            row |= {"target": target, "start_ns": start, "end_ns": end}
            row |= {"comm": f"c{number}{role}", "container_id": f"{at}" * 64 if target else None}
            self.tables["processes"].append(row)
        second = self.tables["processes"][0] | {"tid": self.base + PEER}
        self.tables["processes"].append(second | {"comm": f"c{self.base}pin"})
        for _ in range(self.numbers.choice([0, 2, 5, 10])):
            self.lose()
        for at in PEERS:
            self.peer(at)
        for at in (MAIN, OTHER):
            self.job(at)

    def lose(self) -> None:
        """A gap: of events of the targets or of the machine, on a CPU or not, or of no events."""
        since = self.begin + self.numbers.randrange(LENGTH)
        row = {"stream": self.numbers.choice(GAPS + GAPS + NO_GAPS), "from": since}
        row |= {"to": since + self.numbers.choice([0, 5, 40]), "cause": "overrun"}
        row |= {"cpu": self.numbers.choice([-1, 0, 1]), "count": self.numbers.choice([None, 1, 9])}
        self.tables["loss"].append(row)

    def process_of(self, at: int) -> int:
        return self.base + (MAIN if at == PEER else at)

    def call(self, at: int, name: str, ts: int, dur: int | None, ret: int = 1) -> Row:
        row = {"ts": ts, "tid": self.base + at, "pid": self.process_of(at), "name": name}
        row |= {"dur_ns": dur, "ret": None if dur is None else ret}
        if name == "fcntl":
            row["flags"] = self.numbers.choice([7, 38])  # F_SETLKW, F_OFD_SETLKW
        self.tables["syscalls"].append(row)
        return row

    def bio(self, at: int, ts: int, rwbs: str, disk: int) -> None:
        row = {"ts": ts, "tid": self.base + at, "pid": self.process_of(at), "event": "bio_queue"}
        row |= {"dev": self.disks[disk], "sector": 8 * self.numbers.randrange(99)}
        self.tables["block"].append(row | {"nr_sector": 8, "rwbs": rwbs})

    def peer(self, at: int) -> None:
        """A thread that runs all the time: its calls, the last of which may be its exit."""
        numbers, now = self.numbers, self.begin
        last = self.gone - 40 if at == ENDED else self.begin + LENGTH
        while True:
            now += numbers.choice([1, 5, 40])
            names = numbers.choice([SENDING, SENDING, RECEIVING, NEITHER])
            took = numbers.choice([1, 10, 60, 100])
            if now + took >= last:
                break
            self.call(at, numbers.choice(names), now, took)
            now += took
        if at == ENDED:
            self.call(at, numbers.choice(["exit", "exit_group"]), self.gone - 30, None)

    # The jobs

    def job(self, at: int) -> None:
        """A thread's calls one after the other, and its sleeps in them."""
        numbers, now = self.numbers, self.begin
        while now < self.begin + LENGTH:
            now += numbers.choice([1, 2, 30])
            if numbers.random() < 0.15:  # it computes, and others take its turn
                now = self.preempted(at, None, now)
                continue
            title = numbers.choice(list(CAUSES))
            if title == "io_uring" and not self.tells_interrupts:
                continue
            cause = CAUSES[title]
            name, begun = numbers.choice(cause.calls), now
            if numbers.random() < 0.2:  # a read that it queued before the call, and a write
                self.bio(at, now - 1, "R", numbers.randrange(2))
                self.bio(at, now, "W", numbers.randrange(2))
            if title in ("io_uring", "libaio") and numbers.random() < 0.2:
                now = self.preempted(at, name, now + 1)
            drawn, disk = len(self.sleeps), numbers.randrange(2)
            if name in ("open", "openat") and title == "fifo" and numbers.random() < 0.4:
                now = self.asleep(at, "openat", CAUSES["read"], now + 1, disk)
            for _ in range(1 if cause.ret == 0 else numbers.choice([1, 1, 2])):
                now += numbers.choice([1, 1, 90])
                now = self.asleep(at, title, cause, now, disk)
            now += numbers.choice([1, 2, 10])
            # A time limit is known by what the call returns.
            lost = numbers.random() < (0.9 if self.in_a_gap(begun, now) else 0.2)
            took = None if lost and cause.ret else now - begun
            call = self.call(at, name, begun, took, cause.ret)
            for sleep in self.sleeps[drawn:]:
                sleep.call = call
        last = self.tables["off_cpu"][-1]
        if numbers.random() < 0.3 and last["tid"] == self.base + at:
            self.sleeps[-1].row = self.tables["off_cpu"][-1] = self.without_end(last)

    def asleep(self, at: int, title: str, cause: Cause, now: int, disk: int) -> int:
        """A sleep for this cause from about now on; returns when the thread runs again."""
        numbers = self.numbers
        if cause.queues:
            self.bio(at, now, cause.queues, disk)
            now += numbers.choice([1, 5])
        elif numbers.random() < 0.3:
            self.bio(PEER, now, "R", disk)  # somebody else's read, at the same time
        end = now + numbers.choice([0, 1, 20, 60, 150])
        waker, interrupt = self.waker(cause, at)
        if interrupt and waker in PEERS and numbers.random() < 0.8:
            end = self.within_a_call(waker, now, end)
        delay = numbers.choice([0, 0, 1, 20])
        row = self.off(at, now, end + delay, cause.state)
        if waker is None:  # its waking was lost
            end, delay = end + delay, 0
        else:
            number = IDLE if waker == IDLE_CPU else self.base + waker
            row |= {"wake_ns": end, "waker_tid": number, "run_delay_ns": delay}
            row |= {"waker_pid": number if number == IDLE else self.process_of(waker)}
            row |= {"interrupt": interrupt if self.tells_interrupts else None}
        if self.in_a_gap(now, end + delay):
            row = self.without_end(row)
        self.tables["off_cpu"].append(row)
        device = self.disks[disk] if cause.queues else None
        self.sleeps.append(Sleep(row, title, cause.kind, cause, device))
        return end + delay

    def waker(self, cause: Cause, at: int) -> tuple[int | None, bool]:
        """Returns who ends a sleep, and whether by an interrupt."""
        users = [one for one in (MAIN, OTHER, *PEERS, STRANGER) if one != at]
        match self.numbers.choice(cause.by):
            case "thread":
                return self.numbers.choice([*users, KWORKER]), False
            case "user":
                return self.numbers.choice(users), False
            case "kworker":
                return KWORKER, False
            case "interrupt":
                contexts = (*PEERS, *PEERS, STRANGER, KWORKER, KSOFTIRQD, IDLE_CPU)
                return self.numbers.choice(contexts), True
        return None, False

    def within_a_call(self, at: int, now: int, end: int) -> int:
        """Returns a time in a call of a thread soon after now; else the end."""
        calls = [
            row
            for row in self.tables["syscalls"]
            if row["tid"] == self.base + at and now <= row["ts"] < now + 200
        ]
        if not calls:
            return end
        call = self.numbers.choice(calls)
        took = call["dur_ns"] or 39  # an exit lasts beyond its event
        return int(call["ts"]) + self.numbers.choice([0, 1, took // 2, took - 1, took])

    def preempted(self, at: int, name: str | None, now: int) -> int:
        """A time in which others have the CPU, though the thread could run."""
        end = now + self.numbers.choice([1, 20, 60])
        row = self.off(at, now, end, self.numbers.choice(["R", "R+"]))
        row["run_delay_ns"] = row["dur_ns"]
        if self.in_a_gap(now, end):
            row = self.without_end(row)
        self.tables["off_cpu"].append(row)
        self.sleeps.append(Sleep(row, f"R, {name}", ("cpu",), None, None))
        return end + 1

    def off(self, at: int, begin: int, end: int, state: str) -> Row:
        numbers = self.numbers
        had = numbers.choice([None, IDLE, self.base + STRANGER, self.base + MAIN, self.base + PEER])
        return {
            "ts": begin, "dur_ns": end - begin, "pid": self.process_of(at), "tid": self.base + at,
            "state": state, "wake_ns": None, "waker_tid": None, "interrupt": None,
            "run_delay_ns": None, "cpu": numbers.randrange(2), "ran_cpu": numbers.randrange(2),
            "ran_tid": None if had == self.base + at else had,
        }  # fmt: skip

    def without_end(self, row: Row) -> Row:
        unknown = ("dur_ns", "wake_ns", "waker_tid", "waker_pid", "interrupt", "run_delay_ns")
        return row | dict.fromkeys((*unknown, "ran_cpu", "ran_tid"))

    def in_a_gap(self, begin: int, end: int) -> bool:
        return any(
            row["from"] <= end and begin <= row["to"] and row["stream"] in GAPS
            for row in self.tables["loss"]
        )
