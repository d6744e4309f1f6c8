"""A study's folder with small traces of known content, as the runner leaves one."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import re
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tests.support.turns import folder_of_runs
from tracer.analysis.studies import extracts, measures
from tracer.analysis.studies.report.contents import contents

DEV = "7:0"
S = 1_000_000_000
EVIL = (
    '</script><img src=x onerror="alert(1)"><a href="http://evil.example/">'
    "[x](http://evil.example) |`*"
)
"""Names that an enemy could choose."""
PLACES = ("host", "1", "4")


def make_study(
    folder: Path,
    model: str = "lenet",
    served: bool = False,
    reported: bool = False,
    places: Sequence[str] = PLACES,
    **told: Any,
) -> Path:
    """Two repeats in each place (the host, one container and four), and a run that failed.

    The last of four containers lost events. Names are `model`'s and `EVIL`. `served`: the model is
    also served, once in each place. `reported`: each run has what a first report keeps beside its
    trace.
    """
    study = {"name": "small", "about": "all of it", "paper": None, "scale": 0.5, **told}
    (folder / "runs").mkdir(parents=True)
    (folder / "study.json").write_text(json.dumps(study))
    for where in places:
        for repeat in (0, 1):
            _run(folder / "runs" / f"{where}-{repeat}", model, where, repeat)
        if served:
            _run(folder / "runs" / f"served-{where}", model, where, 0, **_served(where))
    failed = {"state": "failed", "reason": f"no memory {EVIL}", "factors": {"model": model}}
    (folder / "runs/failed").mkdir()
    (folder / "runs/failed/run.json").write_text(json.dumps(failed))
    if reported:
        for trace in folder.glob("runs/*/run.trace"):
            # A serving has the trace of the first training in its place.
            of = re.sub("served-(.*)", r"\1-0", trace.parent.name)
            for name, data in _kept()[of].items():
                (trace.parent / name).write_bytes(data)
    return folder


@cache
def _kept() -> dict[str, dict[str, bytes]]:
    """Returns the files that a report keeps of each run, by run and name.

    To make them takes seconds: the first of all processes of a session of pytest-xdist does so.
    """
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", "").encode()
    if not session:
        return _made()
    runs = folder_of_runs()
    runs.mkdir(mode=0o700, exist_ok=True)
    with (runs / "kept.pickle").open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        made, _, by = file.read().rpartition(b"\n")
        if by == session:
            found: dict[str, dict[str, bytes]] = pickle.loads(made)
            return found
        found = _made()
        file.truncate(0)
        file.write(pickle.dumps(found) + b"\n" + session)
        return found


def _made() -> dict[str, dict[str, bytes]]:
    """Makes them by a report of a study."""
    with tempfile.TemporaryDirectory(dir=PLACE) as place:
        study = make_study(Path(place) / "s")
        contents(study, drawn=False)
        return {
            trace.parent.name: {
                name: (trace.parent / name).read_bytes() for name in (measures.FILE, extracts.FILE)
            }
            for trace in study.glob("runs/*/run.trace")
        }


def _served(where: str) -> dict[str, Any]:
    servers = 4 if where == "4" else 1
    client = {
        "requests": 20, "answered": 19, "achieved_per_s": 0.95,
        "latency_ms": {"mean": 3.0 * servers, "p50": 2.0 * servers, "p99": 9.0 * servers},
    }  # fmt: skip
    return {
        "mode": "serve",
        "rate": 1.0,
        "summaries": [{"server": {}, "client": client}] * servers,
        "weights": {"kind": "trained", "run": f"{where}-0", "bytes": 1, "sha256": "0", "epoch": 9},
    }


def _run(
    place: Path,
    model: str,
    where: str,
    repeat: int,
    mode: str = "train",
    rate: float | None = None,
    **more: Any,
) -> None:
    place.mkdir()
    facts = {
        "state": "done", "dev": DEV, "repeat": repeat,
        "factors": {"model": model, "where": where, "mode": mode, "seccomp": True, "rate": rate},
        "summaries": [{"workers": 4, "batch_size": 16, "epochs": 2}],
        "versions": {"python": "3.11.7", "packages": {"torch": EVIL, "absent": None}},
        "began": 1000.0, "ended": 1050.0, "others_cpu_s": 4.0 if where == "4" else 1.0,
        **more,
    }  # fmt: skip
    (place / "run.json").write_text(json.dumps(facts))
    lost = where == "4" and repeat == 1
    with make_trace(
        place / "run.trace",
        _tables(1.0 if where == "host" else 2.0, repeat),
        targets=[
            {"name": "job", "role": "target", "kind": "pid", "pid": 7},
            {"name": "dockerd", "role": "daemon", "kind": "daemon", "pid": 9},
        ],
        kernel={"release": f"6.18 {EVIL}"},
        clock={"name": "mono", "start_ns": 0, "end_ns": 20 * S},
        disks=[{"name": "loop0", "dev": DEV, "bytes": 2 << 30, "scheduler": "none"}],
        vm={"dirty_ratio": 20, "dirty_writeback_centisecs": 500},
        samples={"hz": 1.0, "not_available": {"rapl": "there is no RAPL"}},
        loss={"events": 1234 if lost else 0, "windows": 2 if lost else 0, "unknown": 0},
    ):  # fmt: skip
        pass


def _tables(slower: float, repeat: int) -> dict[str, list[dict[str, Any]]]:
    at = {"pid": 7, "tid": 7}

    def phase(name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
        return {**at, "name": name, "start": int(start * S), "end": int(end * S), **more}

    phases = [phase("train", 0, 20)]
    for epoch in (0, 1, 2):
        begun = 6 * epoch
        took = slower * (1 + 0.1 * epoch + 0.05 * repeat)
        phases += [
            phase("epoch", begun, begun + 2 * took, epoch=epoch),
            phase("step", begun, begun + 2 * took, epoch=epoch, step=epoch),
            phase("fetch", begun, begun + 0.5 * took, epoch=epoch, step=epoch),
            phase("forward", begun + 0.5 * took, begun + took, epoch=epoch, step=epoch),
            phase("backward", begun + took, begun + 1.5 * took, epoch=epoch, step=epoch),
            phase("optimizer", begun + 1.5 * took, begun + 1.9 * took, epoch=epoch, step=epoch),
        ]
    times = [0, 1, 3, 5, 6 + slower]
    return {
        "processes": [
            {"pid": 7, "tid": 7, "comm": EVIL, "role": "target", "target": "job"},
            {"pid": 9, "tid": 9, "comm": "dockerd", "role": "daemon", "target": "dockerd"},
        ],
        "page_faults": [
            {"ts": n, "pid": pid, "tid": pid, "kind": "minor", "user": True, "ip_file": EVIL}
            for n, pid in enumerate((7, 7, 7, 9))
        ],
        "writeback": [
            {"ts": int(s * S), "tid": 50, "event": "start", "dev": DEV, "bdi": DEV,
             "reason": "periodic" if n % 2 else "background"}
            for n, s in enumerate(times)
        ],
        "block": [
            {"ts": int(s * S), "tid": 50, "event": "bio_queue", "dev": DEV, "sector": 8 * (n % 3),
             "nr_sector": 16, "rwbs": "W"}
            for n, s in enumerate(times)
        ],
        "call_graphs": [
            {"event": "block:block_rq_insert", "stack": stack, "comm": EVIL, "pid": 7, "count": n,
             "dev": dev, "operation": operation}
            for stack, n, dev, operation in (
                ("kthread_[k];wb_workfn_[k];blk_mq_insert_requests_[k]", 3, DEV, "write"),
                (EVIL, 1, DEV, "read"),
                ("kthread_[k];wb_workfn_[k];blk_mq_insert_requests_[k]", 12, "254:0", "write"),
            )
        ],
        "counters": [
            {"event": event, "target": target, "value": value, "unit": "events", "state": state}
            for event, target, value, state in (
                ("page-faults", "job", int(100 * slower), "counted"),
                ("page-faults", "dockerd", 3, "counted"),
                ("cycles", "job", None, "not supported"),
            )
        ],
        "samples": [
            {"ts": s * S, "name": name, "value": value + s, "unit": unit}
            for s in range(20)
            for name, value, unit in (("cpu_use", 50.0, "%"), ("memory_used", 4e9 * slower, ""))
        ],
        "phases": phases,
    }  # fmt: skip
