"""A generator of traces of any number of events, from a seed, for benchmarks of analysis.

The mix is that of fixtures/lenet.trace and of longer trainings: mostly system calls, then page
faults; steps of 250 events, each marked; a flusher that writes in brackets, inode by inode;
requests queued, issued and completed; samples; a few losses. It holds 20 s of events in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.catalogue import TABLES
from tracer.probes.loss import TABLE as LOSS
from tracer.probes.schema import Table
from tracer.store import manifest as manifests
from tracer.store.files import make_folder
from tracer.store.tables import TableWriter, batch_of, write_table

RATE = 50_000
"""Events per second: rows of all tables."""
STEP = 250
"""Events per step."""
WINDOW = 1_000_000
SHARES = {
    "page_faults": 0.16,
    "dirty": 0.03,
    "buffers": 0.03,
    "phases": 4 / STEP,
    "block": 0.012,
    "file_writes": 0.003,
    "inode_writeback": 0.003,
    "samples": 0.002,
    "writeback": 0.001,
}
"""Shares of all rows; system calls are the rest."""

DISK = "254:0"
JOB, HELPER, KWORKER, JOURNAL = 1000, 1001, 50, 60
WORKERS = (1010, 1011)
_START = 10**12
_CALLS = {
    # name: (share, median ns)
    "read": (0.24, 9975),
    "write": (0.14, 3866),
    "close": (0.12, 791),
    "futex": (0.12, 8333),
    "pread64": (0.11, 1462),
    "newfstatat": (0.06, 1493),
    "fcntl": (0.04, 951),
    "getsockname": (0.04, 911),
    "fstat": (0.04, 831),
    "munmap": (0.03, 7256),
    "mmap": (0.03, 7491),
    "ioctl": (0.02, 831),
    "getpid": (0.009, 611),
    "fsync": (0.001, 20000),
}
_SERIES = ("cpu_use", "memory_used", "page_cache", "dirty", "writeback", "free", "read_bytes",
           "written_bytes", "major_faults", "minor_faults")  # fmt: skip
_INODES, _FILES, _SYMBOLS = 300, 30, 500

Ints = NDArray[np.int64]
Columns = dict[str, Any]


def generate(folder: Path, events: int, seed: int = 23) -> dict[str, int]:
    """Writes a trace of `events` rows; returns the rows of each table."""
    make_folder(folder)
    make_folder(folder / "events")
    names = ("syscalls", *SHARES)
    writers = {name: TableWriter(TABLES[name], folder / "events") for name in names}
    writers["phases"].add(_batch(TABLES["phases"], _outer_phases(events)))
    at = _START
    for number, size in enumerate(_windows(events)):
        rng = np.random.default_rng([seed, number])
        length = size * 10**9 // RATE
        for name, columns in _window(rng, at, length, size):
            writers[name].add(_batch(TABLES[name], columns))
        at += length
    for writer in writers.values():
        writer.close()
    rows = {name: writer.rows for name, writer in writers.items()}
    rows["processes"] = write_table(
        TABLES["processes"], folder / "events", _batch(TABLES["processes"], _processes())
    )
    write_table(LOSS, folder, batch_of(LOSS, _losses(at)))
    manifests.write(folder, _manifest(at, rows))
    return rows


def _windows(events: int) -> Iterator[int]:
    while events > 0:
        yield min(WINDOW, events)
        events -= WINDOW


def _window(
    rng: np.random.Generator, at: int, length: int, size: int
) -> Iterator[tuple[str, Columns]]:
    """Returns the columns of each table for a window of time, each table in its own order."""
    count = {name: int(size * share) for name, share in SHARES.items()}
    calls = _syscalls(rng, at, length, size - sum(count.values()))
    yield "syscalls", calls
    yield "page_faults", _page_faults(rng, _times(rng, at, length, count["page_faults"]))
    yield "dirty", _dirty(rng, _times(rng, at, length, count["dirty"]))
    ts = _times(rng, at, length, count["buffers"])
    yield (
        "buffers",
        {
            **_context(rng, ts, (JOB, *WORKERS, JOURNAL)),
            "event": _of(("dirty_buffer", "touch_buffer"), rng.integers(0, 2, len(ts))),
            "dev": _of((DISK,), np.zeros(len(ts), int)),
            "sector": rng.integers(0, 1 << 26, len(ts)),
            "size": np.full(len(ts), 4096),
        },
    )
    yield "phases", _phases(at, length, size)
    yield from _writes(rng, at, length, count["writeback"] // 2, calls)
    ts = np.repeat(_times(rng, at, length, count["samples"] // len(_SERIES)), len(_SERIES))
    yield (
        "samples",
        {
            "ts": ts,
            "name": _of(_SERIES, np.arange(len(ts)) % len(_SERIES)),
            "value": rng.random(len(ts)) * 1e9,
            "unit": _of(("bytes",), np.zeros(len(ts), int)),
        },
    )


def _times(rng: np.random.Generator, at: int, length: int, count: int) -> Ints:
    return at + np.sort(rng.integers(0, length, count))


def _of(names: Sequence[str], codes: Ints) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names))


def _context(rng: np.random.Generator, ts: Ints, threads: Sequence[int]) -> Columns:
    tid = np.array(threads)[rng.integers(0, len(threads), len(ts))]
    pid = np.where(tid == HELPER, JOB, tid)
    return {"ts": ts, "cpu": rng.integers(0, 2, len(ts)), "pid": pid, "tid": tid}


def _syscalls(rng: np.random.Generator, at: int, length: int, count: int) -> Columns:
    """Makes successive calls of each thread, in the order of their ends."""
    parts = []
    shares = {JOB: 0.5, HELPER: 0.1, WORKERS[0]: 0.2, WORKERS[1]: 0.2}
    names, of = list(_CALLS), np.array([share for share, _ in _CALLS.values()])
    medians = np.array([median for _, median in _CALLS.values()])
    for thread, share in shares.items():
        n = max(1, int(count * share))
        room = length / n
        ts = at + ((np.arange(n) + 0.3 * rng.random(n)) * room).astype(np.int64)
        name = rng.choice(len(names), n, p=of / of.sum())
        took = np.minimum(medians[name] * rng.lognormal(0, 1, n), 0.6 * room).astype(np.int64)
        parts.append((ts, np.full(n, thread), name, took))
    ts, tid, name, took = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(ts + took, kind="stable")
    ts, tid, name, took = ts[order], tid[order], name[order], took[order]
    failed = rng.random(len(ts)) < 0.02
    return {
        "ts": ts,
        "cpu": rng.integers(0, 2, len(ts)),
        "pid": np.where(tid == HELPER, JOB, tid),
        "tid": tid,
        "nr": name,
        "name": _of(names, name),
        "dur_ns": took,
        "ret": np.where(failed, -11, rng.integers(0, 4096, len(ts))),
    }


def _page_faults(rng: np.random.Generator, ts: Ints) -> Columns:
    n = len(ts)
    file = rng.integers(0, _FILES, n)
    symbol = rng.integers(0, _SYMBOLS, n)
    files = [f"/usr/lib/lib{number}.so" for number in range(_FILES)]
    return {
        **_context(rng, ts, (JOB, HELPER, *WORKERS)),
        "address": (rng.integers(0, 1 << 22, n) << 12) + (1 << 46),
        "ip": (1 << 46) + symbol * 4096,
        "kind": _of(("minor", "major"), (rng.random(n) < 0.01).astype(int)),
        "access": _of(("write", "read", "exec"), rng.choice(3, n, p=(0.92, 0.05, 0.03))),
        "user": rng.random(n) < 0.97,
        "file": _of(files, file),
        "file_offset": rng.integers(0, 1 << 16, n) << 12,
        "ip_file": _of(files, symbol % _FILES),
        "symbol": _of([f"function_{number}" for number in range(_SYMBOLS)], symbol),
    }


def _dirty(rng: np.random.Generator, ts: Ints) -> Columns:
    kind = rng.choice(3, len(ts), p=(0.9, 0.09, 0.01))
    none = pa.scalar(None, pa.int64())
    paused = pa.array(np.where(rng.random(len(ts)) < 0.1, 4_000_000, 0))
    return {
        **_context(rng, ts, (JOB, *WORKERS)),
        "event": _of(("mark_inode_dirty", "dirty_folio", "balance_dirty_pages"), kind),
        "dev": _of((DISK,), np.zeros(len(ts), int)),
        "ino": rng.integers(1, _INODES, len(ts)),
        "index": rng.integers(0, 1 << 20, len(ts)),
        "pause_ns": pa.compute.if_else(pa.array(kind == 2), paused, none),
        "flags": np.where(kind == 0, np.where(rng.random(len(ts)) < 0.3, 4, 2), 0),
    }


def _outer_phases(events: int) -> Columns:
    """Makes the training phase and its epochs of 1000 steps, which need no window."""
    steps = max(1, events // STEP)
    step_ns = STEP * 10**9 // RATE
    first = np.arange(0, steps, 1000)
    ends = np.minimum(first + 1000, steps)
    return {
        "start": np.concatenate([[_START], _START + first * step_ns]),
        "end": np.concatenate([[_START + steps * step_ns], _START + ends * step_ns - 1]),
        "pid": np.full(1 + len(first), JOB),
        "tid": np.full(1 + len(first), JOB),
        "name": _of(("train", "epoch"), np.minimum(np.arange(1 + len(first)), 1)),
        "epoch": pa.array([None, *range(len(first))], pa.int64()),
        "source": _of(("script",), np.zeros(1 + len(first), int)),
    }


def _phases(at: int, length: int, size: int) -> Columns:
    """Makes the phases of each step: step, forward, backward and optimizer."""
    step_ns = STEP * 10**9 // RATE
    first = (at - _START) // step_ns
    step = first + np.arange(max(1, size // STEP))
    begun = _START + step * step_ns
    parts = np.array([[0, 0.95], [0.2, 0.45], [0.45, 0.8], [0.8, 0.9]]) * step_ns
    start = (begun[:, None] + parts[:, 0].astype(np.int64)).ravel()
    n = len(start)
    return {
        "start": start,
        "end": (begun[:, None] + parts[:, 1].astype(np.int64)).ravel(),
        "pid": np.full(n, JOB),
        "tid": np.full(n, JOB),
        "name": _of(("step", "forward", "backward", "optimizer"), np.arange(n) % 4),
        "epoch": np.repeat(step // 1000, 4),
        "step": np.repeat(step, 4),
        "source": _of(("script",), np.zeros(n, int)),
    }


def _writes(
    rng: np.random.Generator, at: int, length: int, brackets: int, calls: Columns
) -> Iterator[tuple[str, Columns]]:
    """Makes write-back: a bracket of the flusher has three inodes with four bios.

    There are two more bios: a worker's read in one of its calls, and the job's write in an fsync.
    """
    brackets = max(1, brackets)
    room = length // brackets
    begun = at + np.arange(brackets) * room
    share = room // 20
    reason = rng.choice(3, brackets, p=(0.75, 0.15, 0.1))
    yield (
        "writeback",
        {
            **_by(KWORKER, np.stack([begun, begun + 18 * share], 1).ravel()),
            "event": _of(("start", "written"), np.arange(2 * brackets) % 2),
            "reason": _of(("periodic", "background", "sync"), np.repeat(reason, 2)),
            "bdi": _of((DISK,), np.zeros(2 * brackets, int)),
            "dev": _of((DISK,), np.zeros(2 * brackets, int)),
            "nr_pages": rng.integers(0, 4096, 2 * brackets),
            "sync_mode": np.repeat((reason == 2).astype(int), 2),
        },
    )
    inode = (begun[:, None] + np.array([1, 6, 11]) * share).ravel()
    numbers = np.repeat(rng.integers(1, _INODES, len(inode)), 2)
    edges = np.stack([inode, inode + 5 * share], 1).ravel()
    yield (
        "inode_writeback",
        {
            **_by(KWORKER, edges),
            "event": _of(("start", "end"), np.arange(len(edges)) % 2),
            "dev": _of((DISK,), np.zeros(len(edges), int)),
            "ino": numbers,
            "age": rng.integers(0, 30 * 10**9, len(edges)),
            "state": np.tile([4, 0], len(inode)),
        },
    )
    edges = np.stack([inode + share // 2, inode + 4 * share], 1).ravel()
    yield (
        "file_writes",
        {
            **_by(KWORKER, edges),
            "event": _of(("writepages_start", "writepages_end"), np.arange(len(edges)) % 2),
            "dev": _of((DISK,), np.zeros(len(edges), int)),
            "ino": numbers,
            "offset": np.zeros(len(edges), int),
            "last": np.full(len(edges), (1 << 63) - 1),
            "nr_to_write": np.full(len(edges), 1024),
            "sync_mode": np.zeros(len(edges), int),
        },
    )
    written = (begun[:, None] + np.array([2, 3, 7, 12]) * share).ravel()
    fsync = calls["nr"] == list(_CALLS).index("fsync")
    inside = []
    for chosen in (calls["tid"] == WORKERS[0], (calls["tid"] == JOB) & fsync):
        call = rng.choice(np.flatnonzero(chosen), brackets)
        inside.append(calls["ts"][call] + calls["dur_ns"][call] // 2)
    queued = np.concatenate([written, *inside])
    tid = np.repeat([KWORKER, WORKERS[0], JOB], [len(written), brackets, brackets])
    yield "block", _block(rng, queued, tid)


def _by(tid: int, ts: Ints) -> Columns:
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
        "comm": _of(("kworker/u8:1", "python", "python"), who),
        "event": _of(("bio_queue", "insert", "issue", "complete"), np.repeat(range(4), n)[order]),
        "dev": _of((DISK,), np.zeros(4 * n, int)),
        "sector": sector[of],
        "nr_sector": (rng.integers(1, 32, n) * 8)[of],
        "rwbs": _of(("W", "WS", "R"), who),
        "error": np.zeros(4 * n, int),
    }


def _processes() -> Columns:
    tids = [JOB, HELPER, *WORKERS, KWORKER, JOURNAL, *range(200, 230)]
    mine = 4
    roles = ["target"] * 2 + ["child"] * 2 + ["flusher", "journal"]
    roles += ["other"] * (len(tids) - len(roles))
    return {
        "pid": [JOB if tid == HELPER else tid for tid in tids],
        "ppid": [1 if tid < KWORKER or tid >= 100 else 2 for tid in tids],
        "tid": tids,
        "comm": ["python"] * mine + ["kworker/u8:1", "jbd2/vda1-8"] + ["bash"] * (len(tids) - 6),
        "role": roles,
        "target": ["job"] * mine + [None] * (len(tids) - mine),
    }


def _losses(end: int) -> list[tuple[Any, ...]]:
    span = end - _START
    return [
        (f"ftrace-target-cpu{cpu}", cpu, _START + span // 4, _START + span // 4 + 10**6, 23, "full")
        for cpu in range(2)
    ]


def _batch(table: Table, columns: Columns) -> pa.RecordBatch:
    """Returns columns by name; others are null, or 0 if they cannot be null."""
    count = len(next(iter(columns.values())))
    arrays = []
    for column, field in zip(table.columns, table.arrow_schema(), strict=True):
        values = columns.get(column.name)
        if values is None:
            values = pa.nulls(count, field.type) if column.nullable else np.zeros(count, int)
        if not isinstance(values, pa.Array):
            values = pa.array(values)
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(values.type):
            values = values.cast(pa.string()).dictionary_encode()
        arrays.append(values.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema())


def _manifest(end: int, rows: dict[str, int]) -> Any:
    return {
        "schema": manifests.SCHEMA,
        "state": "finalized",
        "complete": True,
        "ended_by": "command",
        "recorder": {},
        "host": {"machine": "x86_64", "cpus": 2, "memory_bytes": 1 << 33},
        "kernel": {},
        "clock": {"name": "mono", "start_ns": _START, "end_ns": end},
        "duration_s": (end - _START) / 1e9,
        "targets": [{"name": "job", "role": "target", "kind": "command", "pid": JOB}],
        "probes": list(rows),
        "backend": "ftrace",
        "capture": {},
        "vm": {},
        "disks": [{"name": "vda", "dev": DISK}],
        "own_files": {},
        "own_cost": {},
        "tables": {name: {"rows": count} for name, count in rows.items()},
        "loss": {"events": 46, "windows": 2, "unknown": 0},
    }
