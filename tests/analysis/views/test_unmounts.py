"""Waits after a call that unmounts returned, and the bound on waiting for writes."""

from __future__ import annotations

from tests.support.traces import make_trace
from tracer.analysis.views.disks.write_waits import WRITE_WAITS
from tracer.analysis.views.waiting.waits import waits

JOB, FLUSHER = 7, 50
TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": JOB}]
CLOCK = {"start_ns": 0, "end_ns": 1000}


def off(ts, dur, waker=0, state="D"):
    return {
        "ts": ts, "dur_ns": dur, "pid": JOB, "tid": JOB, "state": state, "wake_ns": ts + dur,
        "waker_tid": waker, "interrupt": waker == 0,
    }  # fmt: skip


def call(ts, dur, name):
    return {"ts": ts, "dur_ns": dur, "pid": JOB, "tid": JOB, "name": name, "ret": 0}


TABLES = {
    "processes": [
        {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "umount", "ppid": 1},
        {"pid": FLUSHER, "tid": FLUSHER, "role": "flusher", "comm": "kworker/u8:5", "ppid": 2},
    ],
    "syscalls": [
        call(100, 40, "umount2"),
        call(400, 10, "getpid"),
        call(500, 10, "umount"),
    ],
    "page_faults": [{"ts": 610, "pid": JOB, "tid": JOB, "kind": "major", "user": True}],
    "off_cpu": [
        off(110, 11, FLUSHER),  # in the call
        off(150, 13, FLUSHER),
        off(170, 17),  # a disk ended it
        off(190, 19, state="S"),
        off(420, 23),  # the last call was another one
        off(520, 29),
        off(620, 31),  # a page fault came after the call
    ],
}


def test_sleeps_after_an_unmount_are_of_it_until_a_fault_or_the_next_call(tmp_path):
    with make_trace(tmp_path / "t", TABLES, targets=TARGETS, clock=CLOCK) as trace:
        waits(trace)
        found = trace.rows("SELECT dur_ns, kind, call, by_tid, certainty FROM waits ORDER BY ts")
    assert found == [
        (11, "disk", "umount2", FLUSHER, "inferred"),
        (13, "sync", None, FLUSHER, "inferred"),
        (17, "sync", None, None, "inferred"),
        (19, "other", None, None, "unknown"),
        (23, "fault", None, None, "inferred"),
        (29, "sync", None, None, "inferred"),
        (31, "fault", None, None, "exact"),
    ]


def test_the_bound_on_waiting_for_writes_counts_an_unmount_until_the_next_call_or_the_end(tmp_path):
    with make_trace(tmp_path / "t", TABLES, targets=TARGETS, clock=CLOCK) as trace:
        WRITE_WAITS.make(trace)
        found = trace.rows(
            "SELECT ts, dur_ns FROM write_waits WHERE kind = 'sync' AND target = 'job' ORDER BY ts"
        )
    assert found == [(100, 300), (500, 500)]
