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

from parts.generated_waits import SHARE, TENANT, make_room, waits
from parts.generated_writes import (
    DISK,
    FILES,
    HELPER,
    INODES,
    JOB,
    JOURNAL,
    KWORKER,
    SYMBOLS,
    WORKERS,
    Columns,
    Ints,
    named,
    writes,
)
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


def generate(folder: Path, events: int, seed: int = 23, scheduled: bool = False) -> dict[str, int]:
    """Writes a trace of `events` rows; returns the rows of each table.

    `scheduled`: with the events of the scheduler and the journal (`generated_waits.py`), and a
    second tenant.
    """
    make_folder(folder)
    make_folder(folder / "events")
    names = ("syscalls", *SHARES, *(("off_cpu", "journal") if scheduled else ()))
    writers = {name: TableWriter(TABLES[name], folder / "events") for name in names}
    writers["phases"].add(_batch(TABLES["phases"], _outer_phases(events)))
    at = _START
    for number, size in enumerate(_windows(events)):
        rng = np.random.default_rng([seed, number])
        length = size * 10**9 // RATE
        parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in names}
        for name, columns in _window(rng, at, length, size, scheduled):
            parts[name].append(_batch(TABLES[name], columns))
        for name, batches in parts.items():
            writers[name].add(batches[0] if len(batches) == 1 else _in_order(batches))
        at += length
    for writer in writers.values():
        writer.close()
    rows = {name: writer.rows for name, writer in writers.items()}
    rows["processes"] = write_table(
        TABLES["processes"], folder / "events", _batch(TABLES["processes"], _processes(scheduled))
    )
    write_table(LOSS, folder, batch_of(LOSS, _losses(at)))
    manifests.write(folder, _manifest(at, rows, scheduled))
    return rows


def _windows(events: int) -> Iterator[int]:
    while events > 0:
        yield min(WINDOW, events)
        events -= WINDOW


