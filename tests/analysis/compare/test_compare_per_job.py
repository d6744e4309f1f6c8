"""Measures of jobs are per job: one container against several that do as much each."""

import pytest

from tests.support.compared import S, row
from tests.support.traces import make_trace
from tracer.analysis.compare.comparison import compare
from tracer.analysis.compare.measured import MACHINES_PAGES, TARGETS_PAGES

pytestmark = pytest.mark.slow


def containers(folder, count):
    """Containers that each dirty, write and sync five pages of a file, and take three faults."""
    rows = {name: [] for name in ("processes", "dirty", "block", "file_writes", "syscalls")}
    rows["page_faults"] = []
    targets = []
    for pid in range(10, 10 + count):
        name, at = f"c{pid}", {"pid": pid, "tid": pid}
        targets.append({"name": name, "role": "target", "kind": "container", "pid": pid})
        rows["processes"].append({**at, "role": "target", "target": name, "comm": "python"})
        disk = {**at, "dev": "8:0"}
        for page in range(5):
            ts = S * pid + 10 * page
            dirtied = {"ts": ts, "event": "dirty_folio", "ino": pid, "index": page}
            rows["dirty"].append({**disk, **dirtied})
            bio = {"ts": ts + 1000, "event": "bio_queue", "rwbs": "WS", "nr_sector": 8}
            rows["block"].append({**disk, **bio, "sector": 8 * (page + 1000 * pid)})
        rows["file_writes"].append({**disk, "ts": S * pid, "event": "fsync", "ino": pid})
        call = {"ts": S * pid - 1, "name": "fsync", "dur_ns": S // 2, "ret": 0}
        rows["syscalls"].append({**at, **call})
        rows["page_faults"] += [{**at, "ts": S * pid, "user": True, "kind": "minor"}] * 3
    for table in ("dirty", "block"):
        rows[table].sort(key=lambda one: one["ts"])
    clock = {"name": "mono", "start_ns": 0, "end_ns": 100 * S}
    make_trace(folder, rows, targets=targets, clock=clock).close()
    return folder


def test_pages_faults_calls_and_syncs_are_those_of_a_job(tmp_path):
    found = compare([containers(tmp_path / "a.trace", 1), containers(tmp_path / "b.trace", 4)])
    for topic, measure, value in (
        (TARGETS_PAGES, "all", 5), (TARGETS_PAGES, "fsync", 5), ("page faults", "all", 3),
        ("syncs", "fsync and the like", 0.5), ("calls", "time in all", 0.5),
    ):  # fmt: skip
        one = row(found, topic, measure)
        assert (one["base_mean"], one["mean"], one["ratio"]) == (value, value, 1), measure
    assert row(found, MACHINES_PAGES, "all")["ratio"] == 4
