"""Ends of phases: those that were marked, and those of processes that were killed."""

from __future__ import annotations

import pytest

from tests.support.timeline import TENTHS
from tests.support.traces import make_trace
from tracer.analysis.cli.query import query as query_verb
from tracer.analysis.exchange.drawing import Window, draw
from tracer.analysis.exchange.marks import Marks
from tracer.analysis.report.phases import phases as phase_table
from tracer.analysis.report.usage import usage
from tracer.analysis.timeline.phases import phases as phase_lane
from tracer.analysis.views.phases.partial_epochs import partial_epochs
from tracer.analysis.views.phases.phase_times import PHASE_TIMES, make_phase_times
from tracer.analysis.views.writing.flushes import flushes

JOB, HELPER, PEER, KWORKER = 7, 8, 20, 50
MS = 10**6
CLOCK = {"name": "mono", "start_ns": 0, "end_ns": 1000 * MS}
DEV = "254:0"
UNTIL = "SELECT until FROM phase_times ORDER BY row"


def phase(name, start, end, pid=JOB, tid=None, **more):
    """A phase, in ms."""
    return {
        "pid": pid, "tid": pid if tid is None else tid, "name": name, "start": start * MS,
        "end": None if end is None else end * MS, **more,
    }  # fmt: skip


def thread(tid, start, end, pid=JOB, **more):
    """A thread's life, in ms."""
    return {
        "pid": pid, "tid": tid, "role": "target", "target": "job", "comm": "python",
        "start_ns": None if start is None else start * MS,
        "end_ns": None if end is None else end * MS, **more,
    }  # fmt: skip


LATER = {"role": "other", "target": None, "comm": "cp"}
LIVES = [
    thread(JOB, None, 100),
    thread(JOB, 150, None, **LATER),
    # Nobody saw this thread end, but its number is another one's later.
    thread(HELPER, None, None),
    thread(HELPER, 300, None, pid=HELPER, **LATER),
    thread(PEER, None, None, pid=PEER, target="peer"),
    {"pid": KWORKER, "tid": KWORKER, "role": "flusher", "comm": "kworker/u8:1", "ppid": 2},
]
"""A job is killed at 100 ms, and from 150 ms on another process has its number."""