def _window(
    rng: np.random.Generator, at: int, length: int, size: int, scheduled: bool
) -> Iterator[tuple[str, Columns]]:
    """Returns the columns of each table for a window of time, each table in its own order."""
    count = {name: int(size * share) for name, share in SHARES.items()}
    sleeps = int(size * SHARE) if scheduled else 0
    calls = _syscalls(rng, at, length, size - sum(count.values()) - sleeps)
    if scheduled:
        step_ns = STEP * 10**9 // RATE
        make_room(calls, at, step_ns)
        yield from waits(rng, at, length, step_ns, sleeps, calls)
    yield "syscalls", calls
    yield "page_faults", _page_faults(rng, _times(rng, at, length, count["page_faults"]))
    yield "dirty", _dirty(rng, _times(rng, at, length, count["dirty"]))
    ts = _times(rng, at, length, count["buffers"])
    yield (
        "buffers",
        {
            **_context(rng, ts, (JOB, *WORKERS, JOURNAL)),
            "event": named(("dirty_buffer", "touch_buffer"), rng.integers(0, 2, len(ts))),
            "dev": named((DISK,), np.zeros(len(ts), int)),
            "sector": rng.integers(0, 1 << 26, len(ts)),
            "size": np.full(len(ts), 4096),
        },
    )
    yield "phases", _phases(at, length, size, rng if scheduled else None)
    yield from writes(rng, at, length, count["writeback"] // 2, calls, list(_CALLS).index("fsync"))
    ts = np.repeat(_times(rng, at, length, count["samples"] // len(_SERIES)), len(_SERIES))
    yield (
        "samples",
        {
            "ts": ts,
            "name": named(_SERIES, np.arange(len(ts)) % len(_SERIES)),
            "value": rng.random(len(ts)) * 1e9,
            "unit": named(("bytes",), np.zeros(len(ts), int)),
        },
    )


def _times(rng: np.random.Generator, at: int, length: int, count: int) -> Ints:
    return at + np.sort(rng.integers(0, length, count))


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
        "name": named(names, name),
        "dur_ns": took,
        "ret": np.where(failed, -11, rng.integers(0, 4096, len(ts))),
    }


def _page_faults(rng: np.random.Generator, ts: Ints) -> Columns:
    n = len(ts)
    file = rng.integers(0, FILES, n)
    symbol = rng.integers(0, SYMBOLS, n)
    files = [f"/usr/lib/lib{number}.so" for number in range(FILES)]
    return {
        **_context(rng, ts, (JOB, HELPER, *WORKERS)),
        "address": (rng.integers(0, 1 << 22, n) << 12) + (1 << 46),
        "ip": (1 << 46) + symbol * 4096,
        "kind": named(("minor", "major"), (rng.random(n) < 0.01).astype(int)),
        "access": named(("write", "read", "exec"), rng.choice(3, n, p=(0.92, 0.05, 0.03))),
        "user": rng.random(n) < 0.97,
        "file": named(files, file),
        "file_offset": rng.integers(0, 1 << 16, n) << 12,
        "ip_file": named(files, symbol % FILES),
        "symbol": named([f"function_{number}" for number in range(SYMBOLS)], symbol),
    }


def _dirty(rng: np.random.Generator, ts: Ints) -> Columns:
    kind = rng.choice(3, len(ts), p=(0.9, 0.09, 0.01))
    none = pa.scalar(None, pa.int64())
    paused = pa.array(np.where(rng.random(len(ts)) < 0.1, 4_000_000, 0))
    return {
        **_context(rng, ts, (JOB, *WORKERS)),
        "event": named(("mark_inode_dirty", "dirty_folio", "balance_dirty_pages"), kind),
        "dev": named((DISK,), np.zeros(len(ts), int)),
        "ino": rng.integers(1, INODES, len(ts)),
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
        "name": named(("train", "epoch"), np.minimum(np.arange(1 + len(first)), 1)),
        "epoch": pa.array([None, *range(len(first))], pa.int64()),
        "source": named(("script",), np.zeros(1 + len(first), int)),
    }


def _phases(at: int, length: int, size: int, rng: np.random.Generator | None) -> Columns:
    """Makes the phases of each step: step, forward, backward and optimizer.

    Steps are equally long, or differ by chance.
    """
    step_ns = STEP * 10**9 // RATE
    first = (at - _START) // step_ns
    step = first + np.arange(max(1, size // STEP))
    begun = _START + step * step_ns
    parts = np.array([[0, 0.95], [0.2, 0.45], [0.45, 0.8], [0.8, 0.9]]) * step_ns
    start = (begun[:, None] + parts[:, 0].astype(np.int64)).ravel()
    end = begun[:, None] + parts[:, 1].astype(np.int64)
    if rng is not None:
        end[:, 0] += rng.integers(-step_ns // 25, step_ns // 25, len(end))
    n = len(start)
    return {
        "start": start,
        "end": end.ravel(),
        "pid": np.full(n, JOB),
        "tid": np.full(n, JOB),
        "name": named(("step", "forward", "backward", "optimizer"), np.arange(n) % 4),
        "epoch": np.repeat(step // 1000, 4),
        "step": np.repeat(step, 4),
        "source": named(("script",), np.zeros(n, int)),
    }


def _processes(scheduled: bool) -> Columns:
    tids = [JOB, HELPER, *WORKERS, KWORKER, JOURNAL, *range(200, 230)]
    mine = 4
    roles = ["target"] * 2 + ["child"] * 2 + ["flusher", "journal"]
    roles += ["other"] * (len(tids) - len(roles))
    comms = ["python"] * mine + ["kworker/u8:1", "jbd2/vda1-8"] + ["bash"] * (len(tids) - 6)
    targets = ["job"] * mine + [None] * (len(tids) - mine)
    if scheduled:
        tids, roles = [*tids, TENANT], [*roles, "target"]
        comms, targets = [*comms, "postgres"], [*targets, "tenant"]
    return {
        "pid": [JOB if tid == HELPER else tid for tid in tids],
        "ppid": [1 if tid < KWORKER or tid >= 100 else 2 for tid in tids],
        "tid": tids,
        "comm": comms,
        "role": roles,
        "target": targets,
    }


def _losses(end: int) -> list[tuple[Any, ...]]:
    span = end - _START
    return [
        (f"ftrace-target-cpu{cpu}", cpu, _START + span // 4, _START + span // 4 + 10**6, 23, "full")
        for cpu in range(2)
    ]


def _in_order(batches: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Returns the rows of batches of a table, in order of time, or of their ends."""
    if not batches:
        return None
    rows = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    ended = rows["ts"].to_numpy()
    if "dur_ns" in rows.column_names:
        ended = ended + rows["dur_ns"].to_numpy()
    (found,) = rows.take(pa.array(np.argsort(ended, kind="stable"))).combine_chunks().to_batches()
    return found


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


def _manifest(end: int, rows: dict[str, int], scheduled: bool) -> Any:
    tenant = {"name": "tenant", "role": "target", "kind": "pid", "pid": TENANT}
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
        "targets": [
            {"name": "job", "role": "target", "kind": "command", "pid": JOB},
            *([tenant] if scheduled else []),
        ],
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
