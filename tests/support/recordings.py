"""A small training run as a trace, drawn by seed, with something of every kind; and an enemy's."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from tests.support.traces import make_trace
from tracer.probes.catalogue import TABLES
from tracer.store.trace import Trace

S, MS = 10**9, 10**6
START = 1_000 * S
JOB, WORKER, FLUSHER = 4100, 4120, 50
DEV = "254:0"


def make_recording(folder: Path, seconds: int = 60, seed: int = 23) -> Trace:
    """A minute of training: two epochs, a worker, a checkpoint, an fsync, a gap of lost events."""
    draw = random.Random(seed)
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    tables["processes"] = [
        {"pid": JOB, "tid": JOB, "ppid": 1, "comm": "python", "role": "target", "target": "job"},
        {"pid": WORKER, "tid": WORKER, "ppid": JOB, "comm": "pt_data_worker", "role": "child",
         "target": "job"},
        {"pid": FLUSHER, "tid": FLUSHER, "ppid": 2, "comm": "kworker/u8:1", "role": "flusher"},
    ]  # fmt: skip
    _phases(tables, draw, seconds)
    _calls(tables, draw, seconds)
    _writes(tables, draw, seconds)
    _samples(tables, draw, seconds)
    lost = {"cpu": 0, "from": START + 25 * S, "to": START + 27 * S, "count": 1200, "cause": "full"}
    tables["loss"] = [{**lost, "stream": "target-cpu0"}]
    counts: dict[str, Any] = {"events": 1200, "windows": 1, "unknown": 0}
    return make_trace(
        folder,
        tables,
        clock={"name": "mono", "start_ns": START, "end_ns": START + seconds * S,
               "realtime_offset_ns": 1_795_218_530 * S},
        duration_s=float(seconds),
        targets=[{"name": "job", "role": "target", "kind": "pid", "pid": JOB,
                  "command": ["python", "train.py"]}],
        kernel={"release": "6.18.0", "version": "#1 SMP"},
        host={"hostname": "example", "machine": "x86_64", "cpus": 2, "memory_bytes": 24 << 30,
              "cpu": "Some CPU"},
        vm={"dirty_ratio": 20, "dirty_background_ratio": 10},
        disks=[{"name": "vda", "dev": DEV, "bytes": 64 * 10**9, "scheduler": "none"}],
        own_cost={"cpu_s": 0.8, "max_rss_bytes": 90 << 20, "bytes_written": 12 << 20},
        loss=counts,
    )  # fmt: skip


def _phases(tables: dict[str, list[dict[str, Any]]], draw: random.Random, seconds: int) -> None:
    def phase(name: str, start: float, end: float, **more: Any) -> None:
        row = {"start": START + int(start * S), "end": START + int(end * S), "name": name,
               "pid": JOB, "tid": JOB, "source": "script"}  # fmt: skip
        tables["phases"].append(row | more)

    phase("model_load", 0.5, 3)
    phase("train", 3.2, seconds - 6)
    step, middle = 0, seconds / 2
    for epoch, (begin, end) in enumerate(((3.3, middle), (middle + 0.1, seconds - 6.1))):
        phase("epoch", begin, end, epoch=epoch)
        at = begin
        while at < end - 0.6:
            numbers = {"epoch": epoch, "step": step}
            fetch = draw.uniform(0.01, 0.2 if epoch == 0 else 0.05)
            compute = draw.uniform(0.2, 0.25)
            phase("step", at, at + fetch + compute, **numbers)
            phase("fetch", at, at + fetch, **numbers)
            phase("forward", at + fetch, at + fetch + compute / 3, **numbers)
            phase("backward", at + fetch + compute / 3, at + fetch + compute * 0.9, **numbers)
            phase("optimizer", at + fetch + compute * 0.9, at + fetch + compute * 0.99, **numbers)
            phase("fetch", at, at + 0.15, pid=WORKER, tid=WORKER, **numbers)
            at += fetch + compute + 0.01
            step += 1
        phase("checkpoint", at, min(at + 0.4, end), epoch=epoch)
    phase("inference", seconds - 5.5, seconds - 0.5)


def _calls(tables: dict[str, list[dict[str, Any]]], draw: random.Random, seconds: int) -> None:
    for number in range(seconds * 60):
        at = START + int((number / 60 + draw.uniform(0, 0.01)) * S)
        name, nr, ns = draw.choice(
            [("read", 0, 40_000), ("write", 1, 30_000), ("futex", 202, 9 * MS), ("mmap", 9, 8_000)]
        )
        synced = seconds - 7 <= number / 60 < seconds - 6.2
        tid = WORKER if synced else draw.choice([JOB, WORKER])
        tables["syscalls"].append(
            {"ts": at, "pid": tid, "tid": tid, "nr": nr, "name": name, "ret": 1,
             "dur_ns": int(ns * draw.lognormvariate(0, 1))}
        )  # fmt: skip
        early = number / 60 < 5
        for _ in range(12 if early else 3):
            tables["page_faults"].append(
                {"ts": at, "pid": tid, "tid": tid, "user": True, "access": "read",
                 "kind": "major" if draw.random() < (0.3 if early else 0.01) else "minor",
                 "file": draw.choice(["[anon]", "/usr/lib/libtorch_cpu.so"]),
                 "ip_file": "/usr/lib/libtorch_cpu.so", "symbol": "at::native::add"}
            )  # fmt: skip


def _writes(tables: dict[str, list[dict[str, Any]]], draw: random.Random, seconds: int) -> None:
    block, writeback = tables["block"], tables["writeback"]

    def write(at: int, sector: int, pages: int, tid: int) -> None:
        for event, later in (("bio_queue", 0), ("issue", draw.uniform(0.05, 0.4) * MS),
                             ("complete", draw.uniform(1, 12) * MS)):  # fmt: skip
            block.append(
                {"ts": at + int(later), "event": event, "dev": DEV, "sector": sector, "error": 0,
                 "nr_sector": pages * 8, "rwbs": "W", "pid": tid, "tid": tid, "comm": "kworker"}
            )  # fmt: skip

    for second in range(5, seconds, 5):
        at, reason = START + second * S, draw.choice(["periodic", "periodic", "background"])
        bracket = {"tid": FLUSHER, "pid": FLUSHER, "reason": reason, "bdi": DEV}
        inode = {"tid": FLUSHER, "pid": FLUSHER, "dev": DEV, "ino": 17 + second % 3}
        writeback.append({"ts": at, "event": "start", **bracket})
        tables["inode_writeback"].append({"ts": at + 1000, "event": "start", **inode})
        for number in range(40):
            sector = 8 * (1_000_000 + 64 * number + (second % 15) * 4000)
            write(at + (number + 1) * 3 * MS, sector, draw.choice([1, 4, 16]), FLUSHER)
        tables["inode_writeback"].append({"ts": at + 150 * MS, "event": "end", **inode})
        writeback.append({"ts": at + 160 * MS, "event": "written", **bracket})
        for number in range(30):
            tables["dirty"].append(
                {"ts": at - S + number * 20 * MS, "event": "dirty_folio", "dev": DEV,
                 "ino": inode["ino"], "index": number, "pid": JOB, "tid": JOB}
            )  # fmt: skip
    at = START + (seconds - 7) * S
    tables["syscalls"].append(
        {"ts": at, "pid": JOB, "tid": JOB, "nr": 74, "name": "fsync", "dur_ns": 700 * MS, "ret": 0}
    )
    for number in range(60):
        write(at + (number + 1) * 10 * MS, 8 * (2_000_000 + number * 256), 256, JOB)
    tables["dirty"].append(
        {"ts": at - 2 * S, "event": "balance_dirty_pages", "dev": DEV, "pid": JOB, "tid": JOB,
         "pause_ns": 180 * MS}
    )  # fmt: skip
    tables["block"].sort(key=lambda row: row["ts"])
    for name in ("syscalls", "dirty"):
        tables[name].sort(key=lambda row: row["ts"])


def _samples(tables: dict[str, list[dict[str, Any]]], draw: random.Random, seconds: int) -> None:
    def sample(at: int, name: str, value: float, unit: str, **more: Any) -> None:
        tables["samples"].append(
            {"ts": START + at * S, "name": name, "value": value, "unit": unit, **more}
        )

    for second in range(seconds + 1):
        busy = 150 + 30 * math.sin(second / 5) + draw.uniform(-5, 5)
        sample(second, "cpu_use", busy, "%", target="job")
        sample(second, "cpu_use", busy + 12, "%")
        sample(second, "rss", (600 + 4 * second) * 2.0**20, "bytes", target="job")
        sample(second, "page_cache", (2000 + 11 * second) * 2.0**20, "bytes")
        sample(second, "dirty_pages", 300.0 + 900 * (second % 5), "pages")
        sample(second, "gpu_use", draw.uniform(60, 95), "%", instance="0")
        sample(second, "gpu_power", draw.uniform(180, 240), "W", instance="0")
        sample(second, "swap_used", 0.0, "bytes")


EVIL = "</script><script>alert(1)</script>\x1b[31m\n\u202egnp.exe<img src=x onerror=alert(2)>"
"""A name that an enemy could choose."""


def make_hostile(folder: Path, processes: int = 100_000) -> Trace:
    """Names of an enemy, sectors up to 2^64, clocks that jump, values that are no number."""
    names = ["<script>alert(1)</script>", "\x1b[2J\x1b[31mred", "a\nb", "\u202eevil", EVIL]
    last = 1 << 60
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    tables["processes"] = [
        {"pid": pid, "tid": pid, "comm": names[pid % 5], "role": "target" if pid < 9 else "other",
         "target": EVIL if pid < 9 else None, "container_name": EVIL}
        for pid in range(1, processes + 1)
    ]  # fmt: skip
    times = [0, 1, 5, S // 2, S, 2 * S, last - 1, last]
    tables["syscalls"] = [
        {"ts": ts, "pid": pid, "tid": pid, "nr": -1, "name": EVIL, "dur_ns": ns, "ret": -last}
        for pid, ts in enumerate(times, 1)
        for ns in (None, -5, 0, last)
    ]
    tables["page_faults"] = [
        {"ts": S // 4 + n, "pid": 1 + n % processes, "tid": 1 + n % processes, "user": n % 2 == 0,
         "kind": ("minor", "major", "unknown", EVIL)[n % 4], "file": EVIL, "ip_file": EVIL,
         "symbol": EVIL, "address": (1 << 64) - 1}
        for n in range(2000)
    ]  # fmt: skip
    tables["phases"] = [
        {"start": ts, "end": end, "pid": 1, "tid": 1, "name": EVIL, "epoch": last, "step": -last}
        for ts in times
        for end in (None, ts, -last, last)
    ]
    tables["writeback"] = [
        {"ts": ts, "event": "start", "tid": 3, "reason": f"{EVIL}{n}", "bdi": EVIL}
        for n, ts in enumerate(times * 3)
    ]
    tables["dirty"] = [
        {"ts": ts, "event": event, "tid": 1, "pid": 1, "dev": EVIL, "ino": (1 << 64) - 1,
         "index": 1 << 63, "pause_ns": pause}
        for ts in times
        for event, pause in (("dirty_folio", None), ("balance_dirty_pages", last))
    ]  # fmt: skip
    tables["block"] = [
        {"ts": ts + later, "event": event, "tid": 3, "pid": 3, "comm": EVIL, "dev": dev,
         "sector": sector, "nr_sector": size, "rwbs": "W", "error": 0}
        for ts in (5, S // 2, S)
        for sector, size in (((1 << 64) - 1, 8), ((1 << 64) - 9, 8), (8, 1 << 40), (0, 8), (0, -8))
        for dev in (DEV, EVIL)
        for event, later in (("bio_queue", 0), ("issue", 10), ("complete", 20))
    ]  # fmt: skip
    tables["samples"] = [
        {"ts": ts, "target": target, "name": name, "instance": EVIL, "value": value, "unit": unit}
        for n, value in enumerate((float("nan"), float("inf"), -1e308, 1e308, 3.0, 0.0))
        for ts in [n * S // 8]
        for target in (EVIL, None)
        for name, unit in (("cpu_use", "%"), (EVIL, EVIL))
    ]
    tables["loss"] = [
        {"stream": EVIL, "cpu": -1, "from": begin, "to": end, "count": count, "cause": EVIL}
        for begin, end in ((None, None), (-last, last), (5, 3), (S // 3, S // 2))
        for count in (None, -1, last)
    ]
    return make_trace(
        folder,
        tables,
        targets=[{"name": EVIL, "role": EVIL, "kind": EVIL, "pid": 1, "command": [EVIL] * 50}],
        kernel={"release": EVIL, "version": EVIL},
        host={"hostname": EVIL, "cpu": EVIL},
        disks=[{"name": EVIL, "dev": DEV}],
        complete=False,
        ended_by=EVIL,
        loss={"events": last, "windows": 12, "unknown": 4},
    )
