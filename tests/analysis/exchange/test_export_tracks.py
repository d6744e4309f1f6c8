"""Tracks of exported traces: those in the file have marks, and the answer counts these."""

import json

import pytest

from tests.support import perfetto
from tests.support.traces import make_trace
from tracer.analysis.exchange.exporting import export

MS = 1_000_000


def dirtied(ts, dev, event="dirty_folio"):
    return {"ts": ts, "tid": 7, "event": event, "dev": dev, "ino": 5, "index": 0}


def sample(ts, name, value=1.0):
    return {"ts": ts, "name": name, "value": value, "unit": "share"}


TABLES = {
    "processes": [
        {"pid": 7, "tid": 7, "comm": "job", "role": "target"},
        {"pid": 9, "tid": 9, "comm": "late", "role": "target"},
    ],
    "phases": [{"pid": 7, "tid": 7, "name": "train", "start": 0, "end": 50 * MS}],
    "syscalls": [
        {"ts": MS, "pid": 7, "tid": 7, "name": "read", "dur_ns": 5},
        {"ts": 45 * MS, "pid": 9, "tid": 9, "name": "read", "dur_ns": 5},
    ],
    "dirty": [
        dirtied(MS, "8:0"), dirtied(2 * MS, "8:16", "mark_inode_dirty"), dirtied(45 * MS, "8:32"),
    ],
    "samples": [sample(MS, "cpu.busy"), sample(MS, "no number", float("nan"))],
}  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    clock = {"name": "mono", "start_ns": 0, "end_ns": 50 * MS}
    with make_trace(tmp_path / "t", TABLES, clock=clock) as made:
        yield made


def name(descriptor):
    return descriptor.name or descriptor.thread.thread_name or descriptor.process.process_name


@pytest.mark.parametrize("end_s", [None, 0.04])
def test_perfetto_has_no_track_without_marks(trace, tmp_path, end_s):
    said = export(trace, "perfetto", tmp_path / "out", end_s=end_s)
    found = perfetto.read(tmp_path / "out")
    marked = {mark.track for mark in [*found.slices, *found.instants]} | set(found.counters)
    above = {track.parent_uuid for track in found.tracks.values()}
    assert said["tracks"] == len(marked)
    lone = [track for uuid, track in found.tracks.items() if uuid not in marked | above]
    late = ["late"] if end_s is None else []
    assert sorted(name(track) for track in lone if track.process.pid) == ["job", *late]
    assert len(lone) == 1 + len(late)
    devices = [name(t) for t in found.tracks.values() if name(t).startswith("block device")]
    assert devices == ["block device 8:0", *(["block device 8:32"] if late else [])]


@pytest.mark.parametrize("end_s", [None, 0.04])
def test_chrome_has_no_row_without_marks(trace, tmp_path, end_s):
    said = export(trace, "chrome", tmp_path / "out", end_s=end_s)
    events = json.loads((tmp_path / "out").read_text())["traceEvents"]
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    marked = {(e["pid"], e["tid"]) for e in events if e["ph"] != "M"}
    assert named == marked and said["tracks"] == len(marked)
    assert {pid for pid, _ in marked} >= {e["pid"] for e in events if e["name"] == "process_name"}
