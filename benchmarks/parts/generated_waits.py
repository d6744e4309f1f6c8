"""The scheduler's side of a generated trace (`generate.py`): threads that wait, and for whom.

Each step of the job begins with a poll for a worker's batch, and that worker waits for a disk or a
lock meanwhile. All threads sleep in some of their calls, at major faults, and lose their CPU
between calls. A second tenant writes and calls fsync, which waits for a commit of the journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from parts.generated_writes import (
    DISK,
    HELPER,
    INODES,
    JOB,
    JOURNAL,
    WORKERS,
    Columns,
    Ints,
    by,
    named,
)

TENANT = 1100
SHARE = 0.08
"""Share of all rows that are intervals off the CPU."""
COMMIT_NS = 50_000_000
"""Time between two fsyncs of the tenant."""

_SLEEPERS = (JOB, HELPER, *WORKERS)
_FETCH = (0.01, 0.19)
"""Part of a step in which the job waits for its batch."""
_STATES = ("R", "S", "D")
_POLL, _FSYNC, _WRITE = range(3)
_ADDED = ("poll", "fsync", "write")
_COMMIT = ("commit_start", "commit_flushing", "commit_logging", "commit_end")


def make_room(calls: Columns, at: int, step_ns: int) -> None:
    """Moves the job's calls out of the part of each step in which it waits for its batch."""
    mine = np.flatnonzero(calls["tid"] == JOB)
    since = calls["ts"][mine] - at
    calls["ts"][mine] = at + since // step_ns * step_ns + (since % step_ns * 4 + step_ns) // 5
    calls["dur_ns"][mine] = calls["dur_ns"][mine] * 4 // 5


