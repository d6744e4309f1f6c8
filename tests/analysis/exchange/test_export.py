"""Exported traces, decoded by the other tools' formats and compared with the tables."""

import csv
import gzip
import json

import pandas as pd
import pytest

from tests.support import perfetto
from tests.support.traces import make_trace
from tracer.analysis.exchange.exporting import export
from tracer.probes.errors import UsageError

HOSTILE = '<script>alert(1)</script>\x1b[31m\n"=cmd|'


def phase(name, start, end, tid=7, **more):
    return {"name": name, "start": start, "end": end, "pid": 7, "tid": tid, **more}


def call(ts, name, dur, ret=0, tid=7):
    return {"ts": ts, "pid": 7, "tid": tid, "nr": 1, "name": name, "dur_ns": dur, "ret": ret}


def block(ts, event, sector, rwbs="W"):
    row = {"ts": ts, "tid": 9, "pid": 9, "event": event, "dev": "8:0", "sector": sector}
    return {**row, "nr_sector": 8, "rwbs": rwbs, "error": 0 if event == "complete" else None}


def work(ts, event, reason):
    return {"ts": ts, "tid": 9, "pid": 9, "event": event, "reason": reason, "bdi": "8:0"}


TABLES = {
    "processes": [
        {"pid": 7, "tid": 7, "comm": HOSTILE, "role": "target"},
        {"pid": 7, "tid": 8, "comm": "loader", "role": "target"},
    ],
    "phases": [
        phase("train", 0, 1000),
        phase("epoch", 0, 1000, epoch=0),
        phase("step", 0, 400, epoch=0, step=0),
        phase("forward", 0, 150, epoch=0, step=0),
        phase("backward", 150, 400, epoch=0, step=0),
        phase("step", 400, 1000, epoch=0, step=1),
        phase("checkpoint", 900, None),
        phase("fetch", 10, 20, tid=8),
    ],
    "syscalls": [
        call(10, "write", 30, 4096),
        call(40, "fsync", 300, -5),
        call(500, "read", None, None),
        call(5, HOSTILE, 1, tid=8),
    ],
    "block": [
        block(100, "bio_queue", 64),
        block(110, "bio_queue", 128),
        block(150, "issue", 64),
        block(160, "issue", 128),
        block(250, "complete", 128),
        block(300, "complete", 64),
    ],
    "writeback": [
        work(90, "start", "periodic"),
        work(200, "written", "periodic"),
        work(210, "start", "sync"),
        work(260, "written", "sync"),
        work(270, "start", "sync"),
    ],
    "page_faults": [
        {"ts": 33, "pid": 7, "tid": 7, "address": 2**63, "ip": 1, "kind": "major", "user": True},
    ],
    "dirty": [
        {"ts": ts, "tid": 7, "event": "dirty_folio", "dev": "8:0", "ino": 5, "index": 0}
        for ts in (1, 2, 10_000_001, 30_000_000)
    ],
    "samples": [
        {"ts": 50, "name": "cpu.busy", "value": 0.5, "unit": "share"},
        {"ts": 60, "name": "cpu.busy", "value": float("nan"), "unit": "share"},
        {"ts": 70, "name": "cpu.busy", "value": 0.75, "unit": "share"},
    ],
    "loss": [
        {"stream": "target", "cpu": 0, "from": 20, "to": 80, "count": 3, "cause": "buffer overrun"},
        {"stream": "target", "cpu": 1, "from": 700, "cause": "torn end"},
    ],
}

