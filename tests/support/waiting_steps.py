"""Steps of a job that waits for its worker, which reads, with the scheduler's events."""

from __future__ import annotations

from pathlib import Path

from tests.support.traces import make_trace
from tracer.store.trace import Trace

MS = 10**6
JOB, WORKER = 7, 8
TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": JOB}]
HOSTILE = "evil'\x1b[31m\n"
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python", "ppid": 1},
    {"pid": WORKER, "tid": WORKER, "role": "child", "target": "job", "comm": HOSTILE, "ppid": JOB},
]


def steps_of(waits_ms: list[float], stage: str = "train") -> dict[str, list[dict]]:
    """Steps of 10 ms and a wait in their fetch for a worker, which sleeps half of that time."""
    tables: dict[str, list[dict]] = {
        "processes": PROCESSES, "phases": [], "syscalls": [], "off_cpu": [], "page_cache": [],
    }  # fmt: skip
    begin = 100 * MS
    tables["phases"].append({"name": stage, "start": begin, "end": 10**12, "pid": JOB, "tid": JOB})
    for number, wait in enumerate(waits_ms):
        wait = int(wait * MS)
        end = begin + 10 * MS + wait
        mark = {"pid": JOB, "tid": JOB, "epoch": 0, "step": number}
        tables["phases"] += [
            {"name": "step", "start": begin, "end": end, **mark},
            {"name": "fetch", "start": begin, "end": begin + wait + MS, **mark},
        ]
        if wait:
            woken = begin + MS // 2 + wait
            tables["syscalls"] += [
                {"ts": begin, "tid": JOB, "name": "read", "dur_ns": wait + MS, "ret": 1},
                {"ts": begin, "tid": WORKER, "name": "nanosleep", "dur_ns": wait // 2 + MS // 2},
            ]
            tables["page_cache"] += [
                {"ts": begin + at, "pid": WORKER, "tid": WORKER, "event": event, "dev": "254:0",
                 "ino": 12, "index": number, "pages": 1}
                for at, event in enumerate(("sync_read_ahead", "add", "access"))
            ]  # fmt: skip
            tables["off_cpu"] += [
                {"ts": begin + MS // 2, "dur_ns": wait, "pid": JOB, "tid": JOB, "state": "S",
                 "wake_ns": woken, "waker_tid": WORKER, "interrupt": False, "run_delay_ns": 0},
                {"ts": begin + MS // 2, "dur_ns": wait // 2, "pid": WORKER, "tid": WORKER,
                 "state": "S", "wake_ns": woken - wait // 2, "waker_tid": 0, "interrupt": True,
                 "run_delay_ns": 0},
            ]  # fmt: skip
        begin = end
    return tables


def beside(
    tables: dict[str, list[dict]], others: dict[str, list[dict]], target: str, more: int = 100
) -> dict[str, list[dict]]:
    """Returns the tables of two such jobs. The second has `target`, and numbers `more` higher."""
    numbers = {JOB: JOB + more, WORKER: WORKER + more, 1: 1}
    moved = {
        name: [
            row
            | {
                key: numbers[row[key]]
                for key in ("pid", "tid", "ppid", "waker_tid")
                if row.get(key)
            }
            for row in rows
        ]
        for name, rows in others.items()
    }
    moved["processes"] = [row | {"target": target} for row in moved["processes"]]
    return {name: rows + moved[name] for name, rows in tables.items()}


def make_waiting(folder: Path) -> Trace:
    """Makes a trace of some such steps, the first of which also waits for a GPU."""
    tables = steps_of([2, 2, 40, 2])
    tables["gpu_calls"] = [
        {"ts": at * MS, "pid": JOB, "tid": JOB, "event": f"cuStreamSynchronize{end}"}
        for at, end in ((105, ""), (107, "_end"))
    ]
    return make_trace(folder, tables, targets=TARGETS)