def test_a_phase_lasts_until_its_thread_ends(tmp_path):
    marked = [
        phase("marked", 10, 40),
        phase("killed", 10, None),
        phase("number reused", 10, None, tid=HELPER),
        phase("thread not known", 10, None) | {"tid": None},
        phase("living", 10, None, pid=PEER),
        phase("in no table", 10, None, pid=99),
        phase("process not known", 10, None) | {"pid": None, "tid": None},
        phase("later life", 160, None),
        phase("between the lives", 120, None),
    ]
    with make_trace(tmp_path / "t", {"phases": marked, "processes": LIVES}, clock=CLOCK) as trace:
        found = PHASE_TIMES.frame(trace)
    assert dict(zip(found["name"], (found["until"] // MS).fillna(-1), strict=True)) == {
        "marked": 40,
        "killed": 100,
        "number reused": 300,
        "thread not known": 100,
        "living": -1,
        "in no table": -1,
        "process not known": -1,
        "later life": -1,
        "between the lives": 120,
    }
    assert found["row"].tolist() == list(range(len(marked)))
    assert found["end"].notna().sum() == 1


def test_the_view_is_empty_without_phases_and_needs_no_processes(tmp_path):
    with make_trace(tmp_path / "none", {}) as trace:
        make_phase_times(trace)
        assert trace.rows("FROM phase_times") == []
    with make_trace(tmp_path / "alone", {"phases": [phase("train", 0, None)]}) as trace:
        make_phase_times(trace)
        assert trace.rows(UNTIL) == [(None,)]


def test_times_at_the_edge_of_what_is_possible_are_no_error(tmp_path):
    most = (1 << 63) - 1
    marked = [{**phase("train", 0, None), "start": start} for start in (-most - 1, 0, most)]
    lives = [{**LIVES[0], "end_ns": end} for end in (-most - 1, most)]
    with make_trace(tmp_path / "t", {"phases": marked, "processes": lives}) as trace:
        make_phase_times(trace)
        assert trace.rows(UNTIL) == [(None,)] * 3
    with make_trace(tmp_path / "u", {"phases": marked, "processes": lives[:1]}) as trace:
        make_phase_times(trace)
        assert trace.rows(UNTIL) == [(-most - 1,), (0,), (None,)]


def test_a_user_can_query_it(tmp_path, capsys):
    make_trace(tmp_path / "t", {"phases": [phase("train", 0, None)], "processes": LIVES}).close()
    query_verb(str(tmp_path / "t"), UNTIL, json=False, csv=True)
    assert capsys.readouterr().out.split() == ["until", str(100 * MS)]


KILLED = [
    phase("train", 0, None),
    phase("epoch", 0, 60, epoch=0),
    phase("epoch", 60, None, epoch=1),
]


def write(ms, ino, pid, page):
    """A page of a file that a process dirties, and that the flusher writes 1 ms later."""
    at = ms * MS
    flusher = {"pid": KWORKER, "tid": KWORKER, "dev": DEV}
    return {
        "dirty": {"ts": at, "pid": pid, "tid": pid, "event": "dirty_folio", "dev": DEV, "ino": ino},
        "file_writes": {
            "ts": at + MS - 1, "event": "writepages_start", "ino": ino, "sync_mode": 0, **flusher
        },
        "block": {
            "ts": at + MS, "event": "bio_queue", "sector": page * 8, "nr_sector": 8, "rwbs": "W",
            **flusher,
        },
    }  # fmt: skip


@pytest.fixture
def killed(tmp_path):
    """A trace of the killed job and of the process that has its number later; both write."""
    writes = [write(50, 12, JOB, 0), write(210, 13, JOB, 100), write(400, 14, PEER, 200)]
    tables = {table: [one[table] for one in writes] for table in writes[0]}
    tables |= {"phases": KILLED, "processes": LIVES}
    tables["samples"] = [
        {"ts": ms * MS, "name": "memory_used", "value": float(value), "unit": "bytes"}
        for ms, value in ((10, 1), (90, 2), (500, 99))
    ]
    with make_trace(tmp_path / "t", tables, clock=CLOCK) as trace:
        yield trace


def test_a_later_process_writes_in_no_phase_of_a_killed_one(killed):
    flushes(killed)
    found = killed.rows("SELECT ino, phase, dirtier_comm FROM flushes ORDER BY ts")
    assert found == [(12, "train", "python"), (13, None, "cp"), (14, None, "python")]


def test_pages_written_after_the_end_are_none_of_the_phase(killed):
    table = phase_table(killed).set_index("name")
    assert table["written_pages"].to_dict() == {"train": 1, "epoch": 1}
    assert table["unfinished"].to_dict() == {"train": 1, "epoch": 1}


def test_samples_after_the_end_are_not_of_the_training(killed):
    found = usage(killed)
    assert (found["samples"].max(), found["value"].max()) == (2, 2)


def test_an_epoch_of_a_killed_job_is_recorded_as_a_whole(killed):
    partial_epochs(killed)
    found = killed.rows("SELECT target, epoch, partial FROM partial_epochs ORDER BY epoch")
    assert found == [("job", 0, False), ("job", 1, False)]


def test_an_epoch_that_outlasts_the_recording_is_recorded_in_part(tmp_path):
    marked = [*KILLED, phase("epoch", 0, None, pid=PEER, epoch=1)]
    with make_trace(tmp_path / "t", {"phases": marked, "processes": LIVES}, clock=CLOCK) as trace:
        partial_epochs(trace)
        found = trace.rows("SELECT target, epoch, partial FROM partial_epochs ORDER BY ALL")
    assert found == [("job", 0, False), ("job", 1, False), ("peer", 1, True)]


def test_phases_are_drawn_until_their_thread_ends(killed):
    lane = phase_lane(killed, TENTHS).frame
    ends = [(row.name, row.from_s, row.to_s, row.ended) for row in lane.itertuples()]
    assert ends == [
        ("train", 0, pytest.approx(0.1), False),
        ("epoch", 0, pytest.approx(0.06), True),
        ("epoch", pytest.approx(0.06), pytest.approx(0.1), False),
    ]
    drawn = [
        (marks.name.values[code], int(ts), int(dur))
        for marks in draw(killed, Window(0, 1000 * MS, 1000 * MS))
        if isinstance(marks, Marks) and marks.category == "phase"
        for code, ts, dur in zip(marks.name.codes, marks.ts, marks.dur, strict=True)
    ]
    assert drawn == [
        ("train", 0, 100 * MS),
        ("epoch", 0, 60 * MS),
        ("epoch", 60 * MS, 40 * MS),
    ]