STUCK = {
    "block": [
        block(90, "bio_queue", 32),
        block(100, "bio_queue", 64),
        block(110, "bio_queue", 128),
        block(140, "issue", 32),
        block(150, "issue", 64),
        block(160, "issue", 128),
        block(160, "complete", 32),
        block(250, "complete", 128),
    ]
}
"""Requests of which the second did not complete."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    clock = {"name": "mono", "start_ns": 0, "end_ns": 1000}
    with make_trace(tmp_path_factory.mktemp("trace") / "t", TABLES, clock=clock) as made:
        yield made


def drawn(trace, tmp_path, **options):
    export(trace, "perfetto", tmp_path / "out.pftrace", **options)
    return perfetto.read(tmp_path / "out.pftrace")


class TestPerfetto:
    def test_phases_nest_on_their_thread(self, trace, tmp_path):
        found = drawn(trace, tmp_path)
        (thread,) = (u for u, t in found.tracks.items() if t.thread.tid == 7)
        assert [(s.name, s.start, s.end, s.depth) for s in found.on(thread)] == [
            ("train", 0, 1000, 0),
            ("epoch", 0, 1000, 1),
            ("step", 0, 400, 2),
            ("forward", 0, 150, 3),
            ("backward", 150, 400, 3),
            ("step", 400, 1000, 2),
            ("checkpoint", 900, 1000, 3),
        ]
        assert found.on(thread)[5].notes == {"epoch": 0, "step": 1}
        assert found.tracks[thread].thread.thread_name == HOSTILE
        (process,) = (t.process for t in found.tracks.values() if t.HasField("process"))
        assert (process.pid, process.process_name) == (7, HOSTILE)

    def test_calls_are_slices_below_their_thread(self, trace, tmp_path):
        found = drawn(trace, tmp_path)
        calls = found.on(*found.named("system calls"))
        assert [(s.name, s.start, s.end, s.notes) for s in calls] == [
            (HOSTILE, 5, 6, {"ret": 0}),
            ("write", 10, 40, {"ret": 4096}),
            ("fsync", 40, 340, {"ret": -5}),
        ]
        parents = {found.tracks[found.tracks[s.track].parent_uuid].thread.tid for s in calls}
        assert parents == {7, 8}
        assert ("read", 500) in [(i.name, i.start) for i in found.instants]

    def test_requests_that_overlap_are_on_lanes_of_one_name(self, trace, tmp_path):
        found = drawn(trace, tmp_path)
        served = found.on(*found.named("requests in service"))
        assert [(s.start, s.end, s.depth, s.notes["sector"]) for s in served] == [
            (150, 300, 0, 64),
            (160, 250, 0, 128),
        ]
        assert served[0].notes["rwbs"] == "W"
        queued = found.on(*found.named("requests queued"))
        assert [(s.start, s.end) for s in queued] == [(100, 150), (110, 160)]

    def test_a_request_that_did_not_complete_is_an_instant_at_its_issue(self, tmp_path):
        with make_trace(tmp_path / "t", STUCK) as trace:
            found = drawn(trace, tmp_path)
            later = drawn(trace, tmp_path, start_s=170e-9, end_s=300e-9, force=True)
        served = found.named("requests in service")
        (stuck,) = found.instants
        assert (stuck.name, stuck.start, stuck.notes["sector"]) == ("write", 150, 64)
        assert stuck.track in served and "error" not in stuck.notes
        assert [(s.start, s.end) for s in found.on(*served)] == [(140, 160), (160, 250)]
        queued = found.on(*found.named("requests queued"))
        assert [(s.start, s.end) for s in queued] == [(90, 140), (100, 150), (110, 160)]
        assert not later.instants and [(s.start, s.end) for s in later.slices] == [(170, 250)]

    def test_each_of_many_requests_in_flight_has_its_own_times(self, tmp_path):
        rows, true = [], set()
        for n in range(600):  # the later a request is issued, the later it completes
            dev, issued, done = f"8:{n % 2}", 1000 + n, 10_000 + 10 * n
            times = (("bio_queue", 300 + n), ("issue", issued), ("complete", done))
            rows += [{**block(ts, event, 8 * n), "dev": dev} for event, ts in times]
            true |= {(8 * n, 300 + n, issued), (8 * n, issued, done)}
        rows.sort(key=lambda row: row["ts"])
        with make_trace(tmp_path / "t", {"block": rows}) as trace:
            found = drawn(trace, tmp_path)
        assert len(found.slices) == 1200 and not found.instants
        assert {(s.notes["sector"], s.start, s.end) for s in found.slices} == true

    def test_write_backs_by_reason_below_their_device(self, trace, tmp_path):
        found = drawn(trace, tmp_path)
        spans = {
            track.name: [(s.start, s.end) for s in found.on(uuid)]
            for uuid, track in found.tracks.items()
            if track.name.startswith("write-back")
        }
        assert spans == {"write-back: periodic": [(90, 200)], "write-back: sync": [(210, 260)]}
        devices = {
            found.tracks[found.tracks[u].parent_uuid].name for u in found.named("write-back: sync")
        }
        assert devices == {"block device 8:0"}

    def test_faults_samples_dirty_folios_and_losses(self, trace, tmp_path):
        found = drawn(trace, tmp_path)
        (fault,) = (i for i in found.instants if i.name == "major fault")
        assert fault.notes["address"] == 2**63
        (busy,) = found.named("cpu.busy")
        assert found.counters[busy] == [(50, 0.5), (70, 0.75)]
        assert found.tracks[busy].counter.unit_name == "share"
        (folios,) = found.named("folios made dirty, per 10 ms")
        ms = 1_000_000
        assert found.counters[folios] == [
            (0, 2),
            (10 * ms, 1),
            (20 * ms, 0),
            (30 * ms, 1),
            (40 * ms, 0),
        ]
        lost = found.on(*found.named("lost from target"))
        assert [(s.name, s.start, s.end) for s in lost] == [
            ("buffer overrun", 20, 80),
            ("torn end", 700, 1000),
        ]
        assert (lost[0].notes["count"], "count" in lost[1].notes) == (3, False)

    def test_a_window(self, trace, tmp_path):
        found = drawn(trace, tmp_path, start_s=200e-9, end_s=350e-9)
        assert {s.name for s in found.slices} >= {"fsync", "backward", "step", "train"}
        assert not {s.name for s in found.slices} & {"forward", "checkpoint"}

    def test_slices_end_with_the_window(self, trace, tmp_path):
        found = drawn(trace, tmp_path, start_s=200e-9, end_s=350e-9)
        (thread,) = (u for u, t in found.tracks.items() if t.thread.tid == 7)
        assert [(s.name, s.start, s.end, s.notes["dur_ns"]) for s in found.on(thread)] == [
            ("train", 200, 350, 1000),
            ("epoch", 200, 350, 1000),
            ("step", 200, 350, 400),
            ("backward", 200, 350, 250),
        ]
        (fsync,) = found.on(*found.named("system calls"))
        assert (fsync.start, fsync.end, fsync.notes) == (200, 340, {"ret": -5, "dur_ns": 300})
        served = found.on(*found.named("requests in service"))
        spans = {(s.start, s.end, s.notes["dur_ns"]) for s in served}
        assert spans == {(200, 300, 150), (200, 250, 90)}
        (whole,) = found.on(*found.named("write-back: sync"))
        assert (whole.start, whole.end) == (210, 260) and "dur_ns" not in whole.notes

    def test_counters_of_a_while_lie_in_the_window(self, tmp_path):
        clock = {"name": "mono", "start_ns": 0, "end_ns": 40_000_000}
        with make_trace(tmp_path / "t", TABLES, clock=clock) as trace:
            found = drawn(trace, tmp_path, start_s=0.010000001, end_s=0.035)
        (folios,) = found.named("folios made dirty, per 10 ms")
        ms = 1_000_000
        expected = [(10 * ms + 1, 1), (20 * ms, 0), (30 * ms, 1), (35 * ms, 0)]
        assert found.counters[folios] == expected

    @pytest.mark.slow
    def test_many_names_begin_their_numbers_anew(self, tmp_path):
        rows = [call(10 * n, f"call {n}", 5) for n in range(70_000)]
        with make_trace(tmp_path / "t", {"syscalls": rows}) as trace:
            found = drawn(trace, tmp_path)
        assert [(s.name, s.start) for s in found.slices] == [
            (f"call {n}", 10 * n) for n in range(70_000)
        ]


class TestChrome:
    def events(self, path):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt") as file:
            return json.load(file)["traceEvents"]

    @pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
    def test_the_same_marks(self, trace, tmp_path, name):
        said = export(trace, "chrome", tmp_path / name)
        found = self.events(tmp_path / name)
        assert said["marks"] == sum(e["ph"] != "M" for e in found)
        slices = {(e["name"], e["ts"], e["dur"]) for e in found if e["ph"] == "X"}
        assert {("fsync", 0.04, 0.3), ("backward", 0.15, 0.25), ("write", 0.15, 0.15)} <= slices
        (fsync,) = (e for e in found if e["name"] == "fsync")
        assert (fsync["pid"], fsync["tid"], fsync["args"]) == (7, 7, {"ret": -5})
        counters = [e["args"]["value"] for e in found if e["name"] == "cpu.busy (share)"]
        assert counters == [0.5, 0.75]
        assert [e["args"]["address"] for e in found if e["name"] == "major fault"] == [2**63]
        assert any(e["args"]["name"] == HOSTILE for e in found if e["ph"] == "M")

    def test_slices_end_with_the_window(self, trace, tmp_path):
        export(trace, "chrome", tmp_path / "out", start_s=200e-9, end_s=350e-9)
        (fsync,) = (e for e in self.events(tmp_path / "out") if e["name"] == "fsync")
        assert (fsync["ts"], fsync["dur"], fsync["args"]["dur_ns"]) == (0.2, 0.14, 300)

    def test_a_request_that_did_not_complete_is_an_instant(self, tmp_path):
        with make_trace(tmp_path / "t", STUCK) as trace:
            export(trace, "chrome", tmp_path / "out")
        found = self.events(tmp_path / "out")
        assert [(e["ts"], e["args"]["sector"]) for e in found if e["ph"] == "i"] == [(0.15, 64)]


class TestTables:
    def test_csv_has_each_table_and_what_is_derived(self, trace, tmp_path):
        said = export(trace, "csv", tmp_path / "out")
        assert {p.stem for p in (tmp_path / "out").iterdir()} == said.keys()
        assert {"requests", "flushes", "steps", "syscalls", "loss"} <= said.keys()
        with (tmp_path / "out/syscalls.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["name"] for row in rows] == ["write", "fsync", "read", HOSTILE]
        assert (rows[1]["ret"], rows[2]["dur_ns"]) == ("-5", "")
        with (tmp_path / "out/requests.csv").open(newline="") as file:
            assert [r["service_latency_ns"] for r in csv.DictReader(file)] == ["150", "90"]

    def test_parquet_reads_back_as_it_was(self, trace, tmp_path):
        export(trace, "parquet", tmp_path / "out")
        found = pd.read_parquet(tmp_path / "out/page_faults.parquet")
        assert found["address"].tolist() == [2**63]
        assert len(pd.read_parquet(tmp_path / "out/phases.parquet")) == len(TABLES["phases"])

    def test_a_table_without_rows_has_its_columns(self, tmp_path):
        with make_trace(tmp_path / "t", {"block": [], "phases": []}) as trace:
            for format in ("csv", "parquet"):
                export(trace, format, tmp_path / format)
        for name in ("requests", "flushes", "steps", "phases"):
            columns = pd.read_parquet(tmp_path / f"parquet/{name}.parquet").columns.tolist()
            assert columns == pd.read_csv(tmp_path / f"csv/{name}.csv").columns.tolist()
            assert len(columns) > 5

    def test_a_window(self, trace, tmp_path):
        said = export(trace, "csv", tmp_path / "out", start_s=200e-9, end_s=350e-9)
        assert (said["syscalls"], said["block"], said["processes"]) == (1, 2, 2)

    def test_a_request_that_did_not_complete_lies_in_all_later_times(self, tmp_path):
        found = []
        with make_trace(tmp_path / "t", STUCK) as trace:
            for at in (50, 105, 200, 900):
                window = {"start_s": at * 1e-9, "end_s": at * 1e-9}
                export(trace, "csv", tmp_path / f"{at}", **window)
                found.append(pd.read_csv(tmp_path / f"{at}/requests.csv")["sector"].tolist())
        assert found == [[], [32, 64], [64, 128], [64]]


class TestOutput:
    def test_an_existing_output_is_not_touched(self, trace, tmp_path):
        for format, name in (("perfetto", "a"), ("csv", "b")):
            export(trace, format, tmp_path / name)
            with pytest.raises(UsageError, match="exists"):
                export(trace, format, tmp_path / name)
            export(trace, format, tmp_path / name, force=True)
        (tmp_path / "b/letter.txt").write_text("mine")
        with pytest.raises(UsageError, match="letter"):
            export(trace, "csv", tmp_path / "b", force=True)
        with pytest.raises(UsageError, match="another name"):
            export(trace, "perfetto", tmp_path / "b", force=True)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--format", "svg"), "no format"),
            (("--from", "nan"), "is not a valid time"),
            (("--from", "2", "--to", "1"), "before"),
            (("--to", "-0.5"), "--to -0.5 lies before the begin of the recording; give 0 or more"),
            (("--from", "500"), "--from 500 lies after the end of the recording; give less than "),
        ],
    )
    def test_impossible_arguments_are_refused_in_one_line(self, trace, tracer, arguments, said):
        ran = tracer("export", trace.folder, "-o", "x", *arguments, status=2)
        assert said in ran.err
        assert len(ran.err.strip().splitlines()) == 1


@pytest.mark.parametrize("format", ["perfetto", "chrome", "csv", "parquet"])
def test_a_hostile_trace_is_exported(tmp_path, format):
    """Times that jump, numbers at their limits, NaN, overlapping phases, empty tables."""
    far = 2**63 - 1
    tables = {
        "processes": [
            {"pid": n, "tid": n, "comm": HOSTILE, "role": "other"} for n in range(1, 2000)
        ],
        "phases": [
            phase(HOSTILE, -5, far),
            phase("a", 10, 50),
            phase("b", 20, 60),
            phase("c", 60, 30),
            {"name": "d", "start": 5},
        ],
        "syscalls": [call(far, "x", far), call(-far, "y", -1), call(3, None, 5), call(4, "z", 50)],
        "block": [
            {**block(50, "bio_queue", 2**64 - 1), "nr_sector": far, "dev": HOSTILE},
            {**block(40, "issue", 2**64 - 1), "nr_sector": far, "dev": None},
            {**block(30, "complete", 2**64 - 1), "nr_sector": -far},
        ],
        "writeback": [],
        "samples": [
            {"ts": far, "name": HOSTILE, "value": float("inf"), "unit": HOSTILE},
            {"ts": 4, "name": HOSTILE, "value": -0.0, "unit": HOSTILE, "target": "=1+1"},
        ],
        "dirty": [{"ts": 5, "tid": -1, "event": "dirty_folio", "dev": None}],
        "loss": [{"stream": HOSTILE, "cpu": -1, "from": far, "to": 3, "cause": "x"}],
    }
    with make_trace(tmp_path / "t", tables) as trace:
        export(trace, format, tmp_path / "out")
    if format == "perfetto":
        found = perfetto.read(tmp_path / "out")
        assert {"a", "b", "z"} <= {s.name for s in found.slices}
    elif format == "chrome":
        json.loads((tmp_path / "out").read_text(), parse_constant=pytest.fail)
