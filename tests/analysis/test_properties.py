"""Properties of all traces, tested on traces that are drawn at random."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.oracles.requests import requests_of
from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tracer.analysis.report.calls import SYSCALLS
from tracer.analysis.report.histogram import CUTS, buckets, spread, spread_query
from tracer.analysis.report.tables import flushed_pages, writeback_reasons
from tracer.analysis.views.cuts import Cuts
from tracer.analysis.views.disks.requests import requests
from tracer.analysis.views.in_phase import in_phase
from tracer.analysis.views.phases.nesting import NEVER, cut
from tracer.analysis.views.writing.flushes import flushes

pytestmark = pytest.mark.slow

few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=200, deadline=None)


@contextmanager
def traced(tables):
    with (
        tempfile.TemporaryDirectory(dir=PLACE) as folder,
        make_trace(Path(folder) / "t", tables) as trace,
    ):
        yield trace


starts = st.lists(
    st.tuples(
        st.integers(0, 10**12),
        st.sampled_from(["start", "written", "queue"]),
        st.sampled_from(["periodic", "background", "sync", "vmscan"]),
    ),
    max_size=40,
)


@few
@given(starts)
def test_reasons_sum_to_the_total(drawn):
    rows = [{"ts": ts, "tid": 50, "event": event, "reason": why} for ts, event, why in drawn]
    with traced({"writeback": rows}) as trace:
        found = writeback_reasons(trace)
    total = sum(event == "start" for _, event, _ in drawn)
    assert found["writebacks"].sum() == total
    assert total == 0 or abs(found["ratio"].sum() - 1) < 1e-12


bios = st.lists(
    st.tuples(
        st.integers(0, 1000),
        st.sampled_from(["bio_queue", "issue", "requeue", "complete"]),
        st.integers(0, 3),
        st.integers(1, 64),
        st.sampled_from(["W", "WS", "WM", "R", "RA"]),
    ),
    max_size=30,
    unique_by=lambda row: row[0],
)


def as_block(drawn):
    return [
        {
            "ts": ts,
            "tid": 50,
            "pid": 50,
            "event": event,
            "dev": "254:0",
            "sector": 100 * place,
            "nr_sector": length,
            "rwbs": rwbs,
        }
        for ts, event, place, length, rwbs in sorted(drawn)
    ]


@few
@given(bios)
def test_requests_and_flushes_conserve_sectors(drawn):
    rows = as_block(drawn)
    issued = sum(row["nr_sector"] for row in requests_of(rows, [], {}))
    written = sum(
        row["nr_sector"] for row in rows if row["event"] == "bio_queue" and row["rwbs"][0] == "W"
    )
    with traced({"block": rows}) as trace:
        of_requests, of_flushes = (
            int(trace.sql(f"SELECT coalesce(sum(nr_sector), 0) AS n FROM {view(trace)}")["n"][0])
            for view in (requests, flushes)
        )
        pages, counted = (
            trace.sql("SELECT coalesce(sum(pages), 0) AS n FROM flushes")["n"][0],
            flushed_pages(trace)["pages"].sum(),
        )
    assert (of_requests, of_flushes) == (issued, written)
    assert pages == counted


@st.composite
def nested(draw, start=0, end=200, depth=4):
    """Phases of a thread that lie within each other: (start, end, name)."""
    found = []
    at = start
    while depth and at < end - 1 and draw(st.booleans()):
        begun = draw(st.integers(at, end - 1))
        ended = draw(st.integers(begun + 1, end))
        found.append((begun, ended, draw(st.sampled_from(["train", "step", "forward", "x"]))))
        found += draw(nested(begun, ended, depth - 1))
        at = ended
    return found


@many
@given(st.lists(nested(), min_size=1, max_size=3))
def test_phases_partition_the_time_of_each_thread(threads):
    spans = [(lane, start, end) for lane, thread in enumerate(threads) for start, end, _ in thread]
    spans.sort(key=lambda span: (span[0], span[1], -span[2]))
    columns = np.array(spans, np.int64).reshape(-1, 3).T.copy()
    none = np.full(columns.shape[1], -1, np.int32)
    lane, ts, inner, _ = cut(*columns, none)
    for thread in range(len(threads)):
        mine = lane == thread
        assert (np.diff(ts[mine]) > 0).all()
        covered = {t for of, start, end in spans if of == thread for t in range(start, end)}
        lengths = np.diff(ts[mine], append=ts[mine][-1:])
        assert lengths[inner[mine] >= 0].sum() == len(covered)
        for moment in range(200):
            around = [
                number
                for number, (of, start, end) in enumerate(spans)
                if of == thread and start <= moment < end
            ]
            at = np.searchsorted(ts[mine], moment, side="right") - 1
            assert (inner[mine][at] if at >= 0 else -1) == (around[-1] if around else -1)


@few
@given(nested(), st.lists(st.integers(0, 220), max_size=20))
def test_each_event_is_in_one_phase_at_most(spans, moments):
    phases = [
        {"start": start, "end": end, "pid": 7, "tid": 7, "name": name} for start, end, name in spans
    ]
    calls = [{"ts": ts, "pid": 7, "tid": 7, "nr": 0, "name": "read"} for ts in moments]
    with traced({"phases": phases, "syscalls": calls}) as trace:
        found = trace.sql(f"SELECT ts, phase FROM {in_phase(trace, 'syscalls')}")
    assert sorted(found["ts"]) == sorted(moments)
    for ts, phase in found.itertuples(index=False):
        around = sorted((start, -end, name) for start, end, name in spans if start <= ts < end)
        latest = {name for start, end, name in around if (start, end) == around[-1][:2]}
        assert phase in latest if latest else pd.isna(phase)


@many
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-100, 100)), max_size=30),
    st.lists(st.tuples(st.integers(-1, 4), st.integers(-120, 120)), max_size=30),
    st.booleans(),
)
def test_the_last_cut_before_a_moment_is_found(cuts, moments, before):
    cuts.sort()
    lane, ts = (np.array([cut[column] for cut in cuts], np.int64) for column in (0, 1))
    asked = [np.array([m[column] for m in moments], np.int64) for column in (0, 1)]
    found = Cuts(lane, ts).last(*asked, before)
    for (of, moment), number in zip(moments, found, strict=True):
        fitting = [
            n
            for n, (at, t) in enumerate(cuts)
            if at == of and (t < moment if before else t <= moment)
        ]
        assert number == (fitting[-1] if fitting else -1)


times = st.one_of(st.integers(0, 1000), st.integers(0, 10**7), st.integers(0, NEVER))


@pytest.fixture(scope="module")
def connection():
    """A database in memory, without a table."""
    with duckdb.connect() as connection:
        yield connection


@settings(max_examples=80, deadline=None)  # each asks DuckDB
@given(st.lists(times, min_size=1, max_size=60), st.sampled_from([0, 0.5, 0.9, 0.99, 1]))
def test_quantiles_are_as_exact_as_promised(connection, values, share):
    drawn = pd.DataFrame({"v": np.array(values, np.int64)})
    connection.register("drawn", drawn)
    histogram = f"SELECT 'x' AS k, {buckets('v')} FROM drawn GROUP BY ALL"
    parts = connection.execute(histogram).df()
    by_sql = connection.execute(spread_query(histogram, ["k"], [share])).df()
    found = spread(parts, ["k"], [share])
    exact = float(np.quantile(np.array(values, float), share))
    assert abs(found[f"p{100 * share:g}"].iloc[0] - exact) <= exact / CUTS + 1e-9 * exact
    assert found["values"].iloc[0] == len(values)
    told = found.reset_index()[["k", "values", "max", f"p{100 * share:g}"]]
    told.columns = by_sql.columns
    pd.testing.assert_frame_equal(by_sql, told, check_dtype=False, rtol=1e-12)
    if len(values) <= 2:
        assert abs(found[f"p{100 * share:g}"].iloc[0] - exact) <= 1e-9 * exact


calls = st.lists(
    st.tuples(
        st.sampled_from(["read", "write", "fsync"]), st.one_of(st.none(), st.integers(0, 10**6))
    ),
    max_size=30,
)


@few
@given(calls, calls)
def test_parts_of_two_traces_are_those_of_both_as_one(first, second):
    parts = []
    for drawn in (first, second, first + second):
        rows = [{"tid": 7, "nr": 0, "name": name, "dur_ns": took} for name, took in drawn]
        with traced({"syscalls": rows}) as trace:
            parts.append(SYSCALLS.parts(trace))
    together = SYSCALLS.finish(SYSCALLS.together(parts[:2]))
    pd.testing.assert_frame_equal(together, SYSCALLS.finish(parts[2]), check_dtype=False)
