"""Write-back, bios and requests of a generated trace (`generate.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DISK = "254:0"
JOB, HELPER, KWORKER, JOURNAL = 1000, 1001, 50, 60
WORKERS = (1010, 1011)
INODES, FILES, SYMBOLS = 300, 30, 500
Ints = NDArray[np.int64]
Columns = dict[str, Any]


def named(names: Sequence[str], codes: Ints) -> pa.DictionaryArray:
    """Returns the name of each code."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names))


def writes(
    rng: np.random.Generator, at: int, length: int, brackets: int, calls: Columns, fsync: int
) -> Iterator[tuple[str, Columns]]:
    """Makes write-back: a bracket of the flusher has three inodes with four bios.

    There are two more bios: a worker's read in one of its calls, and the job's write in an fsync,
    the call number `fsync`.
    """
    brackets = max(1, brackets)
    room = length // brackets
    begun = at + np.arange(brackets) * room
    share = room // 20
    reason = rng.choice(3, brackets, p=(0.75, 0.15, 0.1))
    yield (
        "writeback",
        {
            **by(KWORKER, np.stack([begun, begun + 18 * share], 1).ravel()),
            "event": named(("start", "written"), np.arange(2 * brackets) % 2),
            "reason": named(("periodic", "background", "sync"), np.repeat(reason, 2)),
            "bdi": named((DISK,), np.zeros(2 * brackets, int)),
            "dev": named((DISK,), np.zeros(2 * brackets, int)),
            "nr_pages": rng.integers(0, 4096, 2 * brackets),
            "sync_mode": np.repeat((reason == 2).astype(int), 2),
        },
    )
    inode = (begun[:, None] + np.array([1, 6, 11]) * share).ravel()
    numbers = np.repeat(rng.integers(1, INODES, len(inode)), 2)
    edges = np.stack([inode, inode + 5 * share], 1).ravel()
    yield (
        "inode_writeback",
        {
            **by(KWORKER, edges),
            "event": named(("start", "end"), np.arange(len(edges)) % 2),
            "dev": named((DISK,), np.zeros(len(edges), int)),
            "ino": numbers,
            "age": rng.integers(0, 30 * 10**9, len(edges)),
            "state": np.tile([4, 0], len(inode)),
        },
    )
    edges = np.stack([inode + share // 2, inode + 4 * share], 1).ravel()
    yield (
        "file_writes",
        {
            **by(KWORKER, edges),
            "event": named(("writepages_start", "writepages_end"), np.arange(len(edges)) % 2),
            "dev": named((DISK,), np.zeros(len(edges), int)),
            "ino": numbers,
            "offset": np.zeros(len(edges), int),
            "last": np.full(len(edges), (1 << 63) - 1),
            "nr_to_write": np.full(len(edges), 1024),
            "sync_mode": np.zeros(len(edges), int),
        },
    )
    written = (begun[:, None] + np.array([2, 3, 7, 12]) * share).ravel()
    inside = []
    for chosen in (calls["tid"] == WORKERS[0], (calls["tid"] == JOB) & (calls["nr"] == fsync)):
        call = rng.choice(np.flatnonzero(chosen), brackets)
        inside.append(calls["ts"][call] + calls["dur_ns"][call] // 2)
    queued = np.concatenate([written, *inside])
    tid = np.repeat([KWORKER, WORKERS[0], JOB], [len(written), brackets, brackets])
    yield "block", _block(rng, queued, tid)


def by(tid: int, ts: Ints) -> Columns:
    """Returns the columns that all events of a thread have."""
    same = np.full(len(ts), tid)
    return {"ts": ts, "cpu": np.zeros(len(ts), int), "pid": same, "tid": same}


def _block(rng: np.random.Generator, queued: Ints, tid: Ints) -> Columns:
    """Makes the queue, insert, issue and complete events of each bio, in order of time."""
    n = len(queued)
    issued = queued + 10_000 + rng.integers(0, 50_000, n)
    done = issued + (1e5 * rng.lognormal(0, 0.7, n)).astype(np.int64)
    ts = np.concatenate([queued, queued + 5_000, issued, done])
    order = np.argsort(ts, kind="stable")
    of = np.tile(np.arange(n), 4)[order]
    sector = rng.integers(0, 1 << 22, n) * 8
    who = np.searchsorted([KWORKER, JOB, WORKERS[0]], tid[of])
    return {
        "ts": ts[order],
        "cpu": rng.integers(0, 2, 4 * n),
        "pid": tid[of],
        "tid": tid[of],
        "comm": named(("kworker/u8:1", "python", "python"), who),
        "event": named(("bio_queue", "insert", "issue", "complete"), np.repeat(range(4), n)[order]),
        "dev": named((DISK,), np.zeros(4 * n, int)),
        "sector": sector[of],
        "nr_sector": (rng.integers(1, 32, n) * 8)[of],
        "rwbs": named(("W", "WS", "R"), who),
        "error": np.zeros(4 * n, int),
    }