def waits(
    rng: np.random.Generator, at: int, length: int, step_ns: int, count: int, calls: Columns
) -> Iterator[tuple[str, Columns]]:
    """Makes `count` intervals off the CPU, and the events that tell their causes.

    `calls` are the calls of the window after `make_room`, of each thread in order of time.
    """
    fetches = at + np.arange(length // step_ns) * step_ns
    commits = at + np.arange(length // COMMIT_NS) * COMMIT_NS + COMMIT_NS // 4
    yield "syscalls", _calls(fetches, commits, step_ns)
    yield from _journal(rng, commits)
    sleeps = [_of_fetches(rng, fetches, step_ns), _of_commits(commits)]
    rest = max(0, count - sum(len(one["ts"]) for one in sleeps))
    share = np.array([0.45, 0.1, 0.225, 0.225])
    faults: list[Columns] = []
    bios: list[Columns] = []
    for thread, part in zip(_SLEEPERS, share, strict=True):
        own = np.flatnonzero(calls["tid"] == thread)
        own = own[np.argsort(calls["ts"][own], kind="stable")][:-1]
        chosen = np.sort(rng.choice(len(own), min(len(own), int(rest * part)), replace=False))
        between = rng.random(len(chosen)) < 0.55
        sleeps.append(_in_calls(rng, thread, calls, own[chosen[~between]], bios))
        sleeps.append(_between(rng, thread, calls, own, chosen[between], faults))
    yield from _some(faults, "page_faults")
    yield from _some(bios, "block")
    yield from _some(sleeps, "off_cpu")


def _calls(fetches: Ints, commits: Ints, step_ns: int) -> Columns:
    ts = np.concatenate([fetches + int(_FETCH[0] * step_ns), commits, commits - 100_000])
    kind = np.repeat([_POLL, _FSYNC, _WRITE], [len(fetches), len(commits), len(commits)])
    took = np.array([int((_FETCH[1] - _FETCH[0]) * step_ns), 9_000_000, 20_000])[kind]
    tid = np.where(kind == _POLL, JOB, TENANT)
    return {
        "ts": ts,
        "cpu": np.zeros(len(ts), int),
        "pid": tid,
        "tid": tid,
        "nr": kind,
        "name": named(_ADDED, kind),
        "dur_ns": took,
        "ret": np.where(kind == _POLL, 1, 0),
    }


def _sleeps(
    tid: Ints | int, ts: Ints, took: Ints, state: Ints, waker: Ints, interrupt: Any, late: Ints
) -> Columns:
    """Makes rows of off_cpu; `late`: the part of `took` after the thread was woken."""
    n = len(ts)
    tid = np.broadcast_to(np.asarray(tid), n)
    runs = state == 0
    other = np.where(ts % 3 == 0, 0, 200 + ts % 7)
    return {
        "ts": ts,
        "dur_ns": took,
        "cpu": ts % 2,
        "pid": np.where(tid == HELPER, JOB, tid),
        "tid": tid,
        "state": named(_STATES, state),
        "next_tid": other,
        "wake_ns": pa.array(ts + took - late, mask=runs),
        "waker_pid": pa.array(waker, mask=runs),
        "waker_tid": pa.array(waker, mask=runs),
        "interrupt": pa.array(interrupt.astype(bool), mask=runs),
        "run_delay_ns": np.where(runs, took, late),
        "ran_cpu": ts % 2,
        "ran_tid": other,
    }


def _of_fetches(rng: np.random.Generator, fetches: Ints, step_ns: int) -> Columns:
    """Makes the waits of the job for its batch; a worker wakes it."""
    n = len(fetches)
    took = (rng.random(n) * 0.1 * step_ns).astype(np.int64) + step_ns // 20
    worker = np.array(WORKERS)[np.arange(n) % len(WORKERS)]
    ts = fetches + int((_FETCH[0] + 0.01) * step_ns)
    ones, none = np.ones(n, int), np.zeros(n, int)
    return _sleeps(JOB, ts, took, ones, worker, none, rng.integers(0, 9000, n))


def _of_commits(commits: Ints) -> Columns:
    """Makes the waits of the tenant for the journal's thread."""
    n = len(commits)
    took = np.full(n, 8_500_000)
    twos = np.full(n, 2)
    waker, late = np.full(n, JOURNAL), np.full(n, 3000)
    return _sleeps(TENANT, commits + 200_000, took, twos, waker, np.zeros(n, int), late)


def _in_calls(
    rng: np.random.Generator, thread: int, calls: Columns, chosen: Ints, bios: list[Columns]
) -> Columns:
    """Makes sleeps in calls; a tenth of a worker's are for reads of a disk, which it queues."""
    ts, length = calls["ts"][chosen], calls["dur_ns"][chosen]
    n = len(ts)
    reads = (rng.random(n) < 0.1) & (thread in WORKERS)
    began = ts + length // 4 + 1
    took = np.maximum(length // 2, 1)
    others = np.array([one for one in _SLEEPERS if one != thread])
    waker = np.where(reads, 0, others[rng.integers(0, len(others), n)])
    late = np.minimum(took // 3, rng.integers(0, 5000, n))
    bios.append(_requests(rng, thread, began[reads] - 1, "R"))
    return _sleeps(thread, began, took, np.where(reads, 2, 1), waker, reads, late)


def _between(
    rng: np.random.Generator,
    thread: int,
    calls: Columns,
    own: Ints,
    chosen: Ints,
    faults: list[Columns],
) -> Columns:
    """Makes waits for a CPU between calls, and a few for a page at a major fault."""
    ended = calls["ts"][own[chosen]] + calls["dur_ns"][own[chosen]]
    following = np.append(calls["ts"], 1 << 62)[np.append(own, len(calls["ts"]))[chosen + 1]]
    room = np.clip(following - ended, 8, 50_000)
    n = len(ended)
    at_fault = rng.random(n) < 0.02
    took = np.maximum((room * (0.1 + 0.5 * rng.random(n))).astype(np.int64), 1)
    began = ended + room // 4 + 2
    ts = began[at_fault] - 1
    zeros = np.zeros(len(ts), int)
    faults.append(
        {
            **by(thread, ts),
            "address": ts,
            "kind": named(("major",), zeros),
            "access": named(("read",), zeros),
            "user": np.ones(len(ts), bool),
            "file": named([f"/usr/lib/lib{number}.so" for number in range(9)], ts % 9),
        }
    )
    none = np.zeros(n, int)
    return _sleeps(thread, began, took, np.where(at_fault, 2, 0), none, at_fault, took // 8)


def _journal(rng: np.random.Generator, commits: Ints) -> Iterator[tuple[str, Columns]]:
    """Makes the commits: data of files, blocks of the journal, and the record."""
    n = len(commits)
    marks = commits[:, None] + np.array([50_000, 300_000, 3_000_000, 8_600_000])
    yield (
        "journal",
        {
            **by(JOURNAL, marks.ravel()),
            "event": named(_COMMIT, np.arange(4 * n) % 4),
            "dev": named((DISK,), np.zeros(4 * n, int)),
        },
    )
    edges = (commits[:, None] + np.array([320_000, 900_000])).ravel()
    yield (
        "file_writes",
        {
            **by(JOURNAL, edges),
            "event": named(("writepages_start", "writepages_end"), np.arange(2 * n) % 2),
            "dev": named((DISK,), np.zeros(2 * n, int)),
            "ino": np.repeat(rng.integers(1, INODES, n), 2),
            "offset": np.zeros(2 * n, int),
            "last": np.full(2 * n, (1 << 63) - 1),
            "nr_to_write": np.full(2 * n, 1024),
            "sync_mode": np.ones(2 * n, int),
        },
    )
    data = (commits[:, None] + np.array([400_000, 500_000])).ravel()
    log = (commits[:, None] + np.array([3_100_000, 3_200_000])).ravel()
    dirtied = (commits[:, None] - np.array([80_000, 70_000])).ravel()
    yield (
        "dirty",
        {
            **by(TENANT, dirtied),
            "event": named(("mark_inode_dirty", "dirty_folio"), np.arange(2 * n) % 2),
            "dev": named((DISK,), np.zeros(2 * n, int)),
            "ino": np.repeat(rng.integers(1, INODES, n), 2),
            "index": np.arange(2 * n) % 100,
            "flags": np.full(2 * n, 4),
        },
    )
    parts = [
        _requests(rng, JOURNAL, data, "W"),
        _requests(rng, JOURNAL, log, "WS"),
        _requests(rng, JOURNAL, commits + 5_000_000, "FWFS"),
    ]
    yield from _some(parts, "block")


def _requests(rng: np.random.Generator, thread: int, queued: Ints, rwbs: str) -> Columns:
    """Makes the queue, issue and complete events of bios of a thread."""
    n = len(queued)
    issued = queued + rng.integers(1000, 20_000, n)
    done = issued + (2e5 * rng.lognormal(0, 0.5, n)).astype(np.int64)
    of = np.tile(np.arange(n), 3)
    zeros = np.zeros(3 * n, int)
    return {
        **by(thread, np.concatenate([queued, issued, done])),
        "comm": named(("jbd2/vda1-8" if thread == JOURNAL else "python",), zeros),
        "event": named(("bio_queue", "issue", "complete"), np.repeat(range(3), n)),
        "dev": named((DISK,), zeros),
        "sector": ((1 << 26) + rng.integers(0, 1 << 22, n) * 8)[of],
        "nr_sector": (rng.integers(1, 32, n) * 8)[of],
        "rwbs": named((rwbs,), zeros),
        "error": zeros,
    }


def _some(parts: Sequence[Columns], table: str) -> Iterator[tuple[str, Columns]]:
    """Yields the parts of a table that have rows."""
    for part in parts:
        if len(part["ts"]):
            yield table, part
