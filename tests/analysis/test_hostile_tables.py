"""Tables and views of a trace that means harm: they are made, and say what fits in 64 bits."""

import json
import math
import shutil
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.budget import within_budget
from tests.support.claims import claim
from tests.support.hostile import NAMES, make_harmful
from tests.support.traces import make_trace
from tracer.analysis.explain.explanation import explain
from tracer.analysis.report.by_phase import BY, by_phase
from tracer.analysis.report.tables import TABLES as REPORT
from tracer.analysis.report.tables import records
from tracer.analysis.views.catalogue import VIEWS
from tracer.analysis.views.threads import make_threads
from tracer.analysis.views.waiting.sleeps import Marks, Sleeps
from tracer.probes.errors import BadTrace, TracerError
from tracer.store.packing import open_pack
from tracer.store.trace import ALL_TABLES, Trace, dump

pytestmark = pytest.mark.slow

NO_INTS = np.empty(0, np.int64)


@pytest.fixture(scope="module")
def harmful(tmp_path_factory):
    """The folder of the trace, which no test changes."""
    folder = tmp_path_factory.mktemp("harmful") / "t"
    make_harmful(folder).close()
    return folder


@pytest.fixture
def hostile(harmful):
    with Trace(harmful) as trace:
        yield trace


@pytest.mark.parametrize("name", REPORT)
def test_a_table_of_the_report_is_made(hostile, name):
    make = REPORT[name].of
    assert isinstance(json.loads(dump(records(make(hostile)))), list)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_made(hostile, name):
    frame = VIEWS[name].frame(hostile)
    assert len(frame.columns) == len(VIEWS[name].columns)
    # No thread here is of one target alone, no step ends after its start, and no bio is split.
    assert len(frame) or name in ("stalls", "critical_path", "rest_queues")


def test_a_step_amid_harm_has_a_path_that_adds_up(tmp_path):
    tids = (7, 8, 9)
    instead = {
        "processes": [
            {"pid": 7, "tid": tid, "role": "target", "target": "job", "comm": name}
            for tid, name in zip(tids, NAMES, strict=False)
        ],
        "phases": [
            {"pid": 7, "tid": tid, "name": "step", "step": step, "start": 60 * step,
             "end": 60 * step + 60}
            for tid in tids
            for step in range(5)
        ],
    }  # fmt: skip
    with make_harmful(tmp_path / "t", instead=instead) as trace:
        path = VIEWS["critical_path"].frame(trace)
        assert json.loads(dump(asdict(explain(trace))))["steps"] == 15
        waited = REPORT["waits"].of(trace)
    assert set(path["kind"]) > {"run"}
    for _, step in path.sort_values("ts").groupby(["step_tid", "step_start"]):
        ends = (step["ts"] + step["dur_ns"]).tolist()
        assert step["ts"].tolist() == [step["step_start"].iloc[0], *ends[:-1]]
        assert sum(step["dur_ns"]) == 60
    assert waited["path_s"].sum() * 1e9 == pytest.approx(
        path.loc[path["kind"] != "run", "dur_ns"].sum()
    )


@pytest.mark.parametrize("by", BY)
def test_kernel_activity_is_grouped(hostile, by):
    assert len(by_phase(hostile, by))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_a_sample_that_is_not_a_number_is_null(tmp_path, tracer, value):
    named = {"name": "memory_used", "unit": "bytes"}
    values = [3.0, value, 5.0, None]
    rows = [{"ts": n, "value": one} | named for n, one in enumerate(values)]
    rows += [{"ts": 9, "value": value, "name": "cpu_use", "unit": "%"}]
    make_trace(tmp_path / "t", {"samples": rows}).close()
    told = json.loads(tracer("report", "--json", tmp_path / "t").out)["tables"]["samples"]
    assert [(row["name"], row["samples"], row["mean"]) for row in told] == [("memory_used", 2, 4.0)]
    assert "memory_used" in tracer("report", tmp_path / "t").out


TYPES = [
    *(pa.string(), pa.int8(), pa.binary(), pa.null(), pa.timestamp("us"), pa.decimal128(10, 2)),
    *(pa.list_(pa.int64()), pa.struct([("a", pa.int64())])),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_table_of_other_types_is_refused_in_a_line_by_whatever_opens_the_trace(
    harmful, tmp_path, kind
):
    """A pack is opened as a trace is, and so it is by every verb."""
    shutil.copytree(harmful, tmp_path / "t")
    for name in ALL_TABLES:
        path = tmp_path / "t" / ("loss" if name == "loss" else f"events/{name}")
        path = path.with_suffix(".parquet")
        kept = path.read_bytes()
        columns = pq.read_schema(path).names
        pq.write_table(pa.table({column: pa.nulls(3, kind) for column in columns}), path)
        with pytest.raises(BadTrace, match=f"{name}.parquet is damaged") as error:
            Trace(tmp_path / "t")
        assert "\n" not in str(error.value)
        path.write_bytes(kept)


@pytest.mark.parametrize("place", ["file/x", "loop", "x" * 300, "folder"])
def test_a_folder_that_is_not_a_trace_is_refused_in_one_line(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    for opener in (Trace, open_pack):
        with pytest.raises(TracerError) as error, opener(tmp_path / place):
            pass
        assert "\n" not in str(error.value)


def test_a_hundred_thousand_processes(tmp_path):
    processes = range(1, 100_001)
    rows = {
        "processes": [{"pid": n, "tid": n, "role": "target", "comm": f"p{n}"} for n in processes],
        "syscalls": [
            {"ts": n, "pid": n, "tid": n, "nr": 0, "name": "read", "dur_ns": n} for n in processes
        ],
        "phases": [{"start": n, "end": n + 1, "pid": n, "tid": n, "name": "x"} for n in processes],
    }
    with make_trace(tmp_path / "t", rows) as trace:
        calls = trace.sql(
            f"SELECT count(*) AS n, count(phase) AS p FROM {VIEWS['calls'].make(trace)}"
        )
        (phases,) = records(REPORT["phases"].of(trace))
    assert calls.iloc[0].tolist() == [100_000, 100_000]
    assert (phases["processes"], phases["calls"]) == (100_000, 100_000)


def sleeps_of(folder):
    """Reads the intervals off the CPU of the one thread, and returns how many there are."""
    with Trace(folder) as trace:
        make_threads(trace)
        sleeps = Sleeps(trace, np.ones(1, np.bool_))
        sleeps.close()
        nothing = Marks(NO_INTS, NO_INTS, pa.table({}))
        return sum(len(rows) for rows in sleeps.batches([], nothing, nothing))


@pytest.mark.parametrize("claimed", [10**6, 10**12])
def test_a_table_that_claims_more_rows_than_it_has_takes_no_memory_for_them(tmp_path, claimed):
    rows = 1009  # a prime
    tables = {
        "processes": [{"pid": 7, "tid": 7, "role": "target", "target": "job"}],
        "off_cpu": [
            {"ts": 100 * n, "dur_ns": 50, "pid": 7, "tid": 7, "state": "S"} for n in range(rows)
        ],
    }
    make_trace(tmp_path / "t", tables).close()
    assert sleeps_of(tmp_path / "t") == rows
    claim(tmp_path / "t/events/off_cpu.parquet", rows, claimed)
    error = within_budget(sleeps_of, tmp_path / "t")
    assert isinstance(error, BadTrace) and "damaged" in str(error)
