"""Waits while a CPU quota is used up, worked out naively from intervals and samples.

It is written from docs/explain.md (Waits, Limits) and docs/samples.md, not from the code.
"""

from __future__ import annotations

import random
from typing import Any

Row = dict[str, Any]
MS = 10**6
PERIOD, QUOTA = 100 * MS, 30 * MS
WINDOW = 500 * MS
"""Time between two samples."""
WINDOWS = 8
MAIN, WORKER, TENANT, STRANGER = 100, 101, 200, 300
LEAST = MS
"""A part of a wait for a CPU that another thread has, in which no thread of the target runs."""
SERIES = (
    "cgroup_nr_throttled",
    "cgroup_throttle_rate",
    "cgroup_throttled_time",
    "cgroup_throttled",
)


class Job:
    """A job of two threads, each on a CPU of its own, whose quota is used up in some windows.

    In such a window each thread runs for `QUOTA`, and waits until its period is over; the CPU is
    idle meanwhile, or a stranger's. In other windows the threads sleep, and wait for strangers.
    `throttled` is the true throttled time of each thread, `waited` all of its time without a CPU.
    """

    def __init__(self, seed: int) -> None:
        self.numbers = random.Random(seed)
        self.off_cpu: list[Row] = []
        self.samples: list[Row] = []
        self.throttled: dict[int, int] = {MAIN: 0, WORKER: 0}
        self.waited: dict[int, int] = {MAIN: 0, WORKER: 0, TENANT: 0}
        total = periods = 0
        self.sample("a", 0, 0, 0, 0)
        self.sample("b", 0, 0, 0, 0)
        for window in range(WINDOWS):
            used_up = self.numbers.random() < 0.5
            before = sum(self.throttled.values())
            for number in range(WINDOW // PERIOD):
                begin = window * WINDOW + number * PERIOD
                self.tenant(begin)
                for tid in (MAIN, WORKER):
                    (self.without_quota if used_up else self.within)(tid, begin)
            more = sum(self.throttled.values()) - before
            total += more + (MS if used_up else 0)  # the kernel rounds
            periods += WINDOW // PERIOD if used_up else 0
            self.sample("a", (window + 1) * WINDOW, total, periods, more)
            self.sample("b", (window + 1) * WINDOW, 0, 0, 0)
        self.off_cpu.sort(key=lambda row: row["ts"] + row["dur_ns"])

    def off(self, tid: int, ts: int, length: int, state: str, delay: int, ran_tid: int) -> None:
        """An interval off the CPU, with the time at its end in which the thread could run."""
        pid = MAIN if tid == WORKER else tid
        cpu = 1 if tid == WORKER else 0
        row = {"ts": ts, "dur_ns": length, "pid": pid, "tid": tid, "state": state, "cpu": cpu}
        row |= {"run_delay_ns": delay, "ran_tid": ran_tid, "ran_cpu": cpu}
        if state == "S":
            row |= {"wake_ns": ts + length - delay, "waker_tid": 0, "interrupt": True}
        self.off_cpu.append(row)
        self.waited[tid] += delay

    def without_quota(self, tid: int, begin: int) -> None:
        """A period in which the quota is used up. A sleep may end after that."""
        length = PERIOD - QUOTA
        if self.numbers.random() < 0.3:
            slept = self.numbers.randrange(1, 20) * MS
            delay = length - slept
            self.off(tid, begin + QUOTA, length, "S", delay, self.numbers.choice([0, STRANGER]))
            self.throttled[tid] += delay
            return
        self.off(tid, begin + QUOTA, length, "R+", length, self.numbers.choice([0, STRANGER]))
        self.throttled[tid] += length

    def within(self, tid: int, begin: int) -> None:
        """A period with a sleep, and waits for a CPU that have nothing to do with a quota."""
        slept, delay = self.numbers.randrange(1, 30) * MS, self.numbers.randrange(5) * MS
        self.off(
            tid, begin + 10 * MS, slept + delay, "S", delay, self.numbers.choice([0, STRANGER])
        )
        delay = self.numbers.randrange(1, 20) * MS
        self.off(tid, begin + 60 * MS, delay, "R+", delay, STRANGER)

    def tenant(self, begin: int) -> None:
        """Another job without a quota waits at the same times."""
        self.off(TENANT, begin + QUOTA, PERIOD - QUOTA, "R+", PERIOD - QUOTA, STRANGER)

    def sample(self, target: str, ts: int, total: int, periods: int, more: int) -> None:
        """Adds a sample of a cgroup: throttled for `more` ns since the sample before."""
        rate = 0.0 if not more else WINDOW / PERIOD / (WINDOW / 1e9)
        values = (periods, rate, total / 1e9, 100 * more / WINDOW)
        for name, value in zip(SERIES, values, strict=True):
            if ts or not name.endswith(("rate", "throttled")) or name == "cgroup_nr_throttled":
                row = {"ts": ts, "target": target, "instance": f"/{target}", "name": name}
                self.samples.append(row | {"value": float(value)})


def parts_without(begin: int, end: int, running: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of a time in which none of these intervals lies, and that last long enough."""
    found, at = [], begin
    for start, stop in sorted(running):
        if start > at:
            found.append((at, min(start, end)))
        at = max(at, stop)
    found.append((at, end))
    return [(start, stop) for start, stop in found if min(stop, end) - start >= LEAST]


def longest(lengths: list[int], told: int) -> list[int]:
    """The longest of the lengths that are no longer together than what the samples tell."""
    kept: list[int] = []
    for length in sorted(lengths, reverse=True):
        if sum(kept) + length > told:
            break
        kept.append(length)
    return kept
