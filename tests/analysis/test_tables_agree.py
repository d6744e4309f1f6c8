"""Tables, lanes and exports that tell of the same thing give the same numbers."""

import pytest

from tests.support import perfetto
from tests.support.findings import FLUSHER, PROCESSES, S, bio, call, chain, merged, phase
from tests.support.page_events import ONE, PageEvents
from tests.support.traces import make_trace
from tracer.analysis.exchange.exporting import export
from tracer.analysis.findings.memory import pressure
from tracer.analysis.report import tables
from tracer.analysis.report.by_phase import by_phase
from tracer.analysis.timeline.axis import axis
from tracer.analysis.timeline.losses import losses
from tracer.analysis.timeline.samples import sample_lanes

CLOCK = {"name": "mono", "start_ns": 0, "end_ns": 100 * S}
JOB = PROCESSES[0]
TARGETS = [{"name": JOB["target"], "role": "target", "kind": "pid", "pid": JOB["pid"]}]


@pytest.fixture
def made(tmp_path):
    """Makes a trace of a job that trains all the time, or with another manifest."""

    def make(given, **manifest):
        return make_trace(tmp_path / "t.trace", given, **{"clock": CLOCK} | manifest)

    return make


def test_pages_by_phase_count_once_on_stacked_devices(made):
    disks = [
        {"dev": "8:0", "name": "sda", "bytes": 1 << 40},
        {"dev": "253:0", "name": "dm-0", "bytes": 1 << 30, "on": ["8:0"]},
    ]
    written = [
        {**bio(ts + later, 8, 4, tid=JOB["tid"]), "dev": dev}
        for ts in (10, 20)
        for dev, later in (("253:0", 0), ("8:0", 0.001))
    ]
    given = {"processes": [JOB], "phases": [phase("train", 0, 100)], "block": written}
    with made(given, disks=disks, targets=TARGETS) as trace:
        by = by_phase(trace, "phase")
        assert by[["phase", "flushes", "flushed_pages"]].values.tolist() == [["train", 2, 8]]
        assert tables.phases(trace)["written_pages"].tolist() == [8]
        assert tables.flushed_pages(trace)["pages"].sum() == 8


@pytest.mark.parametrize("told", [True, False])
def test_pages_that_others_or_nobody_known_dirtied_are_apart_by_phase(made, told):
    other = {"pid": 900, "tid": 900, "role": "other", "comm": "postgres"}
    given = merged(
        {"processes": [JOB, other, PROCESSES[3]], "phases": [phase("train", 0, 100)]},
        chain(FLUSHER, JOB["pid"], 11, 10, 0, 1),
        chain(FLUSHER, 900, 12, 20, 100, 2),
        {"block": [bio(2, 200, 4)]},
    )
    with made(given, targets=TARGETS if told else []) as trace:
        by = by_phase(trace, "phase").set_index("phase", drop=False)
    written = by[["flushes", "flushed_pages", "other_pages"]]
    if told:
        assert written.loc["train"].tolist() == [1, 1, 4]
        assert written.sum().tolist() == [1, 1, 6]
    else:
        assert (written["flushed_pages"].sum(), written["other_pages"].isna().all()) == (7, True)


def test_the_end_of_a_phase_belongs_to_the_next_one(made):
    given = {
        "processes": [JOB],
        "phases": [phase("step", 0, 10, step=0), phase("step", 10, 20, step=1)],
        "syscalls": [call("read", 10, 1)],
        "page_faults": [
            {"ts": 10 * S, "pid": JOB["pid"], "tid": JOB["tid"], "kind": "minor", "user": True}
        ],
        "block": [bio(10, 8, 4, tid=JOB["tid"])],
    }
    with made(given, targets=TARGETS) as trace:
        (row,) = tables.records(tables.phases(trace))
        assert (row["calls"], row["call_s"], row["faults"], row["written_pages"]) == (1, 1, 1, 4)
        assert by_phase(trace, "step")[["step", "calls"]].values.tolist() == [[1, 1]]


@pytest.mark.parametrize(("failed", "errors"), [(None, None), (0, 0), (-5, 1)])
def test_errors_of_requests_are_not_known_without_their_status(made, failed, errors):
    request = {"dev": "8:0", "sector": 8, "nr_sector": 8, "rwbs": "W", "tid": -1}
    given = [{**request, "ts": at, "event": event} for at, event in ((1, "issue"), (2, "complete"))]
    given[1]["error"] = failed
    # A request that has not completed tells nothing.
    given.append({**request, "ts": 3, "event": "issue", "sector": 80})
    with made({"block": given}) as trace:
        (row,) = tables.records(tables.block_latency(trace))
        assert (row["requests"], row["unfinished"], row["errors"]) == (2, 1, errors)


def test_files_of_one_name_on_two_devices_are_two(made):
    events = PageEvents()
    events.read(0, 3)
    events.read(0, 5, ino=77)
    events.read(0, 7, ino=78)
    pages = [{**row, "dev": "254:16"} if row["ino"] == 77 else row for row in events.events]
    files = [
        {"dev": "254:0", "ino": 12, "size": 1 << 20, "path": "/data"},
        {"dev": "254:16", "ino": 77, "size": 1 << 20, "path": "/data"},
        {"dev": "254:0", "ino": 78, "size": 1 << 20, "path": "/alone"},
    ]
    given = {**events.tables, "page_cache": pages, "files": files}
    with made(given, clock=events.clock, targets=ONE) as trace:
        found = tables.TABLES["reads_by_file"].of(trace)
        assert found["file"].tolist() == [
            "/alone", "/data, inode 77 of 254:16", "/data, inode 12 of 254:0",
        ]  # fmt: skip
        assert (found["accessed_mib"] * 256).tolist() == [7, 5, 3]


@pytest.mark.parametrize("page", [4096, 65536])
def test_sampled_pages_have_the_size_of_the_machine_s(made, page):
    rows = [
        {"ts": n * S, "name": name, "value": value, "unit": "pages"}
        for n in range(2, 90)
        for name, value in (("dirty_pages", 160.0), ("pswpout", 1600.0 * n))
    ]
    with made({"samples": rows}, host={"page_size": page, "memory_bytes": 1 << 40}) as trace:
        (lane,) = (one for one in sample_lanes(trace, axis(trace)) if "Dirty" in one.title)
        assert lane.unit == "MiB"
        assert lane.frame["value"].unique().tolist() == [160 * page / (1 << 20)]
        (swap,) = (one for one in pressure(trace) if one.topic == "swap")
        assert swap.value == 1600 * 87 * page / (1 << 20)


def test_a_gap_without_a_begin_is_drawn_from_the_begin_of_the_recording(made, tmp_path):
    start = 5000 * S
    lost = {"stream": "text", "cpu": 0, "to": start + S, "count": 5, "cause": "buffer overrun"}
    clock = {"name": "mono", "start_ns": start, "end_ns": start + 10 * S}
    read = {"ts": start + S, "pid": 7, "tid": 7, "name": "read", "dur_ns": S}
    with made({"syscalls": [read], "loss": [lost]}, clock=clock) as trace:
        export(trace, "perfetto", tmp_path / "out")
        (gap,) = losses(trace, axis(trace))[["from_s", "to_s"]].to_numpy().tolist()
    drawn = [one for one in perfetto.read(tmp_path / "out").slices if one.name == "buffer overrun"]
    assert [(one.start, one.end) for one in drawn] == [(start, start + S)]
    assert gap == [0, pytest.approx(1, rel=0.02)]
