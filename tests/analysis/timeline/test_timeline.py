"""A trace over time: small traces with known answers, and what bounds large and hostile ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.recordings import make_hostile, make_recording
from tests.support.timeline import MS, TENTHS, S, by_bin, made, requests
from tests.support.traces import make_trace
from tracer.analysis.timeline.axis import Axis, axis, outside
from tracer.analysis.timeline.binned import REST, counted, covered
from tracer.analysis.timeline.events import calls, dirtied, faults, stalls, writebacks, written
from tracer.analysis.timeline.heat import files
from tracer.analysis.timeline.lane import Kind
from tracer.analysis.timeline.lanes import timeline
from tracer.analysis.timeline.losses import losses
from tracer.analysis.timeline.phases import phases
from tracer.analysis.timeline.samples import sample_lanes
from tracer.probes.errors import BadTrace

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("length", "most", "width"),
    [(S, 2000, MS), (60 * S, 2000, 50 * MS), (1, 2000, 1), (1999, 2000, 1), (2000, 2000, 2),
     (1 << 62, 2000, 5 * 10**15)],
)  # fmt: skip
def test_bins_are_1_2_or_5_times_a_power_of_ten_wide(tmp_path, length, most, width):
    clock = {"name": "mono", "start_ns": 7, "end_ns": 7 + length}
    with make_trace(tmp_path / "t", {}, clock=clock) as trace:
        found = axis(trace, most)
    assert (found.width_ns, found.start_ns) == (width, 7)
    assert found.bins <= most
    assert found.width_ns * (found.bins - 1) <= length


def test_without_an_end_the_axis_ends_with_the_last_event(tmp_path):
    clock = {"name": "mono", "start_ns": 5, "end_ns": None}
    rows = {"writeback": [{"ts": ts, "event": "start"} for ts in (9, 4005)], "block": []}
    with make_trace(tmp_path / "t", rows, clock=clock) as trace:
        assert axis(trace).end_ns == 4005


def test_events_that_a_clock_jump_put_outside_are_counted_and_in_no_bin(tmp_path):
    starts = [{"ts": ts, "event": "start", "reason": "sync"} for ts in (-5, 3, 2 * S, 1 << 62)]
    phase = {"name": "a", "pid": 1, "tid": 1}
    marks = [{"start": -9, "end": 5, **phase}, {"start": -9, "end": -8, **phase}]
    with made(tmp_path, writeback=starts, phases=marks) as trace:
        found = axis(trace)
        assert outside(trace, found) == {"writeback": 3, "phases": 1}
        assert by_bin(writebacks(trace, found).frame, "sync") == {0: 1}


def test_events_are_counted_bin_by_bin_and_series_by_series(tmp_path):
    def start(ms, reason, event="start"):
        return {"ts": ms * MS, "event": event, "reason": reason}

    rows = [
        start(0, "sync"), start(99, "sync"), start(100, "sync"), start(950, "periodic"),
        start(500, "periodic", "written"), start(550, None),
    ]  # fmt: skip
    with made(tmp_path, writeback=rows) as trace:
        lane = writebacks(trace, TENTHS)
    assert list(lane.frame) == ["from_s", "to_s", "sync", "not known", "periodic"]
    assert by_bin(lane.frame, "sync") == {0: 2, 1: 1}
    assert by_bin(lane.frame, "periodic") == {9: 1}
    assert by_bin(lane.frame, "not known") == {5: 1}
    assert len(lane.frame) == 10 and lane.unit == "write-backs in 100 ms"


def test_beyond_six_series_the_smallest_are_the_rest(tmp_path):
    rows = [
        {"ts": n, "event": "start", "reason": f"r{reason}"}
        for reason in range(9)
        for n in range(10 - reason)
    ]
    with made(tmp_path, writeback=rows) as trace:
        frame = writebacks(trace, TENTHS).frame
    assert list(frame)[2:] == ["r0", "r1", "r2", "r3", "r4", REST]
    assert frame[REST].sum() == 5 + 4 + 3 + 2


def test_a_rate_is_of_the_second_and_faults_keep_their_kind(tmp_path):
    fault = {"ts": 0, "user": True}
    rows = [{**fault, "kind": kind} for kind in ("minor", "minor", "minor", "unknown")]
    with made(tmp_path, page_faults=rows) as trace:
        frame = faults(trace, TENTHS).frame
    assert by_bin(frame, "minor") == {0: 30}
    assert by_bin(frame, "neither minor nor major, or not known") == {0: 10}


def test_a_call_counts_in_each_bin_with_the_time_that_it_covers(tmp_path):
    rows = [
        {"ts": 50 * MS, "name": "read", "dur_ns": 200 * MS},
        {"ts": 210 * MS, "name": "read", "dur_ns": 10 * MS},
        {"ts": 900 * MS, "name": "futex", "dur_ns": 50 * S},
        {"ts": 0, "name": "poll"},
        {"ts": 0, "name": "bad", "dur_ns": -7},
    ]
    with made(tmp_path, syscalls=rows) as trace:
        frame = calls(trace, TENTHS).frame
    assert by_bin(frame, "read") == pytest.approx({0: 0.5, 1: 1, 2: 0.6})
    assert by_bin(frame, "futex") == pytest.approx({9: 1})
    assert list(frame)[2:] == ["read", "futex"]


spans = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(-S, S - 1), st.integers(0, 2 * S)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=25, deadline=None)
@given(spans=spans)
def test_no_time_is_lost_or_made_when_intervals_are_cut_into_bins(tmp_path_factory, spans):
    rows = [{"ts": ts, "name": name, "dur_ns": ns} for name, ts, ns in spans]
    query = "SELECT name AS series, ts AS start, dur_ns AS ns FROM syscalls"
    with made(tmp_path_factory.mktemp("spans"), syscalls=rows) as trace:
        frame = covered(trace, TENTHS, query)
        events = counted(trace, TENTHS, "SELECT ts, name AS series, dur_ns AS amount FROM syscalls")
    inside = sum(max(0, min(ts + ns, S - 1) - max(ts, 0)) for _, ts, ns in spans)
    assert frame.drop(columns=["from_s", "to_s"]).to_numpy().sum() / 10 * S == pytest.approx(
        inside, abs=1
    )
    whole = sum(ns for _, ts, ns in spans if ts >= 0)
    assert events.drop(columns=["from_s", "to_s"]).to_numpy().sum() == pytest.approx(whole)
    assert (frame.to_numpy() >= 0).all()


def test_stalls_are_those_of_the_view_and_fetches_of_steps(tmp_path):
    def call(ms, name, long):
        return {"ts": ms * MS, "pid": 1, "tid": 1, "name": name, "dur_ns": long * MS}

    with made(
        tmp_path,
        processes=[{"pid": 1, "tid": 1, "role": "target", "target": "job"},
                   {"pid": 2, "tid": 2, "role": "other"}],
        dirty=[{"ts": 0, "tid": tid, "event": "balance_dirty_pages", "pause_ns": 50 * MS}
               for tid in (1, 2)],
        syscalls=[call(100, "fsync", 100), call(300, "read", 100), call(400, "read", 100),
                  call(700, "write", 50), {**call(800, "fsync", 1), "dur_ns": None}],
        block=[{"ts": 350 * MS, "tid": 1, "event": "bio_queue", "nr_sector": 8, "rwbs": "R"}],
        file_writes=[{"ts": 710 * MS, "tid": 1, "event": "direct_start"}],
        page_faults=[{"ts": 900 * MS, "pid": 1, "tid": 1, "kind": "major", "user": True}],
        phases=[{"start": 500 * MS, "end": 600 * MS, "pid": 1, "tid": 1, "name": "step"},
                {"start": 500 * MS, "end": 525 * MS, "pid": 1, "tid": 1, "name": "fetch"}],
    ) as trace:  # fmt: skip
        lane = stalls(trace, TENTHS)
        view = trace.sql("SELECT sum(dur_ns) AS ns FROM stalls")["ns"][0]
    frame = lane.frame
    assert by_bin(frame, "dirty throttling") == pytest.approx({0: 0.5})  # of the target alone
    assert by_bin(frame, "sync") == pytest.approx({1: 1})
    assert by_bin(frame, "read") == pytest.approx({3: 1})  # the one that queued a read
    assert by_bin(frame, "direct transfer") == pytest.approx({7: 0.5})
    assert by_bin(frame, "fetch") == pytest.approx({5: 0.25})
    drawn = frame.drop(columns=["from_s", "to_s", "fetch"]).to_numpy().sum() * TENTHS.width_ns
    assert drawn == pytest.approx(view)


def test_a_thread_that_waits_counts_once_at_a_time(tmp_path):
    def call(ms, name, long, tid=1):
        return {"ts": ms * MS, "pid": 1, "tid": tid, "name": name, "dur_ns": long * MS}

    def phase(name, ms, end):
        return {"start": ms * MS, "end": end * MS, "pid": 1, "tid": 1, "name": name}

    def queued(ms, tid=1):
        return {"ts": ms * MS, "tid": tid, "event": "bio_queue", "nr_sector": 8, "rwbs": "R"}

    with made(
        tmp_path,
        processes=[{"pid": 1, "tid": tid, "role": "target", "target": "job"} for tid in (1, 2)],
        phases=[phase("step", 100, 300), phase("fetch", 100, 200),
                phase("step", 400, 500), phase("fetch", 400, 450)],
        syscalls=[
            call(100, "read", 100),  # as long as the fetch
            call(120, "read", 60, tid=2),  # of another thread
            call(210, "read", 10),
            call(440, "read", 40),  # ends after the fetch
            call(600, "fsync", 100), call(800, "fsync", 900),
        ],
        dirty=[{"ts": ms * MS, "tid": 1, "event": "balance_dirty_pages", "pause_ns": 20 * MS}
               for ms in (620, 730, 990)],
        block=[queued(101), queued(121, tid=2), queued(211), queued(441)],
    ) as trace:  # fmt: skip
        lane = stalls(trace, TENTHS)
        queried = trace.sql(lane.query)
    assert by_bin(lane.frame, "fetch") == pytest.approx({1: 1, 4: 0.5})
    assert by_bin(lane.frame, "read") == pytest.approx({1: 0.6, 2: 0.1, 4: 0.3})
    assert by_bin(lane.frame, "sync") == pytest.approx({6: 1, 8: 1, 9: 1})
    assert by_bin(lane.frame, "dirty throttling") == pytest.approx({7: 0.2})
    ms = queried.groupby("series")["amount"].sum() / MS
    assert ms.round().to_dict() == {"dirty throttling": 20, "fetch": 150, "read": 100, "sync": 300}


def test_a_wait_that_began_before_the_recording_is_drawn_from_its_start(tmp_path):
    step = {"start": -400 * MS, "end": 350 * MS, "pid": 1, "tid": 1}
    phases = [step | {"name": "step"}, step | {"name": "fetch", "end": 250 * MS}]
    with made(tmp_path, phases=phases) as trace:
        lane = stalls(trace, TENTHS)
    assert by_bin(lane.frame, "fetch") == pytest.approx({0: 1, 1: 1, 2: 0.5})


def test_without_calls_stalls_are_fetches_alone_and_that_is_said(tmp_path):
    phases = [{"start": 0, "end": 100 * MS, "pid": 1, "tid": 1, "name": name}
              for name in ("step", "fetch")]  # fmt: skip
    with made(tmp_path, phases=phases, dirty=[]) as trace:
        lane = stalls(trace, TENTHS)
    assert by_bin(lane.frame, "fetch") == pytest.approx({0: 1})
    assert "Waiting for storage needs the tables processes and syscalls." in lane.note


def test_written_back_pages_have_their_reason_and_exclude_the_recorders_files(tmp_path):
    bracket = {"tid": 50, "bdi": "254:0", "reason": "periodic"}
    inode = {"tid": 50, "dev": "254:0", "event": "start"}
    tables = {
        "block": requests((110, 111, 112, 0, 256), (310, 311, 312, 9000, 512)),
        "writeback": [{"ts": 100 * MS, "event": "start", **bracket}],
        "inode_writeback": [{"ts": 101 * MS, "ino": 7, **inode},
                            {"ts": 301 * MS, "ino": 8, **inode}],
    }  # fmt: skip
    with make_trace(tmp_path / "t", tables, own_files={"254:0": [8]}) as trace:
        assert by_bin(written(trace, TENTHS).frame, "periodic") == pytest.approx({1: 10})
        named = files(trace, TENTHS).frame
    assert named[["row", "file", "pages"]].to_numpy().tolist() == [[0, "inode 7 of 254:0", 256]]


def test_written_data_count_by_their_length_not_by_the_pages_that_they_touch(tmp_path):
    rows = [row | {"sector": 6, "nr_sector": 4} for row in requests((110, 111, 112, 0, 1))]
    with made(tmp_path, block=rows) as trace:
        frame = written(trace, TENTHS).frame
    assert by_bin(frame, "other") == pytest.approx({1: 4 * 512 * 10 / (1 << 20)})


def test_folios_are_made_dirty_by_threads_of_a_role(tmp_path):
    with made(
        tmp_path,
        processes=[{"pid": 1, "tid": 1, "role": "target"}],
        dirty=[{"ts": 0, "tid": 1, "event": "dirty_folio"},
               {"ts": 0, "tid": 9, "event": "dirty_folio"},
               {"ts": 0, "tid": 1, "event": "mark_inode_dirty"}],
    ) as trace:  # fmt: skip
        frame = dirtied(trace, TENTHS).frame
    assert (frame["target"].sum(), frame["other"].sum()) == (10, 10)


def gap(begin, end, count=1, stream="target-cpu0"):
    return {"stream": stream, "cpu": 0, "from": begin, "to": end, "count": count, "cause": "full"}


def test_losses_are_stretches_of_whole_bins(tmp_path):
    lost = [gap(150 * MS, 250 * MS, 5), gap(260 * MS, 270 * MS, 7, "machine-cpu0"),
            gap(800 * MS, None, None)]  # fmt: skip
    with made(tmp_path, loss=lost) as trace:
        frame = losses(trace, TENTHS)
    assert frame["from_s"].tolist() == pytest.approx([0.1, 0.8])
    assert frame["to_s"].tolist() == pytest.approx([0.3, 1.0])
    assert frame["gaps"].tolist() == [2, 1] and frame["streams"].tolist() == [2, 1]
    assert frame["events"].iloc[0] == 12 and np.isnan(frame["events"].iloc[1])


def test_many_gaps_are_few_stretches(tmp_path):
    fine = Axis(0, S - 1, MS // 2)
    lost = [gap(n * 3 * MS, n * 3 * MS + 1, 2) for n in range(300)]
    with made(tmp_path, loss=lost) as trace:
        frame = losses(trace, fine)
    assert len(frame) <= 200
    assert frame["events"].sum() == 600


def test_samples_are_drawn_by_topic_and_what_is_always_0_is_not(tmp_path):
    def sample(ms, name, value, unit, **more):
        return {"ts": ms * MS, "name": name, "value": value, "unit": unit, **more}

    rows = [
        sample(0, "cpu_use", 50.0, "%", target="job"),
        sample(10, "cpu_use", 70.0, "%", target="job"),
        sample(500, "cpu_use", 80.0, "%", target="job"), sample(0, "cpu_use", 90.0, "%"),
        sample(0, "iowait", 0.0, "%"), sample(0, "rss", 3.0 * (1 << 20), "bytes", target="job"),
        sample(0, "cpu_time", 9.0, "s"), sample(600, "cpu_use", float("nan"), "%"),
    ]  # fmt: skip
    with made(tmp_path, samples=rows) as trace:
        lanes = {lane.title: lane for lane in sample_lanes(trace, TENTHS)}
    assert lanes.keys() == {"CPU use (100 % is one CPU)", "Memory"}
    cpu = lanes["CPU use (100 % is one CPU)"]
    found = {name: own["value"].tolist() for name, own in cpu.frame.groupby("series")}
    assert found == {"cpu use, job": [60.0, 80.0], "cpu use, machine": [90.0]}
    assert "1 series that were always 0" in cpu.note
    memory = lanes["Memory"]
    assert (memory.unit, memory.frame["value"].tolist()) == ("MiB", [3.0])


def test_a_trace_has_the_lanes_that_its_tables_give(tmp_path):
    said = []
    with make_recording(tmp_path / "t") as trace:
        found = timeline(trace, said.append)
    assert found.failed == {} and found.outside == {}
    groups = list(dict.fromkeys(lane.group for lane in found.lanes))
    assert groups == [
        "Phases", "Write-back", "Stalls", "Memory", "Block devices", "System calls", "Samples",
        "Heat maps",
    ]  # fmt: skip
    assert all(lane.query for lane in found.lanes)
    assert len(found.losses) == 1 and any("phases" in one for one in said)


def test_the_query_of_each_lane_gives_its_numbers(tracer, tmp_path):
    with make_recording(tmp_path / "t") as trace:
        lanes = {lane.title: lane for lane in timeline(trace).lanes}
        for title, lane in lanes.items():
            assert len(trace.sql(lane.query)), title
    faulted = lanes["Page faults, by kind"]
    rows = tracer("query", tmp_path / "t", faulted.query, "--json").json
    a_second = faulted.frame.drop(columns=["from_s", "to_s"]).to_numpy().sum()
    width = faulted.frame["to_s"].iloc[0]
    assert sum(row["amount"] for row in rows) == pytest.approx(a_second * width)
    for title in ("Threads that wait for storage or data", "Written back, by reason"):
        assert tracer("query", tmp_path / "t", lanes[title].query, "--json").json


def test_an_empty_trace_has_no_lanes_and_says_of_what(tmp_path):
    from tracer.probes.catalogue import TABLES

    with make_trace(tmp_path / "t", {name: [] for name in TABLES}) as trace:
        found = timeline(trace)
    assert found.lanes == [] and len(found.losses) == 0
    assert "Phases" in found.empty and "Page faults, by kind" in found.empty


def test_each_lane_says_which_table_it_lacks(tmp_path):
    with make_trace(tmp_path / "t", {}) as trace:
        for make in (writebacks, written, dirtied, faults, calls, phases, sample_lanes):
            with pytest.raises(BadTrace, match="has no table"):
                make(trace, TENTHS)
        assert stalls(trace, TENTHS) is None
        assert timeline(trace).lanes == []


def test_lanes_of_a_hostile_trace_are_bounded(tmp_path):
    with make_hostile(tmp_path / "t", processes=1000) as trace:
        found = timeline(trace)
    assert found.failed == {}
    assert found.outside["syscalls"] == 12
    for lane in found.lanes:
        most = {Kind.PLACES: 600 * 400, Kind.FILES: 600 * 25}.get(lane.kind, 12_000)
        assert len(lane.frame) <= most, lane.title
        assert len(lane.frame.columns) <= 10, lane.title
