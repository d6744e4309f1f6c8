"""Repeats of a small training as traces: a base, one that is slower, one that is the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.traces import make_trace
from tracer.store import manifest as manifests
from tracer.store.trace import Trace

S = 1_000_000_000
MS = 1_000_000


def make_run(folder: Path, seconds: float, **manifest: Any) -> Path:
    """A trace of ten steps of so long, each half of it computing, and of some calls."""
    step = int(seconds * S)
    phases = [{"pid": 7, "tid": 7, "name": "train", "start": 0, "end": 10 * step}]
    for n in range(10):
        at = {"pid": 7, "tid": 7, "step": n, "epoch": 0}
        phases.append({**at, "name": "step", "start": n * step, "end": (n + 1) * step})
        phases.append({**at, "name": "forward", "start": n * step, "end": n * step + step // 2})
    tables: dict[str, list[dict[str, Any]]] = {
        "processes": [{"pid": 7, "tid": 7, "role": "target", "target": "job", "comm": "python"}],
        "phases": phases,
        "syscalls": [
            {"ts": n, "pid": 7, "tid": 7, "name": "read", "dur_ns": 1000, "ret": 1}
            for n in range(100)
        ],
        "dirty": [],
    }
    manifest.setdefault("clock", {"name": "mono", "start_ns": 0, "end_ns": 100 * S})
    manifest.setdefault("targets", [{"name": "job", "role": "target", "kind": "pid", "pid": 7}])
    make_trace(folder, tables, **manifest).close()
    return folder


def make_times(folder: Path, slower: float = 1) -> Trace:
    """A hundred requests, fsyncs and steps of 1 to 100 ms, on two devices, each `slower` times."""
    rows: dict[str, list[dict[str, Any]]] = {"block": [], "syscalls": [], "phases": []}
    for n in range(1, 101):
        begin, long = n * S, n * slower * MS
        io = {"pid": 7, "tid": 7, "dev": f"8:{n % 2}", "sector": 8 * n, "nr_sector": 8, "rwbs": "W"}
        rows["block"] += [
            {**io, "ts": begin, "event": "bio_queue"},
            {**io, "ts": begin + 2 * MS, "event": "issue"},
            {**io, "ts": begin + 2 * MS + long, "event": "complete", "error": 0},
        ]
        call = {"pid": 7, "tid": 7, "ts": begin, "dur_ns": long}
        rows["syscalls"] += [{**call, "name": "fsync"}, {**call, "name": "read"}]
        step = {"pid": 7, "tid": 7, "epoch": 0, "step": n, "start": begin, "end": begin + long}
        rows["phases"].append({**step, "name": "step"})
    rows["phases"].append({"pid": 7, "tid": 7, "name": "train", "start": 0, "end": 102 * S})
    rows["processes"] = [{"pid": 7, "tid": 7, "role": "target", "target": "job"}]
    clock = {"name": "mono", "start_ns": 0, "end_ns": 102 * S}
    return make_trace(folder, rows, clock=clock)


def make_repeats(folder: Path, runs: int = 5) -> dict[str, list[Path]]:
    """Runs of a base, of one that is 1.5 times as slow, and of one like the base; 2 % of noise."""
    random = np.random.default_rng(3)
    return {
        name: [
            make_run(folder / f"{name}-{n}.trace", factor * float(np.exp(random.normal(0, 0.02))))
            for n in range(runs)
        ]
        for name, factor in (("base", 1.0), ("slow", 1.5), ("same", 1.0))
    }


def lossy(folder: Path) -> Path:
    """A copy of a trace, in a folder beside it, that says that it lost seven events."""
    copy = folder.parent / "lossy" / folder.name
    shutil.copytree(folder, copy)
    manifest = manifests.read(copy)
    manifest["loss"] = {"events": 7, "windows": 1, "unknown": 0}
    manifests.write(copy, manifest)
    return copy


def row(found, topic, measure, group=None):
    """The only row of a comparison with this measure."""
    rows = found.rows[(found.rows["topic"] == topic) & (found.rows["measure"] == measure)]
    if group is not None:
        rows = rows[rows["group"] == group]
    assert len(rows) == 1
    return rows.iloc[0]
